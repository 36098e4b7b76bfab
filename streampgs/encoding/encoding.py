"""What was learnt about a table's columns: all that it takes to turn rows of such tables into features, and no data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.checks import decode
from streampgs.encoding.plan import CATEGORY, CROSS, LIST, NUMBER, TEXT, TOKENS, VECTOR, WEIGHED_TOKENS, PlannedColumn
from streampgs.kernels.hashing import hash_spans, lookup_table
from streampgs.options import EncodingOptions

HASHED = (CATEGORY, CROSS, TEXT, TOKENS, WEIGHED_TOKENS)
BAGS = (TEXT, TOKENS, WEIGHED_TOKENS)
NULL_TEXT = b"\x00"
"""Stands for null among the values of a category."""
_SECOND_HASH = 0x9E3779B9
_TOKEN_BYTES = 32  # its span, hash and code, and as an entry
CYCLES = {"hour of day": 86400.0, "day of week": 7 * 86400.0, "day of year": 365.2425 * 86400.0}


@dataclass(frozen=True)
class EncodedColumn:
    """A column and where its features are."""

    name: str
    kind: str
    holds: str
    parts: tuple[str, ...] = ()
    first: int = 0
    """Its first feature; of hashed columns: what they share begins here."""
    width: int = 1
    """Features of a row; of a list: how many numbers each has."""
    centre: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    """value → (value − centre)·scale; empty: as it is."""
    null_flag: bool = False
    cyclic: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The table's columns that it is made of."""
        return self.parts or (self.name,)

    @property
    def cycles(self) -> tuple[str, ...]:
        return tuple(CYCLES) if self.cyclic else ()


