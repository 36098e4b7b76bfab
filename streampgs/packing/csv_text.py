"""CSV and TSV. pyarrow splits the text into columns; which types they are is found here, from all rows and not from the
first ones alone."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streampgs.errors import DataError
from streampgs.packing.byte_streams import Advance, ByteStream, opened
from streampgs.packing.options import PackOptions
from streampgs.packing.pieces import Piece, Shape
from streampgs.packing.schemas import TYPES
from streampgs.packing.text import bad_row

_BLOCK_BYTES = 1 << 22
_USUAL_NULLS = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "#N/A", "\\N")
_TRUE, _FALSE = pa.array(["true", "True", "TRUE"]), pa.array(["false", "False", "FALSE"])
_TRIED = (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"))
_WIDTH_DIFFERS = "another number of columns than in the rows before"


class _Utf8:
    """A stream of nothing but UTF-8: pyarrow would tell of the rest late, and not where it is."""

    def __init__(self, stream: ByteStream, path: Path) -> None:
        self._stream, self._path = stream, path
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        data = self._stream.read(count)
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            before = error.object[: error.start]
            line = self._line + before.count(b"\n")
            raise bad_row(
                self._path,
                line,
                "not UTF-8",
                before.rpartition(b"\n")[2] + error.object[error.start : error.end],
                "convert the file, for example with iconv -f latin1 -t utf-8",
            ) from error
        self._line += data.count(b"\n")
        return data

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class _Unfit(Exception):
    """Values that are not of the type that was asked for: whether each is."""

    def __init__(self, fits: pa.Array) -> None:
        self.fits = fits


def _as_type(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """None if some text is of another type."""
    try:
        if pa.types.is_boolean(kind):
            yes = pc.is_in(texts, value_set=_TRUE)
            known = pc.or_(yes, pc.is_in(texts, value_set=_FALSE))
            if pc.all(pc.or_(known, texts.is_null())).as_py() is False:
                return None
            return pc.if_else(texts.is_null(), pa.scalar(None, pa.bool_()), yes)
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None


class CsvReader:
    as_text = True

    def __init__(self, path: Path, options: PackOptions, delimiter: str) -> None:
        self.path = path
        self._options = options
        self._delimiter = options.delimiter or delimiter
        self._types = {name: TYPES[kind] for name, kind in options.types}
        self._nulls = pa.array(options.nulls if options.nulls is not None else _USUAL_NULLS, pa.string())
        self._bad_widths = 0

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        # Rows that are left out for their types do not count, so they must be known before any can be passed over.
        counted_as_they_come = not (self._types and self._options.skips_bad_rows)
        with opened(self.path, advance) as stream:
            if stream.size == 0:
                return
            offset = 0
            for raw in self._raw_batches(stream):
                faults: dict[str, int] = {}
                if offset + raw.num_rows > skip or not counted_as_they_come:
                    raw, faults = self._converted(raw, shape)
                if self._bad_widths:
                    faults[_WIDTH_DIFFERS], self._bad_widths = self._bad_widths, 0
                yield Piece(raw, (), offset, faults)
                offset += raw.num_rows

    def _raw_batches(self, stream: Any) -> Iterator[pa.RecordBatch]:
        """All columns as the text that stands there."""
        options = self._options
        reading: dict[str, Any] = {
            "block_size": _BLOCK_BYTES,
            "skip_rows": options.skip_lines,
            "use_threads": False,
        }
        if options.names is not None:
            # A header that is there is replaced by the names.
            reading |= {"column_names": list(options.names), "skip_rows": options.skip_lines + options.header}
        else:
            reading |= {"autogenerate_column_names": not options.header}
        parsing: dict[str, Any] = {"delimiter": self._delimiter, "newlines_in_values": True}
        if options.skips_bad_rows:
            parsing["invalid_row_handler"] = self._skip_row
        try:
            names = options.names or self._names(reading, parsing)
            texts = pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=options.nulls is not None,
                null_values=list(options.nulls or ()),
            )
            yield from pa.csv.open_csv(
                pa.PythonFile(_Utf8(stream, self.path), mode="r"),
                read_options=pa.csv.ReadOptions(**reading),
                parse_options=pa.csv.ParseOptions(**parsing),
                convert_options=texts,
            )
        except pa.ArrowInvalid as error:
            if not str(error).startswith("Empty CSV file"):
                raise self._refused(error) from error

    def _names(self, reading: dict[str, Any], parsing: dict[str, Any]) -> list[str]:
        """Of the columns, by the first rows."""
        with opened(self.path, lambda _: None) as stream:
            reader = pa.csv.open_csv(
                pa.PythonFile(_Utf8(stream, self.path), mode="r"),
                read_options=pa.csv.ReadOptions(**reading),
                parse_options=pa.csv.ParseOptions(**{**parsing, "invalid_row_handler": lambda _: "skip"}),
            )
            names: list[str] = reader.schema.names
            reader.close()
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"'{self.path}': two columns are called '{twice}'", "name the columns with --names A,B,…")
        unknown = [name for name in self._types if name not in names]
        if unknown:
            raise DataError(
                f"'{self.path}' has no column '{unknown[0]}'; its columns are {', '.join(names[:20])}",
                "correct --types",
            )
        return names

    def _skip_row(self, row: Any) -> str:
        self._bad_widths += 1
        return "skip"

    def _refused(self, error: Exception) -> DataError:
        text = str(error)
        if "Expected" in text and "columns" in text:
            return DataError(
                f"'{self.path}': {text}",
                "name the right --delimiter, or leave such rows out with --on-bad-row skip",
            )
        if "straddling" in text or "block size" in text:
            return DataError(
                f"'{self.path}': a row is longer than {_BLOCK_BYTES:,} bytes",
                "is it CSV? Look for a quote that is never closed",
            )
        return DataError(f"'{self.path}' cannot be read as CSV: {text}", "name what it is with --from, or mend it")

    def _converted(self, raw: pa.RecordBatch, shape: Shape) -> tuple[pa.RecordBatch, dict[str, int]]:
        columns, faults = [], {}
        good = None
        for name, texts in zip(raw.schema.names, raw.columns, strict=True):
            try:
                columns.append(self._column(name, texts, shape.type_of(name)))
            except _Unfit as unfit:
                kind = self._types[name]
                bad = pc.index(unfit.fits, False).as_py()
                if not self._options.skips_bad_rows:
                    raise DataError(
                        f"'{self.path}': column '{name}' holds {texts[bad].as_py()!r}, which is no {kind}",
                        "give it another type with --types, or leave such rows out with --on-bad-row skip",
                    ) from None
                columns.append(texts)
                faults[f"a value of '{name}' is no {kind}"] = len(texts) - pc.sum(unfit.fits).as_py()
                good = unfit.fits if good is None else pc.and_(good, unfit.fits)
        if good is not None:
            kept, _ = self._converted(raw.filter(good), shape)
            return kept, faults
        return pa.RecordBatch.from_arrays(columns, names=raw.schema.names), faults

    def _column(self, name: str, texts: pa.Array, known: pa.DataType | None) -> pa.Array:
        asked = self._types.get(name)
        if asked is not None:
            column = self._as(texts, asked)
            if column is None:
                raise _Unfit(self._fits(texts, asked))
            return column
        if known is not None and not pa.types.is_null(known):
            column = self._as(texts, known)
            if column is not None:
                return column
        missing = self._with_nulls(texts)
        if missing.null_count == len(missing):
            return pa.nulls(len(missing))
        for kind in _TRIED:
            column = self._as(texts, kind)
            if column is not None:
                return column
        return texts

    def _as(self, texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
        if kind == pa.string():
            return texts
        column = _as_type(texts, kind)
        if column is None:
            missing = self._with_nulls(texts)
            column = _as_type(missing, kind) if missing.null_count > texts.null_count else None
            if column is None:
                column = _as_type(pc.ascii_trim_whitespace(missing), kind)
        return column

    def _with_nulls(self, texts: pa.Array) -> pa.Array:
        if self._options.nulls is not None:
            return texts  # pyarrow has seen to it
        return pc.if_else(pc.is_in(texts, value_set=self._nulls), pa.scalar(None, pa.string()), texts)

    def _fits(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        """Whether each text is of the type, by halves: the bad ones are few."""
        if self._as(texts, kind) is not None:
            return pa.array([True] * len(texts), pa.bool_())
        if len(texts) == 1:
            return pa.array([False])
        half = len(texts) // 2
        return pa.concat_arrays([self._fits(texts.slice(0, half), kind), self._fits(texts.slice(half), kind)])
