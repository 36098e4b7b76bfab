"""What every kind of column does: it is planned, learned from a sample, encoded, named and checked.

A kind is a class without state and one line in the registry (`kinds/__init__.py`). It belongs to a family, which decides
where its features are and how they get into a row:

- `FixedKind`: a fixed number of features; they are the first ones. Those of a `NumberKind` have a value in every row.
- `StringKind`: strings become codes of a code book that all such columns share; they follow.
- `Vector`: indices and values from the table, without an upper bound; they are the last ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.codebook import NO_OFFSETS, Codebook, Tokens
from streampgs.encoding.feature_names import Named
from streampgs.encoding.scales import LARGEST_NUMBER, factor
from streampgs.kernels.encoder_loop import merged_bags, side_by_side
from streampgs.options.commands import EncodingOptions

Arrays = dict[str, pa.Array]
"""The columns of some rows by name; fields of structs are inside their struct."""
Entries = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]
"""Row r has the indices and values from offsets[r] to offsets[r + 1]."""

LARGEST_FEATURE = 2**31 - 1
COMPACT, CURVES, BLOCK, HASHED, UNBOUNDED = range(5)


@dataclass(frozen=True)
class Column:
    """A source of features: first planned from the schema, then completed by what a sample shows."""

    name: str
    """A field of a struct has the struct's name and a dot in front."""
    kind: str
    holds: str
    """The type of its values: one of the words of `types`. It must be the same in every shard."""
    parts: tuple[str, ...] = ()
    """The names of the table's columns, if it is made of two."""
    width: int = 1
    """Features of a row, in the families with a fixed number."""
    centre: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    """value → (value − centre)·scale; empty: unchanged."""
    knots: tuple[tuple[float, ...], ...] = ()
    """Those of each of the parts, ascending; empty for a part that is a category."""
    null_flag: bool = False
    """The last feature is 1 where the value is null."""
    cyclic: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The table's columns that it is made of."""
        return self.parts or (self.name,)


@dataclass(frozen=True)
class RowMarks:
    """What encoding finds out about the rows of a batch."""

    faults: NDArray[np.uint8]
    """The reason if a row cannot be used; 0: none is known."""
    clipped: NDArray[np.uint8]
    """1 where a number of the row was clipped."""
    examples: dict[str, tuple[int, float]]
    """By column: the first row of the batch with a clipped value, and that value."""

    @staticmethod
    def of(rows: int) -> RowMarks:
        return RowMarks(np.zeros(rows, np.uint8), np.zeros(rows, np.uint8), {})

    def clip(
        self, column: str, numbers: NDArray[np.float64], given: NDArray[Any], rows: NDArray[np.int64] | None = None
    ) -> None:
        """Clip standardized numbers in place. `given`: the table's values; `rows`: the row of each entry (of each line of
        a matrix), if they are not numbered as in the batch. NaN and infinite values stay, as they are faults."""
        low, high = numbers.min(initial=0.0), numbers.max(initial=0.0)
        if low >= -LARGEST_NUMBER and high <= LARGEST_NUMBER:  # false for NaN
            return
        wild = (np.abs(numbers) > LARGEST_NUMBER) & np.isfinite(given)
        places = np.nonzero(wild)
        if not len(places[0]):
            return
        numbers[places] = np.copysign(LARGEST_NUMBER, numbers[places])
        marked = places[0] if rows is None else rows[places[0]]
        self.clipped[marked] = 1
        self.examples.setdefault(column, (int(marked[0]), float(given[places][0])))


class Kind:
    """One kind of column."""

    name: ClassVar[str]
    plural: ClassVar[str]
    section: ClassVar[int]
    """The order of features."""
    takes: ClassVar[tuple[str, ...]] = ()
    """The types of values for which it is the default."""
    option: ClassVar[str | None] = None
    """The field of EncodingOptions that names columns of this kind, the types that it allows, and the remedy if another
    type is found."""
    allowed: ClassVar[tuple[str, ...]] = ()
    remedy: ClassVar[str] = ""
    modifiers: ClassVar[dict[str, tuple[tuple[str, ...], str]]] = {}
    """More such options, which change how a column is encoded: the types that each needs one of, and the remedy."""
    fault: ClassVar[int | None] = None
    """The reason if a row cannot be encoded."""
    usual_work: ClassVar[float] = 2.0
    """See `work`."""
    of_others: ClassVar[bool] = False
    """Its columns are made of columns that are features themselves, and refuse what they refuse."""
    reads_dictionaries: ClassVar[bool] = False
    """Encoding is faster if the reader stores each different string once."""

    def combined(
        self, columns: list[Column], leaves: Mapping[str, pa.DataType], options: EncodingOptions
    ) -> list[Column]:
        """The planned columns, with those that this kind makes of several. `leaves`: the types of the table's columns."""
        return columns

    def fits(self, column: Column, holds: str | None) -> bool:
        """Whether a shard's column of this type can be encoded."""
        return holds in (column.holds, types.NULL)

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        """`alone`: the table has no other columns, whose scales could be compared with those of this one."""
        return column

    def work(self, options: EncodingOptions) -> float:
        """Bytes of memory for a byte of a column while it is encoded."""
        return self.usual_work

    def has_values(self, column: Column, sample: Sequence[Arrays]) -> bool:
        """Whether the sample shows anything but nulls."""
        return any(array.null_count < len(array) for name in column.sources for array in arrays_of(sample, name))

    def hints(self, column: Column, sample: Sequence[Arrays]) -> list[str]:
        """What the user may have overlooked."""
        return []

    def name_of(self, column: Column, place: int) -> str:
        """The name of a column's feature, counted from its first; not asked of strings."""
        return column.name


