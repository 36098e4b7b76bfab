"""Validate the catalog that is read back from a run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streampgs.base.checks import require
from streampgs.formats.registry import FORMATS
from streampgs.table.catalog import Catalog

_MOST_ROWS = 1 << 48


def check_columns(table: pa.Table) -> None:
    """They have the types that they are written with."""
    written = Catalog([]).to_table().schema
    for field in table.schema:
        if field.name in written.names:
            require(field.type == written.field(field.name).type, f"column '{field.name}' of type {field.type}")
            require(table.column(field.name).null_count == 0, f"nulls in column '{field.name}'")


def check_catalog(catalog: Catalog) -> None:
    """Rows and entries can be added up, and the shards fit together."""
    require(len(catalog.shards) > 0, "no shard")
    for shard in catalog.shards:
        require("\0" not in str(shard.path), f"a shard called {shard.path!s:.100}")
        require(shard.format in FORMATS, f"shard '{shard.path}' in an unknown format")
        require(len(shard.group_rows) == len(shard.group_entries), f"shard '{shard.path}' with groups of unknown size")
        require(len(shard.file_rows) in (0, len(shard.group_rows)), f"shard '{shard.path}' with groups of unknown size")
    for counts in (catalog.group_rows, catalog.group_entries):
        require(bool((counts >= 0).all()) and counts.sum(dtype=np.float64) < _MOST_ROWS, "groups of invalid sizes")
    catalog.check_agreement()
