"""Which texts are expressions, what errors say, and what differs from SQL."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampgs.base.errors import DataError, OptionError
from streampgs.expressions.expression import condition
from streampgs.expressions.functions import FUNCTIONS, SIGNS
from streampgs.expressions.parser import Column, Source, parsed, quoted

COLUMNS = {
    "delay": pa.array([1, 20, None], pa.int64()),
    "part": pa.array([math.nan, 2.0, math.inf]),
    "name": pa.array(["it's", "a", None]),
    "tags": pa.array([["x"], None, []]),
    "odd \"name\"": pa.array([1, 2, 3]),
    "in": pa.array([1, 2, 3]),
    "place": pa.array([{"city": "Bern", "lake.size": 1}, {"city": None, "lake.size": 2}, None]),
    "ns": pa.array([dt.datetime(2024, 1, 1), dt.datetime(2024, 7, 1), None], pa.timestamp("ns")),
    "zurich": pa.array([dt.datetime(2024, 1, 1), dt.datetime(2024, 6, 30, 22, 30), None], pa.timestamp("s", "Europe/Zurich")),
    "nothing": pa.nulls(3),
    "years": pa.array([2**62, 1, 0]),
}  # fmt: skip


def values(text: str) -> list[object]:
    return condition(text).values(COLUMNS, 3).to_pylist()


def chosen(text: str) -> list[bool]:
    return condition(text).selects(COLUMNS, 3).to_pylist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name = 'it''s'", [True, False, False]),
        ('"odd ""name""" >= 2', [False, True, True]),
        ('"in" = 2', [False, True, False]),
        ("DELAY > 1 AND NOT delay IS NULL".replace("DELAY", "delay"), [False, True, False]),
        ("place.city = 'Bern'", [True, False, False]),
        ('"place.lake.size" > 1', [False, True, False]),
        ("tags is null", [False, True, False]),
        ("nothing is null", [True, True, True]),
        ("nothing > 3 or nothing = 'x'", [False, False, False]),
        ("not (nothing > 3)", [False, False, False]),
        ("year(nothing) = 2024", [False, False, False]),
        ("nothing or delay = 1", [True, False, False]),
        ("coalesce(nothing, delay) = 20", [False, True, False]),
        ("true", [True, True, True]),
        ("1 > 2", [False, False, False]),
    ],
)
def test_names_and_values(text: str, expected: list[bool]) -> None:
    assert chosen(text) == expected


def test_nan_counts_as_null() -> None:
    assert values("part > 1") == [None, True, True]
    assert values("not part > 1") == [None, False, False]
    assert values("part is null") == [True, False, False]
    assert values("part - part") == [None, 0.0, None]


def test_a_function_outside_of_its_range_is_null() -> None:
    assert values("ln(delay - 1)") == [None, math.log(19), None]
    assert values("sqrt(-delay)") == [None, None, None]
    assert values("delay / 0") == values("delay % 0") == [None, None, None]


@pytest.mark.parametrize(
    ("text", "fault", "at", "remedy"),
    [
        ("", "an empty expression", 1, "write a condition such as delay > 15"),
        ("delay >", "a column or a value is missing before the end", 8, ""),
        ("delay 15", "'15' was not expected", 7, "and, or"),
        ("delay > 15 drop", "'drop' was not expected", 12, ""),
        ("delay; x", "; is not understood", 6, "double quotes"),
        ("delay > $1", "$ is not understood", 9, ""),
        ("(delay > 15", "')' is missing before the end", 12, "close the parenthesis"),
        ("delay = 'x", "a text without its closing quote", 9, "write ' at its end"),
        ('"delay', "a column's name without its closing quote", 1, 'write " at its end'),
        ("delay = null", "null is not a value", 9, "COLUMN is null"),
        ("delay is 3", "'null' is missing before '3'", 10, "is not null"),
        ("delay not 3", "'3' after 'not'", 11, "not in"),
        ("delay in 3", "'(' is missing before '3'", 10, "in (1, 2)"),
        ("delay between 1", "'and' is missing before the end", 16, "between LOW and HIGH"),
        ("delay = 1 = 1", "'=' was not expected", 11, ""),
        ("delay > 15x", "1 is not understood", 9, ""),
        ("delay > 5 -- y", "-- begins a comment in SQL", 11, "a blank between the two signs"),
        ("delay > 18446744073709551616", "an integer beyond 64 bits", 9, "a decimal point"),
        ("delay > -9223372036854775809", "an integer beyond 64 bits", 9, "a decimal point"),
        ("ns > '2024-01-01 00:00:00.0000000001'", "'2024-01-01 00:00:00.0000000001' is not a timestamp", 4, "2024-06-30"),
        ("delay > 1e999", "a number beyond the range of float64", 9, ""),
        ("dleay > 15", "unknown column 'dleay'", 1, "did you mean 'delay'? The columns are delay, part"),
        ("Delay > 15", "unknown column 'Delay'", 1, "did you mean 'delay'?"),
        ("log(delay) > 1", "unknown function 'log'", 1, "ln is the natural logarithm, log10 the decimal one"),
        ("lenght(name) > 1", "unknown function 'lenght'", 1, "did you mean length?"),
        ("abs(delay, 1) > 1", "abs of 2 values", 1, "give 1"),
        ("coalesce(delay) > 1", "coalesce of 1 values", 1, "give at least 2"),
        ("delay > 'x'", "a number is compared with a string", 7, "numbers without quotes"),
        ("name > 15", "a string is compared with a number", 6, "strings in single quotes"),
        ("delay and name = 'x'", "a number cannot be used with 'and'", 1, "write a condition"),
        ("name + 1 > 2", "a string cannot be used with '+'", 1, "give a number"),
        ("tags = 'x'", "column 'tags' is of type list<item: string>", 1, "only its nulls"),
        ("delay in (part)", "'in' needs values that are the same in all rows", 11, "join comparisons with or"),
        ("name like name", "'like' needs values that are the same in all rows", 11, ""),
        ("ns > 'yesterday'", "'yesterday' is not a timestamp", 4, "'2024-06-30 14:30:00'"),
        ("ns > '2024-01-01 00:00+01:00'", "a time with a time zone is compared with a column without one", 4, ""),
        ("ns = zurich", "a time with a time zone is compared with one without", 4, ""),
        ("9223372036854775807 + 1 > delay", "'+' cannot be computed: overflow", 21, "smaller numbers"),
    ],
)  # fmt: skip
def test_an_error_names_the_place_and_a_remedy(text: str, fault: str, at: int, remedy: str) -> None:
    with pytest.raises(OptionError) as error:
        values(text)
    assert error.value.found == f'`--where "{text}"`: {fault}, at character {at}'
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "(" * 60_000, "(" * 30 + "1" + ")" * 30, "not " * 10_000, "-" * 50_000, "1" + " + 1" * 10_000,
        "1" + "*1" * 151, "abs(" * 40 + "1" + ")" * 40, "x" * 100_000, "9" * 50_000, "1e" + "9" * 1000,
        "a." * 20_000, "\x00", "delay > 1\x00", "'\x1b[31m", "delay\u2028>\u20281;", "\udcff > 1", "delay > \u0663",
        "((((delay)))) in (" + "1," * 5_000, "is", "is is is", "'" * 4_999, '"' * 4_999, "\\x41 = 1", "%s", "{delay}",
    ],
    ids=range(25),
)  # fmt: skip
def test_hostile_texts_are_refused(text: str) -> None:
    """Without a crash, and without characters in the message that a terminal would obey."""
    with pytest.raises(OptionError) as error:
        values(text)
    assert len(str(error.value)) < 1_000
    assert str(error.value).replace("\n", "").isprintable()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text("delay name().,'\"<>=!-+*/%0123456789 \nandornotinisnulllike;\\é", max_size=40))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        found = values(text)
    except (OptionError, DataError):
        return
    assert len(found) == 3
    assert parsed(Source("--where", text)) is not None