# In the classes below, a method that raises NotImplementedError is what each of their kinds writes for itself. They are not
# abstract for Python: kinds are found by these classes, and mypy refuses an abstract class as an argument. A cross has no
# `tokens`.


class FixedKind(Kind):
    """A fixed number of features."""


class NumberKind(FixedKind):
    """Each feature has a value in every row."""

    section = COMPACT
    """COMPACT: zeros have no entry in a sparse row; BLOCK: every value has one."""

    def fill(self, column: Column, array: pa.Array, out: NDArray[np.float32], marks: RowMarks) -> None:
        """Write out[row, place]."""
        raise NotImplementedError

    def values_per_row(self, column: Column) -> int:
        """How many of the features are scaled."""
        return column.width - column.null_flag


class StringKind(Kind):
    """Strings that become codes: a feature and a sign each."""

    section = HASHED
    between: ClassVar[str] = ": "
    """Between column and string in a feature's name."""
    has_rarity: ClassVar[bool] = False
    """Values are weighted by how rare a string is."""

    def tokens(self, column: Column, array: pa.Array, options: EncodingOptions) -> Iterator[Tokens]:
        """The strings of a column, some rows at a time."""
        raise NotImplementedError

    def keys(self, book: Codebook, column: Column, arrays: Arrays) -> Iterator[NDArray[np.uint64]]:
        """A key of 64 bits for each string of some rows."""
        array = types.leaf_if_there(arrays, column.name)
        if array is not None:
            yield from (book.keys(tokens) for tokens in self.tokens(column, array, book.options))

    def named(self, book: Codebook, column: Column, arrays: Arrays) -> Iterator[Named]:
        """The names of the features of some rows' strings."""
        array = types.leaf(arrays, column.name)
        prefix = f"{column.name}{self.between}"
        yield from (Named.of_tokens(book, tokens, prefix) for tokens in self.tokens(column, array, book.options))


class CodeKind(StringKind):
    """One string a row."""

    def codes(self, book: Codebook, column: Column, arrays: Arrays, kept: dict[str, Any]) -> NDArray[np.uint32]:
        """A code for each row. `kept` is the encoder's, for what can be used again in the next batch."""
        raise NotImplementedError


class BagKind(StringKind):
    """Any number of strings a row."""

    def bag(self, book: Codebook, column: Column, arrays: Arrays, marks: RowMarks) -> Entries:
        """The codes of each row's strings, with their numbers."""
        raise NotImplementedError


def arrays_of(sample: Sequence[Arrays], name: str) -> Iterator[pa.Array]:
    """The arrays of a column, from the batches that have it."""
    return (array for batch in sample if (array := types.leaf_if_there(batch, name)) is not None)


def row_count(batch: Arrays) -> int:
    return len(next(iter(batch.values())))


def scaled(
    column: Column,
    options: EncodingOptions,
    parts: Sequence[NDArray[np.float64]],
    sample: Sequence[Arrays],
    alone: bool,
) -> Column:
    """The column with one factor for all its values, if `--standardize` wants one, or if they are of another scale than
    other columns. `parts`: the values in the sample."""
    if options.standardize == "off" or (options.standardize == "auto" and alone):
        return column
    values = np.concatenate([np.empty(0), *parts])
    values = values[np.isfinite(values)]
    rows = sum(map(row_count, sample))
    found = factor(values, np.count_nonzero(values) / max(1, rows), options.standardize == "on")
    return column if found is None else replace(column, centre=(0.0,), scale=(found,))


def scaled_values(
    column: Column, values: NDArray[Any], given: NDArray[Any], offsets: NDArray[np.int64], marks: RowMarks
) -> NDArray[np.float32]:
    """The values of sparse rows, multiplied by the factor of the column."""
    with np.errstate(over="ignore", invalid="ignore"):
        if column.scale:
            values = np.multiply(values, column.scale[0], dtype=np.float64)
            marks.clip(column.name, values, given, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
        return values.astype(np.float32)


def is_there(column: Column, arrays: Arrays) -> bool:
    return all(types.leaf_if_there(arrays, name) is not None for name in column.sources)


def joined(parts: Sequence[Entries]) -> Entries:
    """In each row the entries of all parts; the values of equal features are added up."""
    if not parts:
        return NO_OFFSETS, np.empty(0, np.uint32), np.empty(0, np.float32)
    found = parts[0]
    for part in parts[1:]:
        found = side_by_side(*found, *part)
    return merged_bags(*found) if len(parts) > 1 else found


def stacked(parts: Sequence[Entries]) -> Entries:
    """The rows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(int(offsets[-1]) for offsets, _, _ in parts)])
    return (
        np.concatenate([np.zeros(1, np.int64), *(part[0][1:] + end for part, end in zip(parts, ends, strict=False))]),
        np.concatenate([np.empty(0, np.uint32), *(indices for _, indices, _ in parts)]),
        np.concatenate([np.empty(0, np.float32), *(values for _, _, values in parts)]),
    )


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern matches the name of a column; one that names a struct stands for all its fields."""
    return any(fnmatchcase(name, pattern) or name == pattern or name.startswith(pattern + ".") for pattern in patterns)
