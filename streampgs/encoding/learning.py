"""Learn an encoding from a random sample of rows: each column's own numbers, then what all strings share."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError, OptionError
from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.feature_names import MOST_COUNTED, KeyCounts, most_frequent
from streampgs.encoding.kinds import kind_of, of_family
from streampgs.encoding.kinds.curve import Curve
from streampgs.encoding.kinds.kind import (
    LARGEST_FEATURE,
    Arrays,
    Column,
    RowMarks,
    StringKind,
    arrays_of,
    is_there,
    row_count,
)
from streampgs.encoding.kinds.text import rows_with
from streampgs.encoding.plan import Plan, vectors_of
from streampgs.options.commands import MOST_HASH_BITS, EncodingOptions

_NAMING_BATCHES = 8
_USUAL_HASH_BITS, _FEWEST_HASH_BITS = 20, 10
_SPARE_BITS = 10  # features for each different string: one string in a thousand shares its feature


def learn(
    plan: Plan, options: EncodingOptions, sample: Sequence[Arrays], most_hash_bits: int = MOST_HASH_BITS
) -> Encoding:
    """`sample`: batches of rows; `most_hash_bits`: a limit where the options do not fix the number."""
    rows = sum(map(row_count, sample))
    if not rows:
        raise DataError("the sample of rows from which encodings are learned is empty", "name shards that hold rows")
    vectors = vectors_of(plan.columns)
    if len(vectors) > 1:
        raise OptionError(
            f"columns {', '.join(vectors)} are vectors of unknown width",
            "keep one of them and --ignore the others, or write them as one vector",
        )
    alone = len(plan.columns) == 1
    learned = [kind_of(column).learn(column, options, sample, alone) for column in plan.columns]
    columns = tuple(sorted((one for one in learned if one.width), key=lambda column: kind_of(column).section))
    encoding = Encoding(options, columns, plan.left_out, options.hash_bits or _USUAL_HASH_BITS)
    strings = bool(of_family(columns, StringKind))
    if strings and options.hash_bits is None:
        encoding = replace(encoding, hash_bits=min(most_hash_bits, _fitting_bits(encoding, sample)))
    if strings and options.vocabulary:
        encoding = replace(encoding, words=_words(encoding, sample))
    if encoding.unbounded_first > LARGEST_FEATURE:
        raise OptionError(
            f"`--hash-bits {encoding.hash_bits}`: {encoding.unbounded_first:,} features", "give fewer bits"
        )
    if options.text_weights == "tf-idf":
        encoding = replace(encoding, rarities=_rarities(encoding, sample, rows))
    named, names, signs = _names(encoding, _some(sample))
    return replace(
        encoding,
        named=named,
        names=names,
        signs=signs,
        entries_per_row=_entries_per_row(encoding, sample, rows),
        bytes_per_row=sum(read_bytes(batch) for batch in sample) / rows,
        null_shares={name: share for name, share in null_shares(plan.columns, sample).items() if share},
    )


def with_straight_numbers(encoding: Encoding, sample: Sequence[Arrays]) -> Encoding:
    """The same without curves. `sample`: from which it was learned."""
    curves = sum(column.width for column, _ in of_family(encoding.columns, Curve))
    columns = tuple(column for column in encoding.columns if column.kind != Curve.name)
    straight = replace(
        encoding, columns=columns, options=replace(encoding.options, numbers="linear"), named=encoding.named - curves
    )
    return replace(straight, entries_per_row=_entries_per_row(straight, sample, sum(map(row_count, sample))))


def grown(encoding: Encoding, plan: Plan, sample: Sequence[Arrays]) -> tuple[Encoding, dict[str, str]]:
    """The encoding with the plan's columns after its own, learned from rows that have them; and the columns of the new
    shards that are left out, with the reasons.

    Strings of known columns are not learned again. New ones are hashed as before: a feature of its own would take a string
    away from the hashed feature that it has in earlier shards.
    """
    plan = with_values(plan, sample)
    if not plan.columns:
        return encoding, plan.left_out
    # With the usual hash for each generation, most of the model would soon be hashed features.
    options = replace(encoding.options, hash_bits=None, cross=())
    more = learn(plan, options, sample, encoding.options.hash_bits or MOST_HASH_BITS)
    if encoding.first_feature + encoding.unbounded_first + more.unbounded_first > LARGEST_FEATURE:
        names = ", ".join(column.name for column in plan.columns)
        raise OptionError(
            f"new columns {names}: more than {LARGEST_FEATURE:,} features", "start a new run without them"
        )
    new = {column.name for column in plan.columns}
    return (
        replace(
            more,
            options=encoding.options,
            left_out={name: why for name, why in {**encoding.left_out, **plan.left_out}.items() if name not in new},
            entries_per_row=encoding.entries_per_row + more.entries_per_row,
            bytes_per_row=max(encoding.bytes_per_row, more.bytes_per_row),
            before=encoding,
        ),
        plan.left_out,
    )


def with_values(plan: Plan, sample: Sequence[Arrays]) -> Plan:
    """Without the columns in which the sample shows only nulls."""
    return plan.without(
        {c.name: "has only nulls in the sample" for c in plan.columns if not kind_of(c).has_values(c, sample)}
    )


def read_bytes(batch: Arrays) -> int:
    """The size of a batch's rows, without the dictionaries that they share."""
    arrays = (types.plain(array) for array in batch.values())
    return sum((array.indices if pa.types.is_dictionary(array.type) else array).nbytes for array in arrays)