@pytest.mark.parametrize("name", ["delay", "in", 'odd "name"', "a b", "1st", "place.city", "Zürich", "a.1", "", "NULL"])
def test_a_quoted_name_is_read_as_this_column(name: str) -> None:
    tree = parsed(Source("--where", quoted(name)))
    assert isinstance(tree, Column)
    assert tree.name == name


def _of_every_type() -> dict[str, pa.Array]:
    second = dt.datetime(2024, 1, 1)
    kinds = [
        pa.bool_(), pa.int8(), pa.uint8(), pa.uint32(), pa.uint64(), pa.int64(), pa.float16(), pa.float32(), pa.float64(),
        pa.decimal128(9, 2), pa.decimal128(9, -2), pa.decimal256(40, 3), pa.null(), pa.string_view(), pa.large_string(),
    ]  # fmt: skip
    numbers = [pa.array([1, 0, None]).cast(pa.bool_()).cast(pa.int8())]
    found = {f"c{place}": pa.nulls(3, kind) for place, kind in enumerate(kinds)}
    whole = numbers[0]
    for place, kind in enumerate(kinds[:9]):
        found[f"c{place}"] = whole.cast(kind)
    found |= {
        "text": pa.array(["1", "x", None]), "view": pa.array(["1", "x", None], pa.string_view()),
        "coded": pa.array(["1", "x", None]).dictionary_encode(), "day": pa.array([second.date(), None, None]),
        "day64": pa.array([second, None, None], pa.date64()), "seconds": pa.array([second, None, None], pa.timestamp("s")),
        "nanos": pa.array([second, None, None], pa.timestamp("ns")), "zoned": pa.array([second, None, None], pa.timestamp("ms", "UTC")),
        "clock": pa.array([1, 2, None], pa.int32()).cast(pa.time32("s")), "clock64": pa.array([1, 2, None], pa.time64("ns")),
        "span": pa.array([1, 2, None], pa.duration("s")), "bytes": pa.array([b"\xff", b"x", None]), "listed": pa.array([[1], None, []]),
        "broken": pa.array([b"\xff\xfe", b"x", None]).view(pa.string()),
    }  # fmt: skip
    return found


_EVERY = _of_every_type()
_CONSTANTS = ["1", "-2.5", "'x'", "'2024-01-01'", "'12:00:00'", "true", "18446744073709551615"]


@pytest.mark.parametrize("name", [*FUNCTIONS])
def test_any_function_of_any_types_gives_values_or_an_error(name: str) -> None:
    function = FUNCTIONS[name]
    parts = [*_EVERY, *_CONSTANTS]
    texts = [f"{name}({one})" for one in parts] if function.fewest == 1 else []
    if function.fewest == 2:
        pairs = [(one, other) for one in parts for other in parts]
        is_word = name.isalnum() and name not in SIGNS
        texts = [f"{name}({one}, {other})" if is_word else f"{one} {name} ({other})" for one, other in pairs]
    if name == "between":
        texts = [
            f"{one} between ({low}) and ({high})" for one in _EVERY for low in parts for high in (one, low, parts[-1])
        ]
    texts = {"is null": [f"{one} is null" for one in parts], "negative": [f"-{one}" for one in parts]}.get(name, texts)
    good = 0
    for text in texts:
        try:
            found = condition(text).values(_EVERY, 3)
        except (OptionError, DataError):
            continue
        good += 1
        assert len(found) == 3, text
    assert good > 0
