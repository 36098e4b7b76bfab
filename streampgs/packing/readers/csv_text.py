"""CSV and TSV. pyarrow splits the text into cells; the types are found here, from all rows and not from the first block."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streampgs.base.errors import DataError
from streampgs.packing import source as sources
from streampgs.packing.schemas import TYPES
from streampgs.packing.source import ByteStream, Shape, Source, opened

_USUAL_NULLS = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "#N/A", "\\N")
_TRUE, _FALSE = pa.array(["true", "True", "TRUE"]), pa.array(["false", "False", "FALSE"])
_TRIED = (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
_WHOLE_NUMBER = r"^[+-]?[0-9]+$"
_NUMBER_WITH_COMMA = r"^\s*[+-]?[0-9]+,[0-9]+\s*$"
_ORDER_MARK = "\ufeff"
_WIDTH_DIFFERS = "another number of columns than in the rows before"
_END = "\x1e"
"""Every cell of a row that is added at the end: an open quote would swallow it."""


def _read(delimiter: str, source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    options = source.options
    parsing: dict[str, Any] = {"delimiter": options.delimiter or delimiter, "newlines_in_values": True}
    names = _names(source, parsing)
    if not names:
        return
    if options.skips_bad_rows:
        parsing["invalid_row_handler"] = partial(_skip_row, source)
    has_header = options.names is None and not options.no_header
    types = {name: TYPES[kind] for name, kind in options.types}
    end_row = parsing["delimiter"].join([_END] * len(names)).encode() + b"\n"
    row, waiting = 1 + options.skip_lines + (not options.no_header), None  # as pyarrow counts
    with opened(source) as stream:
        for batch in _texts(source, stream, parsing, end_row, names):
            if waiting is not None:
                yield _typed(source, _of_one_file(source, waiting, has_header, row), types, shape, row)
                row += waiting.num_rows
            waiting = batch
        if waiting is None or not waiting.num_rows or waiting.column(0)[-1].as_py() != _END:
            text = waiting.column(len(names) - 1)[-1].as_py() if waiting is not None and waiting.num_rows else ""
            source.refuse(
                "a quote is never closed",
                f"row {row + (waiting.num_rows if waiting is not None else 0) - 1:,}",
                text.partition(_END)[0].encode(),
                "close it, or write a quote inside a value twice",
            )
        last = _of_one_file(source, waiting.slice(0, waiting.num_rows - 1), has_header, row)
        yield _typed(source, last, types, shape, row)


read_csv = partial(_read, ",")
read_tsv = partial(_read, "\t")


class _Utf8:
    """A stream of UTF-8 only: pyarrow would notice other text late, and not name its line."""

    def __init__(self, stream: ByteStream, source: Source, end: bytes = b"") -> None:
        self._stream, self._source, self._end = stream, source, end
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line, self._last = 1, b""
        self.closed = False

    def read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if b"\0" in data:
            before = data[: data.index(b"\0")]
            self._source.refuse(
                "a NUL byte",
                f"line {self._line + _breaks(before):,}",
                before.rpartition(b"\n")[2] + b"\0",
                "fetch or write the file again; if they are meant, remove them with tr -d '\\000'",
            )
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            before = error.object[: error.start]
            self._source.refuse(
                "not UTF-8",
                f"line {self._line + _breaks(before):,}",
                before.rpartition(b"\n")[2] + error.object[error.start : error.end],
                "convert the file, for example with iconv -f latin1 -t utf-8",
            )
        if not data and not self._stream.closed:
            data, self._end = (b"" if self._last in (b"", b"\n") else b"\n") * bool(self._end) + self._end, b""
        self._line += _breaks(data)
        self._last = data[-1:] or self._last
        return data

    def close(self) -> None:
        self.closed = True


def _breaks(data: bytes) -> int:
    return data.count(b"\n")


def _opened(source: Source, stream: ByteStream, parsing: dict[str, Any], end: bytes, names: list[str]) -> Any:
    options = source.options
    header: dict[str, Any] = {"skip_rows": options.skip_lines, "autogenerate_column_names": options.no_header}
    if options.names is not None:  # they replace the header
        header = {"column_names": list(options.names), "skip_rows": options.skip_lines + (not options.no_header)}
    return pa.csv.open_csv(
        pa.PythonFile(_Utf8(stream, source, end), mode="r"),
        read_options=pa.csv.ReadOptions(block_size=sources.CHUNK_BYTES, use_threads=False, **header),
        parse_options=pa.csv.ParseOptions(**parsing),
        convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), null_values=[]),
    )


def _texts(
    source: Source, stream: ByteStream, parsing: dict[str, Any], end: bytes, names: list[str]
) -> Iterator[pa.RecordBatch]:
    """All columns as strings."""
    try:
        yield from _opened(source, stream, parsing, end, names)
    except pa.ArrowInvalid as error:
        raise _refused(source, str(error)) from error


def _refused(source: Source, text: str) -> DataError:
    width = re.search(r"Row #(\d+): E(xpected \d+ columns, got \d+.*)", text, re.DOTALL)
    if width is not None:
        remedy = "give the right --delimiter, or leave such rows out with `--on-bad-row skip`"
        return DataError(f"'{source.path}', row {int(width[1]):,}: e{width[2]}", remedy)
    if "straddling" in text or "block size" in text:
        remedy = "is it CSV? Look for a quote that is never closed"
        return DataError(f"'{source.path}': a row is longer than {sources.CHUNK_BYTES:,} bytes", remedy)
    return DataError(f"'{source.path}' cannot be read as CSV: {text}", "give its kind with --from, or fix it")


def _names(source: Source, parsing: dict[str, Any]) -> list[str]:
    """The names of the columns; none if the file is empty."""
    probe = Source(source.path, source.options)
    with opened(probe) as stream:
        try:
            reader = _opened(probe, stream, {**parsing, "invalid_row_handler": lambda _: "skip"}, b"", [])
        except pa.ArrowInvalid as error:
            if str(error).startswith("Empty CSV file"):
                return []
            raise _refused(source, str(error)) from error
        names: list[str] = list(source.options.names or reader.schema.names)
        reader.close()
    if len(names) == 1 and re.fullmatch("sep=.", names[0]):
        raise DataError(
            f"'{source.path}' begins with the line '{names[0]}'", f"give `--skip-lines 1 --delimiter '{names[0][-1]}'`"
        )
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"'{source.path}': two columns are called '{twice}'", "name the columns with `--names A,B,…`")
    unknown = next((name for name, _ in source.options.types if name not in names), None)
    if unknown is not None:
        raise DataError(
            f"'{source.path}' has no column '{unknown}'; its columns are {', '.join(names[:20])}", "correct --types"
        )
    return names


def _of_one_file(source: Source, texts: pa.RecordBatch, has_header: bool, first_row: int) -> pa.RecordBatch:
    """Without the traces of several files that were joined: byte order marks and repeated headers."""
    marked = pc.starts_with(texts.column(0), _ORDER_MARK)
    texts = _without(source, texts, marked, "a byte order mark, as where two files were joined", first_row)
    if has_header and texts.num_columns > 1:
        repeated = pc.equal(texts.column(0), texts.schema.names[0])
        for name, cells in zip(texts.schema.names[1:], texts.columns[1:], strict=True):
            if not pc.any(repeated).as_py():
                return texts
            repeated = pc.and_(repeated, pc.equal(cells, name))
        texts = _without(source, texts, repeated, "the header again, as where two files were joined", first_row)
    return texts


def _without(source: Source, texts: pa.RecordBatch, bad: pa.Array, reason: str, first_row: int) -> pa.RecordBatch:
    if not pc.any(bad).as_py():
        return texts
    place = pc.index(bad, True).as_py()
    source.bad_rows(reason, f"row {first_row + place:,}", texts.column(0)[place].as_py().encode(), pc.sum(bad).as_py())
    return texts.filter(pc.invert(bad))


def _skip_row(source: Source, row: Any) -> str:
    source.skipped[_WIDTH_DIFFERS] += 1
    return "skip"


def _typed(
    source: Source, texts: pa.RecordBatch, types: dict[str, pa.DataType], shape: Shape, first_row: int
) -> pa.RecordBatch:
    nulls = pa.array(source.options.nulls if source.options.nulls is not None else _USUAL_NULLS, pa.string())
    for name, kind in types.items():
        cells = texts.column(name)
        if _cast(cells, kind, nulls) is None:
            fits = _fits(cells, kind, nulls)
            bad = pc.index(fits, False).as_py()
            rows = len(cells) - pc.sum(fits).as_py()
            reason = f"a value of '{name}' is not of type {_name_of(kind)}"
            source.bad_rows(reason, f"row {first_row + bad:,}", cells[bad].as_py().encode(), rows)
            texts = texts.filter(fits)
    strings_have_nulls = source.options.nulls is not None
    columns = []
    for name, cells in zip(texts.schema.names, texts.columns, strict=True):
        column = _column(cells, types.get(name) or shape.type_of(name), nulls)
        if column is None:
            if (types.get(name) or shape.type_of(name)) is None:
                _refuse_decimal_commas(source, name, _with_nulls(cells, nulls))
            column = _with_nulls(cells, nulls) if strings_have_nulls else cells
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=texts.schema.names)


def _refuse_decimal_commas(source: Source, name: str, cells: pa.Array) -> None:
    """A column of such numbers would silently be one of categories."""
    if pc.all(pc.match_substring_regex(cells, _NUMBER_WITH_COMMA)).as_py():
        raise DataError(
            f"'{source.path}': column '{name}' holds numbers with commas, like {cells.drop_null()[0].as_py()!r}",
            f"write decimal points and no separators of thousands; or keep them as text with `--types {name}=string`",
        )


def _name_of(kind: pa.DataType) -> str:
    return next(name for name, known in TYPES.items() if known == kind)


def _column(cells: pa.Array, known: pa.DataType | None, nulls: pa.Array) -> pa.Array | None:
    """The cells under the first type that all fit, `known` before others; None: strings."""
    if known == pa.string():
        return None
    if known is not None and not pa.types.is_null(known):
        column = _cast(cells, known, nulls)
        if column is not None:
            return column
    if _with_nulls(cells, nulls).null_count == len(cells):
        return pa.nulls(len(cells))
    return next((column for kind in _TRIED if (column := _cast(cells, kind, nulls)) is not None), None)


def _with_nulls(cells: pa.Array, nulls: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_in(cells, value_set=nulls), pa.scalar(None, pa.string()), cells)


def _cast(cells: pa.Array, kind: pa.DataType, nulls: pa.Array) -> pa.Array | None:
    """None if a cell is not of the type."""
    if kind == pa.string():
        return cells
    forms: list[Callable[[], pa.Array]] = [
        lambda: cells,
        lambda: _with_nulls(cells, nulls),
        lambda: pc.ascii_trim_whitespace(_with_nulls(cells, nulls)),
    ]
    for form in forms:
        texts = form()
        try:
            if not pa.types.is_boolean(kind):
                found = texts.cast(kind)
                return None if kind == pa.float64() and _are_large_integers(found, texts) else found
            yes = pc.is_in(texts, value_set=_TRUE)
            known = pc.or_(yes, pc.or_(pc.is_in(texts, value_set=_FALSE), texts.is_null()))
            if pc.all(known).as_py() is not False:
                return pc.if_else(texts.is_null(), pa.scalar(None, pa.bool_()), yes)
        except pa.ArrowInvalid:
            continue
    return None


def _are_large_integers(numbers: pa.Array, texts: pa.Array) -> bool:
    """Whether these are whole numbers that int64 does not hold: as doubles, different ones would become equal."""
    if not pc.any(pc.greater_equal(pc.abs(numbers), 2.0**63)).as_py():
        return False
    return bool(pc.all(pc.match_substring_regex(texts, _WHOLE_NUMBER)).as_py())


def _fits(cells: pa.Array, kind: pa.DataType, nulls: pa.Array) -> pa.Array:
    """Whether each cell is of the type, by halves: bad ones are few."""
    good = _cast(cells, kind, nulls) is not None
    if good or len(cells) == 1:
        return pa.array([good] * len(cells), pa.bool_())
    half = len(cells) // 2
    return pa.concat_arrays([_fits(cells.slice(0, half), kind, nulls), _fits(cells.slice(half), kind, nulls)])
