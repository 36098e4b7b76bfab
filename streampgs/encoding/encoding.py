"""The encoding learned from a table's columns: it turns rows of such tables into features and holds no data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import decode, require
from streampgs.encoding.codebook import Codebook
from streampgs.encoding.kinds import kind_of, of_family, work_by_column
from streampgs.encoding.kinds.kind import COMPACT, LARGEST_FEATURE, Column, FixedKind, NumberKind, StringKind
from streampgs.encoding.kinds.vector import Vector
from streampgs.options.commands import MOST_HASH_BITS, EncodingOptions


@dataclass(frozen=True, eq=False)
class Learned:
    """What JSON can hold of an encoding."""

    options: EncodingOptions
    columns: tuple[Column, ...]
    """In the order of their sections: see `Kind.section`."""
    left_out: dict[str, str]
    hash_bits: int
    entries_per_row: float = 1.0
    """In the sample, for whole rows, earlier generations included; so is the next one."""
    bytes_per_row: float = 0.0
    """The size of the columns as they are read."""
    names: tuple[str, ...] = ()
    """The known names of features of strings."""
    null_shares: dict[str, float] = field(default_factory=dict)
    """The shares of nulls in the sample, by column of the table; without columns that have none."""


@dataclass(frozen=True, eq=False)
class Encoding(Learned):
    """The columns of one generation and their features.

    Columns that join later make a new generation. The one before stays as it is, and the new features follow all of its
    features. Within a generation features are numbered from its own first one.
    """

    rarities: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    words: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Keys of the strings that have their own features."""
    named: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The features that have the names, ascending."""
    signs: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    """The signs of these features' values."""
    before: Encoding | None = None

    # Where features are.

    @cached_property
    def first_of(self) -> dict[str, int]:
        """The first feature of each column that has its own ones."""
        firsts, first = {}, 0
        for column, _ in of_family(self.columns, FixedKind):
            firsts[column.name] = first
            first += column.width
        return firsts | {column.name: self.unbounded_first for column, _ in of_family(self.columns, Vector)}

    @cached_property
    def numbers(self) -> int:
        """How many features the columns in section COMPACT have, which are the first ones."""
        return sum(c.width for c, kind in of_family(self.columns, NumberKind) if kind.section == COMPACT)

    @cached_property
    def hashed_first(self) -> int:
        """The first feature of strings."""
        return sum(column.width for column, _ in of_family(self.columns, FixedKind))

    @cached_property
    def unbounded_first(self) -> int:
        """The first feature of a vector; all others are below."""
        return self.hashed_first + (self.book.size if of_family(self.columns, StringKind) else 0)

    @cached_property
    def book(self) -> Codebook:
        return Codebook(self.options, self.hashed_first, self.hash_bits, self.words, self.rarities)

    @cached_property
    def first_feature(self) -> int:
        """The number of this generation's first feature."""
        return 0 if self.before is None else self.before.first_feature + self.before.unbounded_first

    # Whole rows.

    @cached_property
    def generations(self) -> tuple[Encoding, ...]:
        """The newest first."""
        return (self,) if self.before is None else (self, *self.before.generations)

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns of all generations, the oldest first."""
        return tuple(column for generation in reversed(self.generations) for column in generation.columns)

    @property
    def own_columns(self) -> tuple[Column, ...]:
        """Those of all generations that are not made of others."""
        return tuple(column for column in self.all_columns if not kind_of(column).of_others)

    def as_of(self, digest: str) -> Encoding | None:
        """The generation of this digest: a shard is always read with the columns that were known when it joined."""
        return next((generation for generation in self.generations if generation.digest == digest), None)

    @cached_property
    def dense(self) -> bool:
        """Whether every row has a number for every feature."""
        return len(of_family(self.all_columns, NumberKind)) == len(self.all_columns)

    @property
    def unbounded(self) -> bool:
        return bool(of_family(self.all_columns, Vector))

    @property
    def features(self) -> int | None:
        """None: the indices of vectors decide."""
        return None if self.unbounded else self.first_feature + self.unbounded_first

    @property
    def scales(self) -> bool:
        """Whether numbers are standardized, and clipped."""
        return any(column.scale for column in self.all_columns)

    @cached_property
    def _scaled(self) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
        """Where features that are standardized begin and end, and the names of their columns; in ascending order."""
        spans: list[tuple[int, int, str]] = []
        for generation in reversed(self.generations):
            first = generation.first_feature
            for column, kind in of_family(generation.columns, NumberKind):
                start = first + generation.first_of[column.name]
                spans += [(start, start + kind.values_per_row(column), column.name)] if column.scale else []
            maps = [column.name for column, _ in of_family(generation.columns, StringKind) if column.scale]
            book = (first + generation.hashed_first, first + generation.unbounded_first)
            spans += [(*book, " or ".join(maps))] if maps else []  # several maps share the features
            vectors = [column.name for column, _ in of_family(generation.columns, Vector) if column.scale]
            spans += [(book[1], LARGEST_FEATURE, name) for name in vectors]
        starts, stops = (np.array([span[end] for span in spans], np.int64) for end in (0, 1))
        return starts, stops, [name for _, _, name in spans]

    def scaled_columns(self, features: NDArray[np.int64]) -> list[str | None]:
        """The column of each feature; None: it is not standardized."""
        starts, stops, names = self._scaled
        places = np.searchsorted(starts, features, side="right") - 1
        known = (places >= 0) & (features < stops[places])
        return [names[place] if one else None for place, one in zip(places.tolist(), known.tolist(), strict=True)]

    @property
    def work_bytes_per_row(self) -> float:
        """Memory for a row while it is encoded."""
        return self.bytes_per_row + 8.0 * self.entries_per_row + 24.0

    @cached_property
    def work(self) -> dict[str, float]:
        """By column of the table: the memory for a byte of it while it is encoded."""
        return work_by_column(self.all_columns, self.options)

    @cached_property
    def all_null_shares(self) -> dict[str, float]:
        """By column of the table; of each generation, in the sample that it was learned from."""
        shares = {name: 0.0 for column in self.all_columns for name in column.sources}
        for generation in reversed(self.generations):
            shares |= generation.null_shares
        return shares

    @property
    def has_hashed(self) -> bool:
        return bool(of_family(self.all_columns, StringKind))

    @property
    def hashed_features(self) -> int:
        """In all generations, without known words."""
        return sum(one.book.mask + 1 for one in self.generations if of_family(one.columns, StringKind))

    # Names.

    def name_of(self, feature: int) -> str:
        """The name of a feature, as far as it is known."""
        if self.before is not None and feature < self.first_feature:
            return self.before.name_of(feature)
        feature -= self.first_feature
        for column in self.columns:
            first = self.first_of.get(column.name)
            if first is not None and 0 <= feature - first < (column.width if first < self.hashed_first else np.inf):
                return kind_of(column).name_of(column, feature - first)
        place = self._named_place(feature)
        return f"hashed {feature - self.book.slots_first}" if place is None else self.names[place]

    def sign_of(self, feature: int) -> int:
        """The sign of the value of a row with the feature's string, as far as it is known."""
        if self.before is not None and feature < self.first_feature:
            return self.before.sign_of(feature)
        place = self._named_place(feature - self.first_feature)
        return 1 if place is None else int(self.signs[place])

    def _named_place(self, feature: int) -> int | None:
        place = int(np.searchsorted(self.named, feature))
        return place if place < len(self.named) and self.named[place] == feature else None

    # Stored form.

    @cached_property
    def digest(self) -> str:
        record, arrays = self.to_record()
        digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode())
        for name in sorted(arrays):
            digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()[:32]

    def to_record(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """JSON values, and arrays by name."""
        record = {one.name: getattr(self, one.name) for one in fields(Learned)} | {
            "options": asdict(self.options),
            "columns": [asdict(column) for column in self.columns],
            "names": list(self.names),
            "before": None if self.before is None else self.before.digest,
        }
        arrays: dict[str, NDArray[Any]] = {"words": self.words, "named": self.named, "signs": self.signs}
        return record, arrays | {f"rarity {name}": array for name, array in self.rarities.items()}

    @staticmethod
    def from_record(
        record: dict[str, Any], arrays: dict[str, NDArray[Any]], before: Encoding | None = None
    ) -> Encoding:
        """`before`: the encoding whose digest the record names. ValueError if rows cannot be encoded safely."""
        rarities = {name.removeprefix("rarity "): array for name, array in arrays.items() if name.startswith("rarity ")}
        learned: dict[str, Any] = dict(vars(decode(Learned, record)))
        learned |= {name: arrays[name] for name in ("words", "named", "signs")}
        encoding = Encoding(**learned, rarities=rarities, before=before)
        encoding._check()
        return encoding

    def _check(self) -> None:
        """ValueError unless the compiled loops stay inside their arrays with this generation."""
        require(1 <= self.hash_bits <= MOST_HASH_BITS, f"{self.hash_bits} bits of hashes")
        require(self.unbounded_first <= LARGEST_FEATURE, f"{self.unbounded_first} features")
        for array, dtype in ((self.words, np.uint64), (self.named, np.int64), (self.signs, np.int8)):
            require(array.ndim == 1 and array.dtype == dtype, f"numbers of type {array.dtype}, not {np.dtype(dtype)}")
        for name, rarity in self.rarities.items():
            sound = rarity.dtype == np.float32 and rarity.shape == (self.book.size,)
            require(sound, f"rarities of column '{name}' that do not fit")
