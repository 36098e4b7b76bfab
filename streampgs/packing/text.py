"""Readers of text that is made of lines: svmlight, Vowpal Wabbit, matrices, plain lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.errors import DataError
from streampgs.kernels import text_rows
from streampgs.packing.ahead import ahead
from streampgs.packing.byte_streams import Advance, Chunk, text_chunks
from streampgs.packing.options import PackOptions
from streampgs.packing.pieces import Piece, Shape

SPACE_KEY = b"namespace"
"""Under it the field 'indices' tells which namespace of Vowpal Wabbit the numbers are of."""

_FAULTS = {
    text_rows.LABEL_MISSING: "no label",
    text_rows.LABEL_NOT_A_NUMBER: "the label is no number",
    text_rows.COLON_MISSING: "no colon in an entry",
    text_rows.INDEX_NOT_A_NUMBER: "an index is no whole number",
    text_rows.INDEX_NEGATIVE: "an index is negative",
    text_rows.INDEX_TOO_LARGE: "an index has too many digits",
    text_rows.VALUE_NOT_A_NUMBER: "a value is no number",
    text_rows.QUERY_NOT_A_NUMBER: "the query is no whole number",
    text_rows.WIDTH_DIFFERS: "another number of columns than in the rows before",
    text_rows.WEIGHT_NOT_A_NUMBER: "a weight is no number",
    text_rows.BAR_MISSING: "no bar between label and features",
    text_rows.NAME_MISSING: "a feature without a name",
    text_rows.NAME_NOT_TEXT: "a name that is not UTF-8",
    text_rows.ROW_TOO_LARGE: "its features' names take too much memory",
}
_NOT_TEXT = "a line that is not UTF-8"
_SHOWN_BYTES = 60
_NAME_BYTES = 1 << 25
_LONGEST_SPACE = 4096
_LARGEST_INT32 = (1 << 31) - 1
_TAB, _NEWLINE, _RETURN, _SPACE, _COLON = 9, 10, 13, 32, 58

Numbers = NDArray[np.int64]


def bad_row(
    path: Path,
    line: int,
    fault: str,
    text: bytes,
    remedy: str = "mend it, or leave such rows out with --on-bad-row skip",
) -> DataError:
    shown = text[:_SHOWN_BYTES].decode(errors="backslashreplace") + ("…" if len(text) > _SHOWN_BYTES else "")
    return DataError(f"'{path}', line {line:,}: {fault}: {shown!r}", remedy)


def _count(data: NDArray[np.uint8], first: int, last: int | None = None) -> int:
    """Bytes from `first` to `last`."""
    return int(np.count_nonzero(data == first if last is None else (data >= first) & (data <= last)))


def _fill_long(
    data: NDArray[np.uint8], long: Numbers, count: int, values: Any, labels: Any, weights: Any = None
) -> None:
    """Multiply the numbers that the loop left open into where they belong."""
    if not count:
        return
    places, numbers = long[:count, 0], _long_numbers(data, long[:count])
    of_values, of_labels = places >= 0, (places < 0) & (places >= -len(labels))
    np.multiply.at(values, places[of_values], numbers[of_values])
    if of_labels.any():
        np.multiply.at(labels, -1 - places[of_labels], numbers[of_labels])
    of_weights = ~(of_values | of_labels)
    if of_weights.any():
        np.multiply.at(weights, -1 - len(labels) - places[of_weights], numbers[of_weights])


def _long_numbers(data: NDArray[np.uint8], spans: Numbers) -> NDArray[np.float64]:
    """By pyarrow, all at once; what it does not take, like 1e400, by Python."""
    offsets = np.zeros(len(spans) + 1, np.int64)
    np.cumsum(spans[:, 2] - spans[:, 1], out=offsets[1:])
    letters = np.empty(offsets[-1], np.uint8)
    text_rows.gather(data, spans, offsets, letters)
    texts = pa.LargeStringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(letters))
    try:
        return np.asarray(texts.cast(pa.float64()))
    except pa.ArrowInvalid:
        return np.array([float(text) for text in texts.to_pylist()])


def _lists(offsets: Numbers, child: Any) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), child)


def _index_array(indices: Numbers) -> pa.Array:
    """As int32, unless there is one that does not fit."""
    small = indices.size == 0 or int(indices.max()) <= _LARGEST_INT32
    return pa.array(indices.astype(np.int32) if small else indices.copy())


class _Parsing:
    """One chunk on its way through a loop that stops now and then."""

    def __init__(self, chunk: Chunk, path: Path, skip: bool) -> None:
        self.chunk, self.path, self.skip = chunk, path, skip
        self.data = chunk.bytes_of
        self.state = np.zeros(7, np.int64)
        self.state[text_rows.LINE] = chunk.first_line
        self.state[text_rows.SPACE_BYTES] = -1
        self.faults = np.zeros(text_rows.FAULTS, np.int64)
        self.first_fault = np.zeros(4, np.int64)

    @property
    def ended(self) -> bool:
        return bool(self.state[text_rows.POSITION] >= self.data.size)

    def check(self) -> None:
        fault, line, start, stop = self.first_fault.tolist()
        if fault and not self.skip:
            raise bad_row(self.path, line, _FAULTS[fault], self.chunk.data[start:stop])

    def take_faults(self) -> dict[str, int]:
        """By reason, since they were last taken."""
        counts = {_FAULTS[fault]: count for fault, count in enumerate(self.faults.tolist()) if count}
        self.faults[:] = 0
        return counts


class _LineReader(ABC):
    as_text = True

    def __init__(self, path: Path, options: PackOptions) -> None:
        self.path = path
        self._options = options
        self._skip = options.skips_bad_rows
        self._longest_line = options.memory // 8

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        chunks = text_chunks(self.path, advance, self._options.skip_lines, mark, self._longest_line)
        for chunk in ahead(chunks):
            here = (chunk.start, chunk.first_line)
            offset = 0
            for batch, faults in self._batches(chunk, shape):
                yield Piece(batch, here, offset, faults)
                offset += batch.num_rows

    @abstractmethod
    def _batches(self, chunk: Chunk, shape: Shape) -> Iterator[tuple[pa.RecordBatch, dict[str, int]]]:
        """The rows of a chunk, and those that were left out, by reason."""


class SvmlightReader(_LineReader):
    """`label [qid:query] index:value …` with the indices as they stand."""

    def _batches(self, chunk: Chunk, shape: Shape) -> Iterator[tuple[pa.RecordBatch, dict[str, int]]]:
        parsing = _Parsing(chunk, self.path, self._skip)
        most_rows, most_entries = _count(parsing.data, _NEWLINE) + 1, _count(parsing.data, _COLON)
        labels, queries = np.empty(most_rows), np.full(most_rows, -1, np.int64)
        offsets = np.empty(most_rows + 1, np.int64)
        indices, values = np.empty(most_entries, np.int64), np.empty(most_entries)
        long = np.empty((most_entries + most_rows, 3), np.int64)
        any_query = text_rows.parse_svmlight(
            parsing.data,
            parsing.state,
            self._skip,
            labels,
            queries,
            offsets,
            indices,
            values,
            long,
            parsing.faults,
            parsing.first_fault,
        )
        parsing.check()
        rows, entries = int(parsing.state[text_rows.ROWS]), int(parsing.state[text_rows.ENTRIES])
        _fill_long(parsing.data, long, int(parsing.state[text_rows.LONGS]), values, labels)
        columns = {"label": pa.array(labels[:rows])}
        if any_query or shape.type_of("qid") is not None:
            columns["qid"] = pa.array(queries[:rows], mask=queries[:rows] < 0)
        columns["indices"] = _lists(offsets[: rows + 1], _index_array(indices[:entries]))
        columns["values"] = _lists(offsets[: rows + 1], pa.array(values[:entries]))
        yield pa.record_batch(columns), parsing.take_faults()


class MatrixReader(_LineReader):
    """Lines of numbers, all equally many: dense rows."""

    def _batches(self, chunk: Chunk, shape: Shape) -> Iterator[tuple[pa.RecordBatch, dict[str, int]]]:
        parsing = _Parsing(chunk, self.path, self._skip)
        known = shape.type_of("features")
        if known is not None and pa.types.is_fixed_size_list(known):
            width = int(known.list_size)
        else:
            width = int(text_rows.matrix_width(parsing.data))
        if width == 0:
            return
        most_numbers = min(len(chunk.data) // 2 + 1, width * (_count(parsing.data, _NEWLINE) + 1))
        most_numbers = max(most_numbers, width)
        values, long = np.empty(most_numbers), np.empty((most_numbers, 3), np.int64)
        while not parsing.ended:
            text_rows.parse_matrix(
                parsing.data, parsing.state, self._skip, width, values, long, parsing.faults, parsing.first_fault
            )
            parsing.check()
            rows = int(parsing.state[text_rows.ROWS])
            _fill_long(parsing.data, long, int(parsing.state[text_rows.LONGS]), values, ())
            lists = pa.FixedSizeListArray.from_arrays(pa.array(values[: rows * width].copy()), width)
            yield pa.record_batch({"features": lists}), parsing.take_faults()


class VowpalWabbitReader(_LineReader):
    """Features as numbers while all are numbers of one namespace, by their names otherwise."""

    def _batches(self, chunk: Chunk, shape: Shape) -> Iterator[tuple[pa.RecordBatch, dict[str, int]]]:
        known = shape.type_of("features")
        named = known is not None and pa.types.is_map(known)
        if not named:
            numbered = self._parsed(chunk, shape, named=False)
            # Names turn up in the middle of a chunk: all of it is read once more.
            if numbered is None:
                named = True
            else:
                yield numbered
        if named:
            parsing = _Parsing(chunk, self.path, self._skip)
            while not parsing.ended:
                parsed = self._parsed(chunk, shape, named=True, parsing=parsing)
                assert parsed is not None
                yield parsed

    def _parsed(
        self, chunk: Chunk, shape: Shape, named: bool, parsing: _Parsing | None = None
    ) -> tuple[pa.RecordBatch, dict[str, int]] | None:
        """The rows of one call of the loop; None if their names are not all numbers."""
        parsing = parsing or _Parsing(chunk, self.path, self._skip)
        space = self._space_before(shape, parsing)
        most_rows = _count(parsing.data, _NEWLINE) + 1
        most_entries = _count(parsing.data, _SPACE) + _count(parsing.data, _TAB, _RETURN) + 1  # each has one before it
        labels, weights = np.empty(most_rows), np.empty(most_rows)
        offsets = np.empty(most_rows + 1, np.int64)
        values = np.empty(most_entries)
        indices = np.empty(0 if named else most_entries, np.int64)
        name_offsets = np.zeros(most_entries + 1 if named else 1, np.int64)
        names = np.empty(_NAME_BYTES if named else 0, np.uint8)
        long = np.empty((2 * (most_entries + most_rows), 3), np.int64)
        any_weight, needs_names = text_rows.parse_vw(
            parsing.data,
            parsing.state,
            self._skip,
            named,
            space,
            labels,
            weights,
            offsets,
            indices,
            values,
            name_offsets,
            names,
            long,
            parsing.faults,
            parsing.first_fault,
        )
        if needs_names:
            return None
        parsing.check()
        rows, entries = int(parsing.state[text_rows.ROWS]), int(parsing.state[text_rows.ENTRIES])
        _fill_long(parsing.data, long, int(parsing.state[text_rows.LONGS]), values, labels, weights)
        columns = [pa.array(labels[:rows])]
        fields = [pa.field("label", pa.float64())]
        if any_weight or shape.type_of("weight") is not None:
            columns.append(pa.array(weights[:rows]))
            fields.append(pa.field("weight", pa.float64()))
        numbers = pa.array(values[:entries])
        if named:
            used = int(parsing.state[text_rows.NAME_BYTES])
            ends = pa.py_buffer(name_offsets[: entries + 1].astype(np.int32))
            keys = pa.StringArray.from_buffers(entries, ends, pa.py_buffer(names[:used].copy()))
            columns.append(pa.MapArray.from_arrays(pa.array(offsets[: rows + 1], pa.int32()), keys, numbers))
            fields.append(pa.field("features", pa.map_(pa.string(), pa.float64())))
        else:
            length = int(parsing.state[text_rows.SPACE_BYTES])
            told = {SPACE_KEY: space[:length].tobytes()} if length >= 0 else None
            lists = [_index_array(indices[:entries]), numbers]
            for name, child in zip(("indices", "values"), lists, strict=True):
                columns.append(_lists(offsets[: rows + 1], child))
                fields.append(pa.field(name, columns[-1].type, metadata=told if name == "indices" else None))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), parsing.take_faults()

    def _space_before(self, shape: Shape, parsing: _Parsing) -> NDArray[np.uint8]:
        """The one namespace of the rows so far, and that into the state."""
        space = np.zeros(_LONGEST_SPACE, np.uint8)
        if shape.type_of("indices") is not None:
            told = (shape.schema.field("indices").metadata or {}).get(SPACE_KEY)
            if told is not None:
                space[: len(told)] = np.frombuffer(told, np.uint8)
                parsing.state[text_rows.SPACE_BYTES] = len(told)
        return space


class LinesReader(_LineReader):
    """Every line is a row with one string."""

    def _batches(self, chunk: Chunk, shape: Shape) -> Iterator[tuple[pa.RecordBatch, dict[str, int]]]:
        name = self._options.names[0] if self._options.names else "text"
        data = chunk.data.replace(b"\r\n", b"\n")
        faults: dict[str, int] = {}
        try:
            data.decode()
        except UnicodeDecodeError:
            data, faults = self._without_bad_lines(data, chunk.first_line)
        letters = np.frombuffer(data, np.uint8)
        breaks = np.flatnonzero(letters == _NEWLINE)
        if data and not data.endswith(b"\n"):
            breaks = np.append(breaks, len(data))
        ends = np.append(np.zeros(1, np.int64), breaks - np.arange(len(breaks))).astype(np.int32)
        joined = data.replace(b"\n", b"")
        texts = pa.StringArray.from_buffers(len(breaks), pa.py_buffer(ends), pa.py_buffer(joined))
        yield pa.record_batch({name: texts}), faults

    def _without_bad_lines(self, data: bytes, first_line: int) -> tuple[bytes, dict[str, int]]:
        lines = data.removesuffix(b"\n").split(b"\n")
        good = []
        for number, line in enumerate(lines, start=first_line):
            try:
                line.decode()
                good.append(line + b"\n")
            except UnicodeDecodeError:
                if not self._skip:
                    raise bad_row(self.path, number, _NOT_TEXT, line) from None
        return b"".join(good), {_NOT_TEXT: len(lines) - len(good)}
