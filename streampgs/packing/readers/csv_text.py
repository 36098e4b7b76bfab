"""CSV and TSV, read by pyarrow. The first block of a file decides the types; a later value of another type is an error."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streampgs.base.errors import DataError
from streampgs.packing import source as sources
from streampgs.packing.schemas import TYPES, joined_schema
from streampgs.packing.source import ByteStream, Source, opened

_USUAL_NULLS = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "#N/A", "\\N")
_LARGE_WHOLE = r"^[+-]?[0-9]{19,}$"
_NUMBER_WITH_COMMA = r"^\s*[+-]?[0-9]+,[0-9]+\s*$"
_PLAIN = {pa.time32("s"): pa.string(), pa.timestamp("s"): pa.timestamp("us"), pa.timestamp("ns"): pa.timestamp("us")}
_BAD_VALUE = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\S+): invalid value '(.*)'", re.DOTALL
)
_BAD_WIDTH = re.compile(r"Row #(\d+): E(xpected \d+ columns, got \d+.*)", re.DOTALL)


def _read(delimiter: str, source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    options = source.options
    types = _types(delimiter, source)
    if not types:
        return
    chosen = {name for name, _ in options.types}
    for name, kind in types.items():
        if name in schema.names and name not in chosen:
            known, found = (pa.schema([(name, each)]) for each in (schema.field(name).type, kind))
            types[name] = joined_schema(known, found, f"'{source.path}'").types[0]
    # An open quote at the end would swallow rows. It swallows this row of nulls, too.
    null = '""' if options.nulls is None else options.nulls[0]
    end = (options.delimiter or delimiter).join([null] * len(types)).encode() + b"\n"
    with opened(source, b"\n" + end, _Utf8) as stream, _named(source, list(types)):
        waiting = None
        for batch in _opened(delimiter, source, stream, types, partial(_skipped, source)):
            if not batch.num_rows:
                continue
            if waiting is not None:
                yield waiting
            waiting = batch
        last = [None] if waiting is None else waiting.slice(waiting.num_rows - 1).to_pylist()[0].values()
        if waiting is None or any(value is not None and value not in ("", null) for value in last):
            raise DataError(f"'{source.path}': a quote is never closed", "close it; write a quote in a value twice")
        yield waiting.slice(0, waiting.num_rows - 1)


read_csv = partial(_read, ",")
read_tsv = partial(_read, "\t")


class _Utf8(ByteStream):
    """A stream of UTF-8 only: pyarrow would notice other text late, and not name its line."""

    def __init__(self, source: Source, file: Any, end: bytes) -> None:
        super().__init__(source, file, end)
        self._path, self._line = source.path, 1
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self, count: int) -> bytes:
        data = super().read(count)
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._line + error.object.count(b"\n", 0, error.start)
            raise DataError(
                f"'{self._path}', line {line:,}: not UTF-8", "convert it, for example with iconv -f latin1 -t utf-8"
            ) from error
        self._line += data.count(b"\n")
        return data


def _skipped(source: Source, row: Any) -> str:
    if not source.options.skips_bad_rows:
        return "error"
    source.skipped["another number of columns than in the rows before"] += 1
    return "skip"


def _opened(delimiter: str, source: Source, stream: ByteStream, types: dict[str, pa.DataType], bad_row: Any) -> Any:
    options = source.options
    header: dict[str, Any] = {"skip_rows": options.skip_lines, "autogenerate_column_names": options.no_header}
    if options.names is not None:  # they replace the header
        header = {"column_names": list(options.names), "skip_rows": options.skip_lines + (not options.no_header)}
    return pa.csv.open_csv(
        pa.PythonFile(stream, mode="r"),
        read_options=pa.csv.ReadOptions(block_size=sources.CHUNK_BYTES, use_threads=False, **header),
        parse_options=pa.csv.ParseOptions(
            delimiter=options.delimiter or delimiter, newlines_in_values=True, invalid_row_handler=bad_row
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=types,
            null_values=_USUAL_NULLS if options.nulls is None else options.nulls,
            strings_can_be_null=options.nulls is not None,
        ),
    )


def _types(delimiter: str, source: Source) -> dict[str, pa.DataType]:
    """The type of each column, as the user chose it or as the first block shows; none if the file is empty."""
    first = _first_block(delimiter, source, {})
    if first is None:
        return {}
    names = first.schema.names
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"'{source.path}': two columns are called '{twice}'", "name the columns with `--names A,B,…`")
    unknown = next((name for name, _ in source.options.types if name not in names), None)
    if unknown is not None:
        raise DataError(
            f"'{source.path}' has no column '{unknown}'; its columns are {', '.join(names[:20])}", "correct --types"
        )
    types = {field.name: _PLAIN.get(field.type, field.type) for field in first.schema}
    types = {name: pa.timestamp("us", "UTC") if getattr(kind, "tz", None) else kind for name, kind in types.items()}
    types |= {name: TYPES[kind] for name, kind in source.options.types}
    texts = [name for name, kind in types.items() if pa.types.is_floating(kind) or pa.types.is_string(kind)]
    as_text: Any = _first_block(delimiter, source, dict.fromkeys(texts, pa.string()))
    for name in set(texts) - {name for name, _ in source.options.types}:
        cells = as_text.column(name).filter(pc.is_valid(first.column(name)))
        if pa.types.is_floating(types[name]) and pc.any(pc.match_substring_regex(cells, _LARGE_WHOLE)).as_py():
            types[name] = pa.string()  # doubles would make different numbers equal
        filled = cells.filter(pc.not_equal(cells, ""))
        if len(filled) and pc.all(pc.match_substring_regex(filled, _NUMBER_WITH_COMMA)).as_py():
            raise DataError(
                f"'{source.path}': column '{name}' holds numbers with commas, like {filled[0].as_py()!r}",
                f"write decimal points and no separators of thousands; or keep them as text with `--types {name}=string`",
            )
    return types


def _first_block(delimiter: str, source: Source, types: dict[str, pa.DataType]) -> pa.RecordBatch | None:
    probe = Source(source.path, source.options)
    with opened(probe, b"", _Utf8) as stream, _named(source, list(types)):
        try:
            reader = _opened(delimiter, probe, stream, types, lambda _: "skip")
            return next(iter(reader), None)
        except pa.ArrowInvalid as error:
            if str(error).startswith("Empty CSV file"):
                return None
            raise


@contextmanager
def _named(source: Source, names: list[str]) -> Iterator[None]:
    """Turn the errors of pyarrow into errors that name file, row and remedy."""
    path = source.path
    try:
        yield
    except pa.ArrowInvalid as error:
        text = str(error)
        value, width = _BAD_VALUE.search(text), _BAD_WIDTH.search(text)
        if value is not None:
            name = names[int(value[1])]
            found = (
                f"'{path}', row {int(value[2]):,}: the value {value[4]!r} of column '{name}' is not of type {value[3]}"
            )
            remedy = f"give the type of the column, such as `--types {name}=double` or `--types {name}=string`, or correct it"
        elif width is not None:
            found = f"'{path}', row {int(width[1]):,}: e{width[2]}"
            remedy = "give the right --delimiter, or leave such rows out with `--on-bad-row skip`"
        elif "straddling" in text or "block size" in text:
            found = f"'{path}': a row is longer than {sources.CHUNK_BYTES:,} bytes"
            remedy = "is it CSV? Look for a quote that is never closed"
        else:
            found, remedy = f"'{path}' cannot be read as CSV: {text}", "give its kind with --from, or fix it"
        raise DataError(found, remedy) from error
