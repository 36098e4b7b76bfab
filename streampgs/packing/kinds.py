"""The kinds of input that `streampgs pack` reads. A kind is one line here and one reader in `streampgs.packing.readers`.

Importing this module imports no reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from streampgs.packing.source import Source

Reader = Callable[["Source", "pa.Schema"], Iterator["pa.RecordBatch"]]
"""Gives the rows of one file, under the types of the schema so far where it can. The same file, options and schema always
give the same batches."""


@dataclass(frozen=True)
class Kind:
    reader: str
    """module:function in `streampgs.packing.readers`."""
    endings: tuple[str, ...] = ()
    is_text: bool = True
    """Text may be compressed."""

    def load(self) -> Reader:
        module, name = self.reader.split(":")
        reader: Any = getattr(import_module(f"streampgs.packing.readers.{module}"), name)
        return reader  # type: ignore[no-any-return]


KINDS = {
    "csv": Kind("csv_text:read_csv", (".csv",)),
    "tsv": Kind("csv_text:read_tsv", (".tsv", ".tab")),
    "jsonl": Kind("lines:read_json", (".jsonl", ".ndjson", ".json")),
    "svmlight": Kind("svmlight:read", (".svm", ".libsvm", ".svmlight")),
    "vw": Kind("vowpal_wabbit:read", (".vw",)),
    "lines": Kind("lines:read_text"),
    "npz": Kind("numpy_files:read_npz", (".npz",), is_text=False),
    "npy": Kind("numpy_files:read_npy", (".npy",), is_text=False),
    "parquet": Kind("tables:read_parquet", (".parquet", ".pq"), is_text=False),
    "arrow": Kind("tables:read_arrow", (".arrow", ".arrows", ".ipc", ".feather"), is_text=False),
}