def _some(sample: Sequence[Arrays]) -> Sequence[Arrays]:
    return sample[:: -(-len(sample) // _NAMING_BATCHES)]


def _fitting_bits(encoding: Encoding, sample: Sequence[Arrays]) -> int:
    """Fewer than usual if the strings of the sample hardly ever share a feature all the same: each feature costs time and
    memory."""
    different = 0
    for column, kind in of_family(encoding.columns, StringKind):
        known = np.empty(0, np.uint64)
        for batch in sample:
            for keys in kind.keys(encoding.book, column, batch):
                known = np.unique(np.concatenate([known, keys]))
                if (different + len(known)) << _SPARE_BITS >= 1 << _USUAL_HASH_BITS:
                    return _USUAL_HASH_BITS
        different += len(known)
    return max(_FEWEST_HASH_BITS, (different << _SPARE_BITS).bit_length())


def _words(encoding: Encoding, sample: Sequence[Arrays]) -> NDArray[np.uint64]:
    """The keys of the sample's strings, the most frequent first, and at most as many as there are hashed features."""
    most = encoding.book.mask + 1
    counts = KeyCounts(max(MOST_COUNTED, 4 * most))  # the rarest are hardly ever among the most frequent later
    for column, kind in of_family(encoding.columns, StringKind):
        for batch in sample:
            for keys in kind.keys(encoding.book, column, batch):
                counts.add(*np.unique(keys, return_counts=True))
    counts.merge()
    return counts.keys[np.argsort(-counts.times, kind="stable")[:most]]


def _rarities(encoding: Encoding, sample: Sequence[Arrays], rows: int) -> dict[str, NDArray[np.float32]]:
    """log((1 + rows) / (1 + rows that have it)) + 1, for each feature of the columns that are weighted by it."""
    found = {}
    for column, kind in of_family(encoding.columns, StringKind):
        if not kind.has_rarity:
            continue
        counts = np.zeros(encoding.book.size, np.int64)
        for array in arrays_of(sample, column.name):
            for tokens in kind.tokens(column, array, encoding.options):
                rows_with(encoding.book, tokens, counts)
        found[column.name] = (np.log((1.0 + rows) / (1.0 + counts)) + 1.0).astype(np.float32)
    return found


def _names(encoding: Encoding, sample: Sequence[Arrays]) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.int8]]:
    return most_frequent(
        lambda: (
            one
            for column, kind in of_family(encoding.columns, StringKind)
            for batch in sample
            if is_there(column, batch)
            for one in kind.named(encoding.book, column, batch)
        )
    )


def _entries_per_row(encoding: Encoding, sample: Sequence[Arrays], rows: int) -> float:
    if encoding.dense:
        return float(encoding.unbounded_first)
    encoder = Encoder(encoding)
    entries = 0
    for batch in sample:
        count = row_count(batch)
        entries += len(encoder.entries(batch, count, RowMarks.of(count))[1])
    return max(1.0, entries / rows)


# A share has changed if it differs by so much, and by so many standard errors.
_MUCH, _ERRORS = 0.1, 4.0
_MOST_NAMES = 5


def null_shares(columns: Iterable[Column], sample: Sequence[Arrays]) -> dict[str, float]:
    """By column of the table. Rows without a column count as null."""
    rows = max(1, sum(map(row_count, sample)))
    names = [name for column in columns for name in column.sources]
    valid = {name: sum(len(array) - array.null_count for array in arrays_of(sample, name)) for name in names}
    return {name: 1.0 - count / rows for name, count in valid.items()}


def changed_shares(
    before: Mapping[str, float], now: Mapping[str, float], rows: int, missing: Collection[str]
) -> dict[str, float]:
    """The shares in so many new rows that chance does not explain; without the columns that are missing."""
    changed = {}
    for name, share in now.items():
        middle = (before[name] + share) / 2.0
        by_chance = _ERRORS * math.sqrt(middle * (1.0 - middle) / max(1, rows))
        if name not in missing and abs(share - before[name]) > max(_MUCH, by_chance):
            changed[name] = share
    return changed


def text_of_nulls(before: Mapping[str, float], changed: Mapping[str, float]) -> list[str]:
    listed = [f"'{name}' {share:.0%} (before {before[name]:.0%})" for name, share in changed.items()]
    more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    return [f"other shares of nulls in the new shards: {', '.join(listed[:_MOST_NAMES])}{more}"] if listed else []
