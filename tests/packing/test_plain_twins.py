"""The readers of text and their plain twins agree on any bytes."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.packing.kinds import KINDS
from streampgs.packing.options import PackOptions
from streampgs.packing.source import Source
from tests.packing import plain_text_rows as plain

NUMERALS = st.one_of(
    st.floats().map(lambda x: repr(x).encode()),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: b"%.6g" % x),
    st.from_regex(rb"[-+]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][-+]?[0-9]{1,4})?", fullmatch=True),
    st.sampled_from(
        [b"9007199254740993", b"1e23", b"-0", b"1e-400", b"0" * 36 + b"12.5", b"1E+5", b"-Infinity", b"NaN"]
    ),
)


def same(a: float, b: float) -> bool:
    """The same double, including the sign of a zero. All NaNs are equal."""
    return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))


def fuzzed(*parts: bytes) -> st.SearchStrategy[bytes]:
    """Valid, nearly valid and random text."""
    nearly = st.lists(st.sampled_from([b" ", b"\n", *parts]) | NUMERALS, max_size=40).map(b"".join)
    mixed = nearly | st.binary(max_size=80) | st.lists(nearly | st.binary(max_size=4), max_size=4).map(b"".join)
    return mixed.filter(lambda data: not data.startswith((b"\xef\xbb\xbf", b"\x1f\x8b", b"BZh", b"\x28\xb5")))


def read(folder, kind: str, data: bytes, known: pa.Schema | None = None) -> tuple[list[dict[str, Any]], pa.Schema, int]:
    """The rows, their schema, and the number of skipped lines."""
    path = folder.mktemp("twins") / "rows"
    path.write_bytes(data)
    source = Source(path, PackOptions(on_bad_row="skip"))
    batches = list(KINDS[kind].load()(source, known or pa.schema([])))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return rows, batches[0].schema if batches else pa.schema([]), sum(source.skipped.values())


def parsed_by(twin: Any, data: bytes, *more: Any) -> tuple[list[Any], int]:
    found = [twin(line, *more) for line in data.split(b"\n")]
    return [row for row in found if row is not None and row != "bad"], found.count("bad")


def check_same(found: list[Any], wanted: list[Any]) -> None:
    """Compare pairs of (numbers, keys)."""
    assert [keys for _, keys in found] == [keys for _, keys in wanted]
    for (mine, _), (theirs, _) in zip(found, wanted, strict=True):
        assert len(mine) == len(theirs)
        assert all(map(same, mine, theirs))


SVMLIGHT = fuzzed(b"1 ", b"-1 ", b"\n+1 ", b"3:4.5 ", b"7:nan", b"12:1e300 ", b"qid:7 ", b"#", b":", b"-3:1", b"\t", b"\r\n", b"0x5:1", b"99999999999999999999:1", b"1_0")  # fmt: skip


@given(SVMLIGHT)
@example(b"1 qid:3 5:1\n2 5:1\n")
@example(b"1 2:3#4:5")
@example(b"1 3: 5\n1 2:3:4\n:3\n1 :2")
def test_svmlight_equals_its_plain_twin(tmp_path_factory, data):
    rows, _, bad = read(tmp_path_factory, "svmlight", data)
    wanted, wanted_bad = parsed_by(plain.svmlight_row, data)
    check_same(
        [([row["label"], *row["values"]], (row.get("qid"), row["indices"])) for row in rows],
        [([label, *(x for _, x in entries)], (qid, [i for i, _ in entries])) for label, qid, entries in wanted],
    )
    assert bad == wanted_bad


VW = fuzzed(b"1 ", b"-1 ", b"\n1 |", b"|", b"|f ", b"|g:2 ", b"a ", b"b:2 ", b"3 ", b"4:0.5 ", b"'t", b"0.5 ", b"\t", b"\r\n", b":", "é ".encode(), b"\xff")  # fmt: skip


@given(VW, st.booleans())
@example(b"1 |f 3 4:2\n1 |\n-1 |f 5\n", False)
@example(b"1 |f 3 |g 4\n", False)
@example(b"x |g 4\n1 |f 3\n", False)
@example(b"1 'tag:5|n:2 c:3 | e\n1 2 3 a:b|x y\n", False)
@example(b"1 | :2\n1 |:2 a\n| a\n1 2 3 4 | a\n", True)
def test_vowpal_wabbit_equals_its_plain_twin(tmp_path_factory, data, named):
    known = pa.schema({"features": pa.map_(pa.string(), pa.float64())}) if named else None
    rows, schema, bad = read(tmp_path_factory, "vw", data, known)
    good, wanted_bad = parsed_by(plain.vw_row, data)
    assert bad == wanted_bad
    spaces = {space for _, _, features in good for space, _, _ in features}
    all_numbers = all(plain.whole(name) is not None for _, _, features in good for _, name, _ in features)
    found, wanted = [], []
    if rows and "features" in rows[0]:
        assert named or len(spaces) > 1 or not all_numbers
        found = [([x for _, x in row["features"]], [name for name, _ in row["features"]]) for row in rows]
        wanted = [
            ([x for *_, x in row], [((s + b"^" + n) if s else n).decode() for s, n, _ in row]) for _, _, row in good
        ]
    elif rows:
        assert not named
        found = [(row["values"], row["indices"]) for row in rows]
        wanted = [([x for *_, x in row], [int(n) for _, n, _ in row]) for _, _, row in good]
        metadata = schema.field("indices").metadata
        assert (metadata[b"namespace"] if metadata else None) == next(iter(spaces), None)
    heads = [([row["label"], row.get("weight", 1.0)], None) for row in rows]
    check_same(heads, [([label, 1.0 if weight is None else weight], None) for label, weight, _ in good])
    check_same(found, wanted)


@pytest.mark.parametrize("bad", ["error", "skip"])
def test_the_first_bad_line_is_named_for_every_fault(tmp_path, bad):
    from streampgs.base.errors import DataError

    (tmp_path / "rows").write_text("1 1:1\n1 2:x\n1 1\nz 1:1\n2 1:1\n")
    source = Source(tmp_path / "rows", PackOptions(on_bad_row=bad))
    reading = KINDS["svmlight"].load()(source, pa.schema([]))
    if bad == "skip":
        assert [row["label"] for batch in reading for row in batch.to_pylist()] == [1.0, 2.0]
        assert sum(source.skipped.values()) == 3
    else:
        with pytest.raises(DataError, match="line 2: a value is not a number: '1 2:x'"):
            list(reading)
