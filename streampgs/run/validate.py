"""What is read back of a run is of the kinds of values that were written, or the file is named that it stands in.

A seal keeps out accidents: a stranger can put one under anything. So what could ask for memory without bound, never end, or
have a compiled loop reach out of its arrays is looked at before it is used.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streampgs.checks import require, typed
from streampgs.encoding.encoding import HASHED, EncodedColumn, Encoding, number_width
from streampgs.encoding.plan import LIST, NUMBER, VECTOR
from streampgs.formats.registry import FORMATS
from streampgs.options import MOST_HASH_BITS
from streampgs.order.cursor import MOST_COPIES, Cursor
from streampgs.table.catalog import Catalog

_LARGEST = 1 << 62
_MOST_ROWS = 1 << 48
_MOST_LANES = 1 << 20
_LARGEST_FEATURE = (1 << 31) - 1


def check_columns(table: pa.Table) -> None:
    """The columns of a catalog are of the types that they are written in."""
    written = Catalog([]).to_table().schema
    for field in table.schema:
        if field.name in written.names:
            require(field.type == written.field(field.name).type, f"column '{field.name}' of type {field.type}")
            require(table.column(field.name).null_count == 0, f"nulls in column '{field.name}'")


def check_catalog(catalog: Catalog) -> None:
    """Rows and entries can be added up, and the shards are of one kind."""
    require(len(catalog.shards) > 0, "no shard")
    for layout in {shard.layout for shard in catalog.shards}:
        typed(layout)
    for shard in catalog.shards:
        require("\0" not in str(shard.path), f"a shard called {shard.path!s:.100}")
        require(shard.format in FORMATS or shard.format == "stream", f"shard '{shard.path}' in an unknown format")
        require(len(shard.group_rows) == len(shard.group_entries), f"shard '{shard.path}' with groups of unknown size")
    for counts in (catalog.group_rows, catalog.group_entries):
        require(bool((counts >= 0).all()) and counts.sum(dtype=np.float64) < _MOST_ROWS, "groups of impossible sizes")
    catalog.check_agreement()


def check_cursor(cursor: Cursor, catalog: Catalog) -> None:
    """It speaks of the shards that the catalog has, in the order of their coming."""
    typed(cursor)
    require(min(cursor.epoch, cursor.part, cursor.position, cursor.slice, cursor.row) >= 0, f"place {cursor.place}")
    require(len(cursor.arrivals) > 0, "no arrival of shards")
    places = [arrival.place for arrival in cursor.arrivals]
    # They need not be in order: what came when an epoch was over may belong to it, and what came before to the next.
    require(min(map(min, places)) >= 0, "arrivals at no place")
    require(places[0] <= cursor.place, "a place before the first arrival")
    known = 0
    for arrival in cursor.arrivals:
        require(known <= arrival.shards <= len(catalog.shards), f"an arrival of shards up to {arrival.shards}")
        require(arrival.groups == int(catalog.shard_starts[arrival.shards]), f"an arrival of {arrival.groups} groups")
        require(1 <= arrival.copies <= MOST_COPIES and 0 <= arrival.since <= arrival.groups, "an arrival of too much")
        for first, stop in arrival.retired:
            require(0 <= first <= stop <= arrival.groups, f"retired groups {first} to {stop}")
        known = arrival.shards


# Only what the loops rely on is looked at of an encoding; its names and texts are anything.


def check_encoding(encoding: Encoding) -> None:
    """Of one generation; the one before was looked at when it was read."""
    typed(encoding)
    require(1 <= encoding.hash_bits <= MOST_HASH_BITS, f"{encoding.hash_bits} bits of hashes")
    first = 0
    for kind in (NUMBER, LIST):
        for column in encoding.columns:
            if column.kind == kind:
                first = _check_numbers(column, first)
        require(kind == LIST or encoding.numbers == first, f"{encoding.numbers} features of columns of numbers")
    hashed = any(column.kind in HASHED for column in encoding.columns)
    vectors = any(column.kind == VECTOR for column in encoding.columns)
    size = len(encoding.words) + encoding.hash_mask + 1 if hashed else 0
    require(encoding.hashed_first == first, f"categories from feature {encoding.hashed_first} on")
    require(encoding.unbounded_first == first + size <= _LARGEST_FEATURE, f"{encoding.unbounded_first} features")
    require(encoding.dense <= (not hashed and not vectors), "dense rows where there are none")
    known = {NUMBER, LIST, VECTOR, *HASHED}
    for column in encoding.columns:
        require(column.kind in known, f"a column of kind {column.kind!r:.100}")
        require(column.kind != VECTOR or column.first == encoding.unbounded_first, "a vector in the wrong place")
    sizes = (encoding.entries_per_row, encoding.tokens_per_row, encoding.bytes_per_row)
    require(all(0.0 <= size < _LARGEST for size in sizes), f"rows of sizes {sizes}")
    _check_arrays(encoding, size)


def _check_numbers(column: EncodedColumn, first: int) -> int:
    """The feature behind the column's."""
    if column.kind == NUMBER:
        width = number_width(column.cyclic, column.null_flag)
        require(column.width == width, f"column '{column.name}' of {column.width} features")
    require(column.first == first and 0 < column.width < _LARGEST_FEATURE, f"column '{column.name}' in the wrong place")
    each = column.width - column.null_flag if column.kind == LIST else 1
    for numbers in (column.centre, column.scale):
        require(len(numbers) in (0, each), f"column '{column.name}' with {len(numbers)} scales")
    return first + column.width


def _check_arrays(encoding: Encoding, size: int) -> None:
    for array, kind in ((encoding.words, np.uint64), (encoding.named, np.int64), (encoding.signs, np.int8)):
        require(array.ndim == 1 and array.dtype == kind, f"numbers of type {array.dtype} and not {np.dtype(kind)}")
    for name, rarity in encoding.rarities.items():
        sound = rarity.dtype == np.float32 and len(rarity) == size and bool(np.isfinite(rarity).all())
        require(sound, f"rarities of column '{name}' that do not fit")
    require(len(encoding.named) == len(encoding.names) == len(encoding.signs), "names that do not fit")
