"""The result of a query: DuckDB reads the files, filters, joins and computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.base.files import read_whole
from streampgs.packing.readers.tables import plain_slices
from streampgs.packing.source import SPILL, Shape, Source

LONGEST_QUERY = 1 << 20
_BATCH_ROWS = 1 << 13


def read(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    """Of a file that holds the query. One thread, so that the rows have the same order every time."""
    duckdb = _duckdb()
    memory = source.options.memory // 2
    spill = source.path.with_name(SPILL)
    config = {"threads": "1", "memory_limit": f"{memory >> 10}KiB", "temp_directory": str(spill)}
    try:
        with duckdb.connect(":memory:", config=config) as connection:
            relation = connection.sql(read_whole(source.path, LONGEST_QUERY).decode())
            if relation is None:
                raise OptionError("the query gives no rows", "write a SELECT")
            for batch in relation.to_arrow_reader(_BATCH_ROWS):
                yield from plain_slices(batch)
    except duckdb.OutOfMemoryException as error:
        raise DataError(
            f"the query needs more than its {memory / 1e6:,.0f} MB, half of --memory",
            "give more --memory, or write a query that groups and joins less at a time",
        ) from error
    except duckdb.Error as error:
        words = " ".join(str(error).split())
        raise DataError(f"the query failed: {words}", "fix it; the duckdb shell is a quick way to try it") from error


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise OptionError("--sql needs DuckDB", "install it: pip install 'streampgs[sql]'") from error
    return duckdb
