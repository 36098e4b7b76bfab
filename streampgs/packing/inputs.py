"""From what a user names to readers: which files, what kind each is, and which columns are set for it."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streampgs.errors import DataError, OptionError
from streampgs.packing.arrow_tables import ArrowReader, ParquetReader
from streampgs.packing.byte_streams import COMPRESSIONS, compression_of, first_bytes
from streampgs.packing.csv_text import CsvReader
from streampgs.packing.json_lines import JsonReader
from streampgs.packing.numpy_files import NpyReader, NpzReader
from streampgs.packing.options import KINDS, PackOptions
from streampgs.packing.pieces import Reader
from streampgs.packing.sql import SqlReader
from streampgs.packing.text import LinesReader, MatrixReader, SvmlightReader, VowpalWabbitReader

_ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".vw": "vw",
    ".npz": "npz",
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
_HEADS = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}
_SNIFFED_BYTES = 1 << 16
_NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_FIRST_LINES = {
    "svmlight": re.compile(rb"\s*" + _NUMBER + rb"(?:\s+qid:\d+)?(?:\s+\d+:" + _NUMBER + rb")+\s*(?:#.*)?"),
    "vw": re.compile(
        rb"\s*" + _NUMBER + rb"(?:\s+" + _NUMBER + rb"){0,2}(?:\s+'?\S*?)?\s*\|[^\s|:]*(?::" + _NUMBER + rb")?(?:\s+[^\s|:]+:"
        + _NUMBER + rb")(?:\s.*)?"
    ),
    "jsonl": re.compile(rb'\s*\{\s*(?:"|\}).*'),
}  # fmt: skip
_BINARY = ("npz", "npy", "parquet", "arrow")
_SETS = re.compile(r"^(.*)::([^:/=]+=.*)$", re.DOTALL)

Value = int | float | bool | str


@dataclass(frozen=True)
class Input:
    path: Path
    kind: str
    sets: tuple[tuple[str, Value], ...] = ()
    """Columns with the same value in all its rows."""

    def reader(self, options: PackOptions) -> Reader:
        reader: Reader = _READERS[self.kind](self.path, options)
        return reader

    def to_json(self) -> dict[str, Any]:
        status = self.path.stat()
        return {
            "path": str(self.path),
            "kind": self.kind,
            "sets": [list(pair) for pair in self.sets],
            "size": status.st_size,
            "modified_ns": status.st_mtime_ns,
        }


_READERS: dict[str, Any] = {
    "csv": lambda path, options: CsvReader(path, options, ","),
    "tsv": lambda path, options: CsvReader(path, options, "\t"),
    "jsonl": JsonReader,
    "svmlight": SvmlightReader,
    "vw": VowpalWabbitReader,
    "matrix": MatrixReader,
    "lines": LinesReader,
    "npz": lambda path, options: NpzReader(path, options.memory),
    "npy": lambda path, options: NpyReader(path, options.memory),
    "parquet": lambda path, _: ParquetReader(path),
    "arrow": lambda path, _: ArrowReader(path),
    "sql": lambda path, options: SqlReader(path, options.memory),
}
assert set(_READERS) == set(KINDS)


def find_inputs(sources: Iterable[str], out: Path, kind: str | None) -> tuple[list[Input], list[Path]]:
    """The files in the order of the sources, those of a folder or pattern by name; and files that were passed over."""
    inputs: list[Input] = []
    passed: list[Path] = []
    for source in sources:
        name, sets = _with_sets(source)
        found = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))
        found = [match for match in found if out not in (_absolute(match), *_absolute(match).parents)]
        if not found:
            raise DataError(
                f"'{name}' does not exist" if not glob.has_magic(name) else f"nothing matches '{name}'",
                "name files, folders, or patterns in quotes, other than the folder that is packed into",
            )
        for path in map(_absolute, found):
            if not path.is_dir():
                inputs.append(Input(path, _checked(path, kind or _kind(path)), sets))
                continue
            for file in _files_below(path, out):
                told = kind or _kind_by_name(file)
                if told is None:
                    passed.append(file)
                else:
                    inputs.append(Input(file, _checked(file, told), sets))
    if not inputs:
        named = f" ({passed[0].name} and others say nothing by their names)" if passed else ""
        raise DataError(
            f"there are no files to pack{named}", "name files, or say with --from what those in the folder are"
        )
    return inputs, passed


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))


def _with_sets(source: str) -> tuple[str, tuple[tuple[str, Value], ...]]:
    """'FILE::name=value,…': the file and the columns."""
    match = None if os.path.exists(source) else _SETS.match(source)
    if match is None:
        return source, ()
    pairs = [part.partition("=") for part in match.group(2).split(",")]
    wrong = next((part for part in pairs if not part[0] or not part[1]), None)
    if wrong is not None:
        raise OptionError(f"'{source}' sets a column without a value", "write FILE::name=value,other=value")
    return match.group(1), tuple((name, _value(text)) for name, _, text in pairs)


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _files_below(folder: Path, out: Path) -> list[Path]:
    """All but hidden ones, markers, and what was packed before into a folder inside it."""
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")) and Path(here) / name != out)
        found += [Path(here) / name for name in names if not name.startswith((".", "_"))]
    return sorted(found)


def _kind_by_name(path: Path) -> str | None:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return _ENDINGS.get(plain.suffix.lower())


def _kind(path: Path) -> str:
    kind = _kind_by_name(path) or _kind_by_content(path)
    if kind is None:
        raise DataError(
            f"'{path}': neither its name nor its first line tells what it is",
            f"say so with --from {'|'.join(KINDS)}",
        )
    return kind


def _kind_by_content(path: Path) -> str | None:
    head = first_bytes(path, _SNIFFED_BYTES)
    for magic, kind in _HEADS.items():
        if head.startswith(magic):
            return kind
    lines = [line for line in head.split(b"\n")[:100] if line.strip()]
    # A line that was cut off may still tell: its last word alone is in doubt.
    first = lines[0] if lines else b""
    if len(lines) == 1 and len(head) == _SNIFFED_BYTES:
        first = first.rpartition(b" ")[0]
    return next((kind for kind, pattern in _FIRST_LINES.items() if pattern.fullmatch(first)), None)


def _checked(path: Path, kind: str) -> str:
    if kind in _BINARY and compression_of(path) is not None:
        raise DataError(f"'{path}' is a compressed {kind} file", f"decompress it: {kind} files are read from within")
    return kind
