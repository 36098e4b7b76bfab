"""The kinds of input that `streampgs pack` reads. A kind is one line here and one reader in `streampgs.packing.readers`.

Importing this module imports no reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from streampgs.packing.source import Shape, Source

_NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_SVMLIGHT = rb"\s*" + _NUMBER + rb"(?:\s+qid:\d+)?(?:\s+\d+:" + _NUMBER + rb")+\s*(?:#.*)?"
_VW = (
    rb"\s*" + _NUMBER + rb"(?:\s+" + _NUMBER + rb"){0,2}(?:\s+'?\S*?)?\s*\|[^\s|:]*(?::" + _NUMBER
    + rb")?(?:\s+[^\s|:]+:" + _NUMBER + rb")(?:\s.*)?"
)  # fmt: skip


Reader = Callable[["Source", "Shape"], Iterator["pa.RecordBatch"]]
"""Gives the rows of one file. The same file and options always give the same batches."""


@dataclass(frozen=True)
class Kind:
    reader: str
    """module:function in `streampgs.packing.readers`."""
    about: str
    """For --help."""
    endings: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    first_line: bytes = b""
    """A pattern that tells this kind from all others by the first line."""
    is_text: bool = True
    """Text may be compressed, and a column of mixed types is a column of strings."""

    def load(self) -> Reader:
        module, name = self.reader.split(":")
        reader: Any = getattr(import_module(f"streampgs.packing.readers.{module}"), name)
        return reader  # type: ignore[no-any-return]

    def starts_like(self, head: bytes, first_line: bytes) -> bool:
        return head.startswith(self.magic or (b"\0" * 99,)) or bool(
            self.first_line and re.fullmatch(self.first_line, first_line)
        )


KINDS = {
    "csv": Kind("csv_text:read_csv", "", (".csv",)),
    "tsv": Kind("csv_text:read_tsv", "", (".tsv", ".tab")),
    "jsonl": Kind("json_lines:read", "", (".jsonl", ".ndjson", ".json"), first_line=rb'\s*\{\s*(?:"|\}).*'),
    "svmlight": Kind("svmlight:read", "", (".svm", ".libsvm", ".svmlight"), first_line=_SVMLIGHT),
    "vw": Kind("vowpal_wabbit:read", "", (".vw",), first_line=_VW),
    "matrix": Kind("matrix:read", "lines of numbers"),
    "lines": Kind("lines:read", "lines of text"),
    "npz": Kind("numpy_files:read_npz", "", (".npz",), (b"PK\x03\x04",), is_text=False),
    "npy": Kind("numpy_files:read_npy", "", (".npy",), (b"\x93NUMPY",), is_text=False),
    "parquet": Kind("tables:read_parquet", "", (".parquet", ".pq"), (b"PAR1",), is_text=False),
    "arrow": Kind(
        "tables:read_arrow", "", (".arrow", ".arrows", ".ipc", ".feather"), (b"ARROW1", b"\xff" * 4), is_text=False
    ),
    "sql": Kind("sql:read", "a DuckDB query", is_text=False),
}
FILE_KINDS = {name: kind for name, kind in KINDS.items() if name != "sql"}


def help_text() -> str:
    """The kinds for --help: `csv, tsv, …, matrix (lines of numbers), …`."""
    return ", ".join(f"{name} ({kind.about})" if kind.about else name for name, kind in FILE_KINDS.items())
