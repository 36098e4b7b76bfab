"""The result of a query: DuckDB reads the files, filters, joins and computes; what comes out is packed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streampgs.errors import DataError, OptionError
from streampgs.packing.arrow_tables import slices_of
from streampgs.packing.byte_streams import Advance
from streampgs.packing.pieces import Piece, Shape

_BATCH_ROWS = 1 << 13


class SqlReader:
    """Of a file that holds a query. One thread works on it, for the order of the rows must be the same every time."""

    as_text = False

    def __init__(self, path: Path, memory: int) -> None:
        self.path = path
        self._memory = memory

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        duckdb = _duckdb()
        query = self.path.read_text()
        spill = self.path.with_name(".query-spill")
        config = {"threads": "1", "memory_limit": f"{self._memory // 2 >> 10}KiB", "temp_directory": str(spill)}
        try:
            with duckdb.connect(":memory:", config=config) as connection:
                relation = connection.sql(query)
                if relation is None:
                    raise OptionError("the query gives no rows", "write a SELECT")
                offset = 0
                for batch in relation.to_arrow_reader(_BATCH_ROWS):
                    for piece in slices_of(batch, (), offset):
                        offset += piece.batch.num_rows
                        yield piece
        except duckdb.OutOfMemoryException as error:
            raise DataError(
                f"the query needs more than the {self._memory / 2e6:,.0f} MB that are for it: half of --memory",
                "give more --memory, or a query that groups and joins less at a time",
            ) from error
        except duckdb.Error as error:
            raise DataError(f"the query failed: {error}", "mend it; `duckdb` tries it out quickly") from error
        advance(self.path.stat().st_size)


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise OptionError("--sql needs DuckDB", "install it: pip install 'streampgs[sql]'") from error
    return duckdb
