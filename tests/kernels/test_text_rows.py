"""Rows out of text: the loops and their plain twins agree on any bytes, and numbers are those of Python's float."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.kernels import text_rows
from streampgs.kernels.jit import compiled
from streampgs.kernels.number_text import EXACT, LONG, NO_NUMBER, read_number
from tests.kernels import plain_text_rows as plain


@compiled
def read(data, start, stop):
    return read_number(data, start, stop)


def same(a: float, b: float) -> bool:
    """The same double, be it a zero with a sign or no number."""
    return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))


def letters(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


# ------------------------------------------------------------------------------------------------- numbers

NUMERALS = st.one_of(
    st.floats().map(lambda x: repr(x).encode()),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: b"%.6g" % x),
    st.floats(-1e6, 1e6).map(lambda x: b"%.3f" % x),
    st.from_regex(rb"[-+]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][-+]?[0-9]{1,4})?", fullmatch=True),
    st.integers(0, 2**60).map(lambda x: b"%d" % x),
)


def check_number(text: bytes) -> None:
    kind, value, end = read(letters(text), 0, len(text))
    assert kind != NO_NUMBER
    assert end == len(text)
    if kind == EXACT:
        assert same(value, float(text))
    else:
        assert value == 1.0


@given(NUMERALS)
@example(b"9007199254740992e22")
@example(b"9007199254740993")
@example(b"1e23")
@example(b"9007199254740991e-23")
@example(b"0.1e-21")
@example(b"-0")
@example(b"-0.000e999999999999999999999")
@example(b"1e-400")
@example(b"00000000000000000000000000000000000012.5")
@example(b"0.00000000000000000000000000000000000012")
@example(b"1E+5")
@example(b"-Infinity")
@example(b"NaN")
def test_a_number_is_the_double_nearest_to_its_text(text):
    check_number(text)


def test_what_people_write_takes_the_fast_path():
    for text in (b"0", b"1", b"-1", b"+1", b"0.25", b"-0.677583", b"6.2699720e-02", b"1e5", b"123456789.125", b"5."):
        kind, value, _ = read(letters(text), 0, len(text))
        assert (kind, value) == (EXACT, float(text)), text


@given(st.binary(max_size=12) | st.text("0123456789.eE+-naifty", max_size=12).map(str.encode))
@example(b"1e")
@example(b"1e+")
@example(b"-")
@example(b".")
@example(b"")
@example(b"infinit")
def test_as_much_is_read_as_is_a_number(data):
    kind, _, end = read(letters(data), 0, len(data))
    longest = max((stop for stop in range(len(data) + 1) if plain.number(data[:stop]) is not None), default=0)
    assert (kind == NO_NUMBER) == (longest == 0)
    if kind != NO_NUMBER:
        assert end == longest
        assert kind == LONG or same(read(letters(data), 0, end)[1], float(data[:end]))


# ---------------------------------------------------------------------------------------------------- lines


class Parse:
    """One call of a loop, its numbers filled in, its arrays just large enough."""

    def __init__(self, data: bytes, skip: bool = True) -> None:
        self.data, self.skip = data, skip
        self.rows_room = data.count(b"\n") + 1
        self.state = np.zeros(7, np.int64)
        self.state[text_rows.LINE] = 1
        self.state[text_rows.SPACE_BYTES] = -1
        self.faults = np.zeros(text_rows.FAULTS, np.int64)
        self.first_fault = np.zeros(4, np.int64)
        self.labels = np.empty(self.rows_room)
        self.weights = np.empty(self.rows_room)
        self.offsets = np.empty(self.rows_room + 1, np.int64)

    def fill(self, long, values):
        for place, start, stop in long[: self.state[text_rows.LONGS]].tolist():
            target, at = (values, place) if place >= 0 else (self.labels, -1 - place)
            if at >= self.rows_room and place < 0:
                target, at = self.weights, at - self.rows_room
            target[at] *= float(self.data[start:stop])

    def slices(self):
        rows = self.state[text_rows.ROWS]
        return [slice(*self.offsets[row : row + 2].tolist()) for row in range(rows)]


def svmlight(data: bytes, skip: bool = True):
    parse = Parse(data, skip)
    entries = data.count(b":")
    indices, values = np.empty(entries, np.int64), np.empty(entries)
    queries = np.full(parse.rows_room, -1, np.int64)
    long = np.empty((entries + parse.rows_room, 3), np.int64)
    any_query = text_rows.parse_svmlight(
        letters(data), parse.state, skip, parse.labels, queries, parse.offsets, indices, values, long, parse.faults, parse.first_fault
    )  # fmt: skip
    parse.fill(long, values)
    rows = [
        (parse.labels[row], int(queries[row]), list(zip(indices[part].tolist(), values[part].tolist(), strict=True)))
        for row, part in enumerate(parse.slices())
    ]
    return rows, any_query, parse


def same_rows(found, wanted):
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert same(mine[0], theirs[0])
        assert mine[1] == theirs[1] or same(mine[1], theirs[1])
        assert [entry[:-1] for entry in mine[2]] == [entry[:-1] for entry in theirs[2]]
        assert all(same(a[-1], b[-1]) for a, b in zip(mine[2], theirs[2], strict=True))


def fuzzed(*pieces: bytes) -> st.SearchStrategy[bytes]:
    """Text that is nearly right, and text that is not."""
    nearly = st.lists(st.sampled_from([b" ", b"\n", *pieces]), max_size=40).map(b"".join)
    return nearly | st.binary(max_size=80) | st.lists(nearly | st.binary(max_size=4), max_size=4).map(b"".join)


SVMLIGHT = fuzzed(b"1 ", b"-1 ", b"\n+1 ", b"3:4.5 ", b"7:nan", b"12:1e300 ", b"qid:7 ", b"#", b":", b"-3:1", b"\t", b"\r\n", b"0.1234567890123456789 ", b"99999999999999999999:1", b"1_0")  # fmt: skip


@given(SVMLIGHT)
@example(b"1 qid:3 5:1\n2 5:1\n")
@example(b"1 2:3#4:5")
def test_svmlight_agrees_with_its_plain_twin(data):
    rows, any_query, parse = svmlight(data)
    parsed = [plain.svmlight_row(line) for line in data.split(b"\n")]
    good = [row for row in parsed if isinstance(row, tuple)]
    same_rows(rows, [(label, -1 if query is None else query, entries) for label, query, entries in good])
    assert any_query == any(query is not None for _, query, _ in good)
    assert parse.faults.sum() == parsed.count("bad")
    if "bad" in parsed:
        assert parse.first_fault[text_rows.FAULT_LINE] == parsed.index("bad") + 1


@pytest.mark.parametrize(
    ("line", "fault", "text"),
    [
        (b"1:2 3:4", text_rows.LABEL_MISSING, b"1:2"),
        (b"yes 1:2", text_rows.LABEL_NOT_A_NUMBER, b"yes"),
        (b"1,2 1:2", text_rows.LABEL_NOT_A_NUMBER, b"1,2"),
        (b"1 5", text_rows.COLON_MISSING, b"5"),
        (b"1 a:5", text_rows.INDEX_NOT_A_NUMBER, b"a:5"),
        (b"1 -3:5", text_rows.INDEX_NEGATIVE, b"-3:5"),
        (b"1 1234567890123456789:5", text_rows.INDEX_TOO_LARGE, b"1234567890123456789:5"),
        (b"1 3:x", text_rows.VALUE_NOT_A_NUMBER, b"3:x"),
        (b"1 3:", text_rows.VALUE_NOT_A_NUMBER, b"3:"),
        (b"1 3: 5", text_rows.VALUE_NOT_A_NUMBER, b"3:"),
        (b"1 qid:x 3:1", text_rows.QUERY_NOT_A_NUMBER, b"qid:x"),
    ],
)
def test_the_first_bad_line_is_named_and_ends_the_work(line, fault, text):
    data = b"1 2:3\n# a comment\n\n" + line + b"\n-1 2:3\n"
    rows, _, parse = svmlight(data, skip=False)
    assert len(rows) == 1
    start, stop = parse.first_fault[text_rows.FAULT_START :]
    assert parse.first_fault[: text_rows.FAULT_START].tolist() == [fault, 4]
    assert data[start:stop] == text


def matrix(data: bytes, width: int, room: int):
    parse = Parse(data)
    rows = []
    while parse.state[text_rows.POSITION] < len(data):
        values, long = np.empty(room * width), np.empty((room * width, 3), np.int64)
        text_rows.parse_matrix(letters(data), parse.state, True, width, values, long, parse.faults, parse.first_fault)
        parse.fill(long, values)
        rows += values.reshape(room, width)[: parse.state[text_rows.ROWS]].tolist()
    return rows, parse


@given(
    fuzzed(b"1 ", b"2.5,", b"\n1 2\n", b"\n3,4\n", b"nan ", b"#", b",", b"1 , 2", b"0.12345678901234567 "),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_matrices_agree_with_their_plain_twin(data, width, room):
    rows, parse = matrix(data, width, room)
    parsed = [plain.matrix_row(line, width) for line in data.split(b"\n")]
    good = [row for row in parsed if isinstance(row, list)]
    assert len(rows) == len(good)
    assert all(same(a, b) for mine, theirs in zip(rows, good, strict=True) for a, b in zip(mine, theirs, strict=True))
    assert parse.faults.sum() == parsed.count("bad")


@pytest.mark.parametrize(
    ("data", "width"),
    [(b"", 0), (b"\n # 1 2 3\n", 0), (b"\n1 2, 3\n", 3), (b"1 2 ,\n", 2), (b"5", 1), (b"1,2 # 3\n", 2)],
)
def test_the_first_line_tells_how_wide_a_matrix_is(data, width):
    assert text_rows.matrix_width(letters(data)) == width


# -------------------------------------------------------------------------------------------- Vowpal Wabbit


def vw(data: bytes, named: bool, room: int = 1 << 12):
    parse = Parse(data)
    entries = sum(byte in plain.BLANKS for byte in data) + 1
    rows, weighted = [], False
    while parse.state[text_rows.POSITION] < len(data):
        indices, values = np.empty(0 if named else entries, np.int64), np.empty(entries)
        names, name_offsets = np.empty(room, np.uint8), np.zeros(entries + 1, np.int64)
        space = np.zeros(8, np.uint8)
        long = np.empty((2 * (entries + parse.rows_room), 3), np.int64)
        any_weight, needs_names = text_rows.parse_vw(
            letters(data), parse.state, True, named, space, parse.labels, parse.weights, parse.offsets, indices, values, name_offsets, names, long, parse.faults, parse.first_fault
        )  # fmt: skip
        if needs_names:
            return None, False, parse
        weighted |= any_weight
        parse.fill(long, values)
        told = names.tobytes()
        keys = [told[a:b] for a, b in zip(name_offsets[:-1].tolist(), name_offsets[1:].tolist(), strict=True)]
        for row, part in enumerate(parse.slices()):
            found = keys[part] if named else indices[part].tolist()
            entry = list(zip(found, values[part].tolist(), strict=True))
            rows.append((parse.labels[row], parse.weights[row], entry))
    return rows, weighted, parse


VW = fuzzed(b"1 |", b"\n-1 2 |", b"| ", b"a:2 ", b"b ", b"|f 3:4.5 7 ", b"'tag| ", b"|f:0.5 ", b"|g 1", b":", b"0.1234567890123456789 ", b"\xff ", "é:1 ".encode(), b"\r\n")  # fmt: skip


@given(VW)
@example(b"1 |f:0.12345678901234567 a:0.12345678901234567\n")
@example(b"1 0.12345678901234567 |f 1\n-1 |f 2:0.1\n")
@example(b"1|f 2\n")
def test_vowpal_wabbit_agrees_with_its_plain_twin_by_name(data):
    rows, weighted, parse = vw(data, named=True)
    parsed = [plain.vw_row(line) for line in data.split(b"\n")]
    good = [row for row in parsed if isinstance(row, tuple)]
    wanted = [
        (
            label,
            1.0 if weight is None else weight,
            [(space + b"^" + name if space else name, x) for space, name, x in row],
        )
        for label, weight, row in good
    ]
    same_rows(rows, wanted)
    assert weighted == any(weight is not None for _, weight, _ in good)
    assert parse.faults.sum() == parsed.count("bad")


@given(VW)
@example(b"1 |f 3 4:2\n1 |\n-1 |f 5\n")
@example(b"1 |f 3 |g 4\n")
@example(b"x |g 4\n1 |f 3\n")
def test_vowpal_wabbit_agrees_with_its_plain_twin_by_number(data):
    rows, _, parse = vw(data, named=False)
    parsed = [plain.vw_row(line) for line in data.split(b"\n")]
    good = [row for row in parsed if isinstance(row, tuple)]
    spaces = {space for _, _, features in good for space, _, _ in features}
    numbers = all(plain.whole(name) is not None for _, _, features in good for _, name, _ in features)
    if not numbers or len(spaces) > 1 or any(len(space) > 8 for space in spaces):
        assert rows is None
        return
    wanted = [
        (label, 1.0 if weight is None else weight, [(int(name), x) for _, name, x in row])
        for label, weight, row in good
    ]
    same_rows(rows, wanted)
    length = parse.state[text_rows.SPACE_BYTES]
    assert length == (len(next(iter(spaces))) if spaces else -1)


def test_names_that_do_not_fit_wait_for_the_next_call_or_make_a_bad_row():
    data = b"1 |f aaaa bbbb\n" * 3 + b"1 |f " + b"c" * 50 + b"\n-1 |f d\n"
    rows, _, parse = vw(data, named=True, room=20)
    assert [row[2][0][0] for row in rows] == [b"f^aaaa"] * 3 + [b"f^d"]
    assert parse.faults[text_rows.ROW_TOO_LARGE] == 1
