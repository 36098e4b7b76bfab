"""What is read back of a run is of the kinds of values that were written, or the file is named that it stands in.

A seal keeps out accidents: a stranger can put one under anything. So what could ask for memory without bound, never end, or
have a compiled loop reach out of its arrays is looked at before it is used.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streampgs.checks import require, typed
from streampgs.formats.registry import FORMATS
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