@dataclass(frozen=True, eq=False)
class Encoding:
    """A table's columns may become more: what is learnt of those that come later is an encoding that stands on the one
    before. Its columns have features behind all features of that one; what is said of features here counts from there,
    unless it is of whole rows."""

    options: EncodingOptions
    columns: tuple[EncodedColumn, ...]
    left_out: dict[str, str]
    numbers: int
    """Features that columns of numbers have; the first ones."""
    hashed_first: int
    """Where the features of categories and tokens begin: first the known words, then the hashed ones."""
    unbounded_first: int
    """Where the features of a vector column of unknown width begin; all others are below."""
    hash_bits: int
    dense: bool
    """Every row has a number for every feature."""
    entries_per_row: float
    """In the sample, as are the next two; of whole rows, as is what comes before."""
    tokens_per_row: float = 0.0
    """Words or runs of characters of a row's texts and lists, before equal ones are counted."""
    bytes_per_row: float = 0.0
    """Of the columns as they are read."""
    rarities: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Of a text column: how rare each feature is, from `hashed_first` on."""
    words: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Keys of the words that have features of their own."""
    named: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Features of categories and tokens whose names are known, ascending."""
    names: tuple[str, ...] = ()
    signs: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    """Of the values that these features have."""
    before: Encoding | None = None

    @cached_property
    def generations(self) -> tuple[Encoding, ...]:
        """The newest first."""
        return (self,) if self.before is None else (self, *self.before.generations)

    @property
    def all_columns(self) -> tuple[EncodedColumn, ...]:
        """In the order of their features, which count from where those of their generation begin."""
        return tuple(column for generation in reversed(self.generations) for column in generation.columns)

    @cached_property
    def first_feature(self) -> int:
        """Where its columns' features begin among all."""
        return 0 if self.before is None else self.before.first_feature + self.before.unbounded_first

    def as_of(self, digest: str) -> Encoding | None:
        """What there was of it when shards came that were read by the encoding of this digest: so they stay."""
        return next((generation for generation in self.generations if generation.digest == digest), None)

    @property
    def unbounded(self) -> bool:
        return any(column.kind == VECTOR for column in self.all_columns)

    @property
    def features(self) -> int | None:
        """How many; None: what rows name decides."""
        return None if self.unbounded else self.first_feature + self.unbounded_first

    @property
    def work_bytes_per_row(self) -> float:
        """What a row takes while it is encoded."""
        return self.bytes_per_row + _TOKEN_BYTES * self.tokens_per_row + 8.0 * self.entries_per_row + 24.0

    @property
    def has_hashed(self) -> bool:
        return any(column.kind in HASHED for column in self.all_columns)

    @property
    def hashed_features(self) -> int:
        """Beside those of known words, in all generations."""
        hashing = (one for one in self.generations if any(column.kind in HASHED for column in one.columns))
        return sum(one.hash_mask + 1 for one in hashing)

    @property
    def hash_mask(self) -> int:
        return (1 << self.hash_bits) - 1

    @property
    def slots_first(self) -> int:
        """Where hashed features begin, behind those of known words."""
        return self.hashed_first + len(self.words)

    @cached_property
    def word_table(self) -> NDArray[np.int64]:
        return np.asarray(lookup_table(self.words, 1 << max(4, int(2 * len(self.words)).bit_length())))

    @cached_property
    def digest(self) -> str:
        record, arrays = self.to_record()
        digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode())
        for name in sorted(arrays):
            digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()[:32]

    def seed_of(self, column: str) -> np.uint64:
        """Each column hashes by a seed of its own: the hash of its name."""
        return np.uint64(hash_text(column.encode(), np.uint64(self.options.hash_seed)))

    def name_of(self, feature: int) -> str:
        """The name of a feature, as far as it is known."""
        if self.before is not None and feature < self.first_feature:
            return self.before.name_of(feature)
        feature -= self.first_feature
        for column in self.columns:
            if column.kind in HASHED:
                continue
            if column.kind == VECTOR and feature >= column.first:
                return f"{column.name}[{feature - column.first}]"
            if column.first <= feature < column.first + column.width:
                return _name_within(column, feature - column.first)
        place = int(np.searchsorted(self.named, feature))
        if place < len(self.named) and self.named[place] == feature:
            return self.names[place]
        return f"hashed {feature - self.slots_first}"

    def sign_of(self, feature: int) -> int:
        """Of the value that a row with the feature's name has, as far as it is known: hashing decides it."""
        if self.before is not None and feature < self.first_feature:
            return self.before.sign_of(feature)
        feature -= self.first_feature
        place = int(np.searchsorted(self.named, feature))
        return int(self.signs[place]) if place < len(self.named) and self.named[place] == feature else 1

    def to_record(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values, and arrays by name."""
        record = {
            "options": asdict(self.options),
            "columns": [asdict(column) for column in self.columns],
            "left_out": self.left_out,
            "numbers": self.numbers,
            "hashed_first": self.hashed_first,
            "unbounded_first": self.unbounded_first,
            "hash_bits": self.hash_bits,
            "dense": self.dense,
            "entries_per_row": self.entries_per_row,
            "tokens_per_row": self.tokens_per_row,
            "bytes_per_row": self.bytes_per_row,
            "names": list(self.names),
            **({} if self.before is None else {"before": self.before.digest}),
        }
        arrays: dict[str, NDArray[Any]] = {"words": self.words, "named": self.named, "signs": self.signs}
        return record, arrays | {f"rarity {name}": array for name, array in self.rarities.items()}

    @staticmethod
    def from_record(
        record: dict[str, Any], arrays: dict[str, NDArray[Any]], before: Encoding | None = None
    ) -> Encoding:
        """`before`: the encoding whose digest the record names."""
        columns = tuple(EncodedColumn(**_tuples(column)) for column in record["columns"])
        rarities = {name.removeprefix("rarity "): array for name, array in arrays.items() if name.startswith("rarity ")}
        return Encoding(
            decode(EncodingOptions, record["options"]),
            columns,
            record["left_out"],
            record["numbers"],
            record["hashed_first"],
            record["unbounded_first"],
            record["hash_bits"],
            record["dense"],
            record["entries_per_row"],
            record["tokens_per_row"],
            record["bytes_per_row"],
            rarities,
            arrays["words"],
            arrays["named"],
            tuple(record["names"]),
            arrays["signs"],
            before,
        )


def second_seed(seed: np.uint64) -> np.uint64:
    return np.uint64(int(seed) ^ _SECOND_HASH)


def hash_text(text: bytes, seed: np.uint64) -> int:
    data = np.frombuffer(text, np.uint8)
    return int(hash_spans(data, np.zeros(1, np.int32), np.full(1, len(data), np.int32), seed)[0])


def placed(planned: PlannedColumn, **where: Any) -> EncodedColumn:
    return EncodedColumn(planned.name, planned.kind, planned.holds, planned.parts, **where)


def number_width(cyclic: bool, null_flag: bool) -> int:
    return 1 + 2 * len(CYCLES) * cyclic + null_flag


def _name_within(column: EncodedColumn, place: int) -> str:
    if column.kind == LIST:
        flag = column.null_flag and place == column.width - 1
        return f"{column.name} is null" if flag else f"{column.name}[{place}]"
    assert column.kind == NUMBER
    if place == 0:
        return column.name
    names = [f"{column.name} {wave} of {cycle}" for cycle in column.cycles for wave in ("sine", "cosine")]
    return [*names, f"{column.name} is null"][place - 1]


def _tuples(record: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
