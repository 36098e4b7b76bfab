"""Expressions have the values that DuckDB gives them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampgs.base.errors import DataError, OptionError
from streampgs.expressions import expression
from streampgs.expressions.expression import condition
from streampgs.expressions.functions import FUNCTIONS, applied
from streampgs.expressions.parser import Apply, Node, Source, parsed

_ROWS = 60
_TICK = 1_704_067_200 * 10**9
"""2024-01-01 in nanoseconds."""


def _table() -> pa.Table:
    """A column of each type, with nulls and values that repeat."""
    random = np.random.default_rng(3)

    def some(values: list, kind: pa.DataType) -> pa.Array:
        picks = random.integers(0, len(values), _ROWS)
        nulls = random.random(_ROWS) < 0.15
        return pa.array([None if null else values[pick] for pick, null in zip(picks, nulls, strict=True)], kind)

    days = [dt.date(2023, 12, 31), dt.date(2024, 2, 29), dt.date(2024, 6, 30), dt.date(1969, 7, 20)]
    instants = [dt.datetime(day.year, day.month, day.day, hour, 5 * hour) for day in days for hour in (0, 7)]
    names = ["", "a", "A", "ab", "Zürich", "it's", "50%", "a_b", "a\\b", " x "]
    return pa.table(
        {
            "small": some([-3, 0, 2, 100], pa.int16()),
            "whole": some([-7, 0, 1, 15, 16, 2024], pa.int64()),
            "huge": some([0, 7, 2**63 - 1, 2**64 - 1], pa.uint64()),
            "part": some([-1.5, 0.0, -0.0, 0.1, 2.0, 15.5, 1e18], pa.float64()),
            "single": some([0.1, 0.5, -2.0, 16.0], pa.float32()),
            "price": some([Decimal("0.10"), Decimal(1), Decimal("3.25")], pa.decimal128(10, 2)),
            "flag": some([True, False], pa.bool_()),
            "name": some(names, pa.string()),
            "code": some(["AA", "UA", "DL"], pa.string()).dictionary_encode(),
            "day": some(days, pa.date32()),
            "seen": some(instants, pa.timestamp("us")),
            "seen_ns": some(instants, pa.timestamp("ns")),
            "clock": some([dt.time(0), dt.time(14, 30)], pa.time64("us")),
            "dictionary": some([1, 2, 30], pa.int32()).dictionary_encode(),
            "large": some([-(2**63), -5, 7, 2**53, 2**53 + 1, 2**63 - 1], pa.int64()),
            "code64": some([0, 7, 2**53, 2**53 + 1, 2**63, 2**64 - 1], pa.uint64()),
            "count64": some([0, 1, 7, 2**53 + 1], pa.uint64()),
            "clock_ns": some([0, 1, 999, 1_000, 52_200 * 10**9 + 1], pa.time64("ns")),
            "tick": some([_TICK, _TICK + 1, _TICK + 1_000, _TICK + 10**9], pa.timestamp("ns")),
            "padded": some([" x", "x\t", "\nx ", "\u00a0x\u3000", "x"], pa.string()),
        }
    )


TABLE = _table()
CHECKED = [
    "whole > 15", "not whole > 15", "whole in (15, 16, 99)", "whole not in (15)", "whole between 1 and 15",
    "whole not between 1 and 15", "part = 0.1", "single = 0.5", "single > 0.1", "price >= 1.5", "huge = 18446744073709551615",
    "huge % 10 = 5", "flag", "not flag", "flag = true", "flag and whole > 1", "flag or whole > 1", "name = 'it''s'",
    "name like 'a_b'", "name like '%a%'", "name like '50%'", "name like 'a\\b'", "name not like 'a%'", "lower(name) = 'a'",
    "upper(code) in ('AA', 'DL')", "length(name) > 1", "trim(name) = 'x'", "name is null", "whole is not null", "name > 'a'",
    "day >= '2024-01-01'", "day = '2024-02-29'", "seen >= '2024-01-01'", "seen = '2024-02-29 07:35:00'", "seen_ns > '2024-02-29'",
    "seen <= '9999-01-01'", "seen_ns in ('2024-02-29', '2024-06-30 07:35:00')", "clock > '12:00:00'",
    "day in ('2024-06-30', '1969-07-20')", "day > seen", "seen = seen_ns", "year(seen) = 2024", "month(day) = 6", "day(seen) > 28",
    "dayofweek(day) = 0", "hour(seen) = 7", "minute(seen_ns) = 35", "hour(clock) = 14", "coalesce(name, code) = 'AA'",
    "coalesce(whole, small, 3) > 2", "whole + small * 2 > 3", "whole - 1 < -small", "whole / 2 > 3", "whole / small > 3",
    "whole % 4 = 1", "whole % small = 1", "part % 2 > 0.5", "whole % 0 is null", "whole / 0 is null", "abs(whole) = 7",
    "abs(part) = 1.5", "ceil(part) = 16", "floor(part) = -2", "round(part) = 16", "round(part) = -2", "exp(single) < 1",
    "ln(abs(whole) + 1) > 2", "log10(abs(part) + 1) > 1", "sqrt(abs(whole)) > 3", "-whole > 3", "- -whole > 3", "1 = 1",
    "true", "false or whole = 1", "code = 'AA' and not (part > 0 or name is null)", '"whole" <> 15', "whole == 15",
    "dictionary >= 2", "(((whole)))=1", "day < seen and clock is not null", "whole > 1.5", "small <= part", "huge > whole",
    "part in (0)", "part not in (0)", "part in (-0.0, 2)", "huge in (-0.0)", "-part in (0, 1.5)", "whole - count64 < 0",
    "large > code64", "code64 >= large", "large = 9223372036854775808", "large != 9223372036854775808", "code64 > -1",
    "large in (-5, 9223372036854775808)", "code64 in (-1, 7, 18446744073709551615)", "code64 between -1 and large",
    "coalesce(count64, whole) = 7", "count64 - 1 > 6", "-1 - count64 < -8", "abs(count64) = 7", "large % count64 = 7",
    "clock_ns > '00:00:00'", "clock_ns = '00:00:00.000000001'", "clock_ns in ('00:00:00', '14:30:00.000000001')",
    "clock_ns <= '00:00:00.000001000'", "tick > '2024-01-01'", "tick = '2024-01-01 00:00:00.000000001'", "tick != '2024-01-01T00:00:00.000001'",
    "trim(padded) = 'x'", "(whole between small and 15) between flag and true",
    "not (whole between 1 and 15) between false and (part between 0 and 1)", "part % (1 / part) > 0",
    "year(day) >= 2020 and code != 'AA'", "part > 15 or part is null",
]  # fmt: skip


@pytest.fixture(scope="module")
def database():
    with duckdb.connect() as connection:
        connection.execute("SET ieee_floating_point_ops = false; SET error_on_division_by_zero = false")
        connection.register("rows", TABLE)
        yield connection


def _theirs(database, text: str) -> list:
    return [row[0] for row in database.execute(f"SELECT CAST(({text}) AS BOOLEAN) FROM rows").fetchall()]


def _ours(text: str) -> list:
    columns = {name: TABLE.column(name).combine_chunks() for name in TABLE.column_names}
    return condition(text).values(columns, _ROWS).cast(pa.bool_()).to_pylist()


def test_every_operator_and_function_is_compared() -> None:
    assert {name for text in CHECKED for name in _names(parsed(Source("", text)))} == set(FUNCTIONS)


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, Apply):
        yield node.name
        for arg in node.args:
            yield from _names(arg)


@pytest.mark.parametrize("text", CHECKED)
def test_the_values_are_those_of_duckdb(database, text):
    assert _ours(text) == _theirs(database, text)


# Expressions that are made up. All their operators are in the list above as well, which is easier to read.

_NUMBERS = st.sampled_from(["small", "whole", "part", "single", "2", "0", "-1", "15", "0.5"])
_TEXTS = st.sampled_from(["name", "lower(name)", "code", "'a'", "''", "'AA'"])
_TIMES = st.sampled_from(["day", "seen", "seen_ns", "tick"])
_MOMENTS = st.sampled_from(["", ".000000001", ".000000999", ".000001", ".0000010"])
_INTEGERS = st.sampled_from(
    ["small", "whole", "large", "code64", "count64", "0", "-1", "7", "9007199254740993", "9223372036854775807",
     "9223372036854775808", "18446744073709551615", "-9223372036854775808"]
)  # fmt: skip
_SIGN = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])


def _number(draw: st.DrawFn) -> str:
    sign = draw(st.sampled_from(["+", "-", "*", "/", "%", ""]))
    return f"{draw(_NUMBERS)} {sign} {draw(_NUMBERS)}" if sign else draw(_NUMBERS)


@st.composite
def _simple(draw: st.DrawFn) -> str:
    negation, sign = draw(st.sampled_from(["", "not "])), draw(_SIGN)
    forms = {
        "numbers": lambda: f"{_number(draw)} {sign} {_number(draw)}",
        "texts": lambda: f"{draw(_TEXTS)} {sign} {draw(_TEXTS)}",
        "times": lambda: f"{draw(_TIMES)} {sign} '2024-0{draw(st.integers(1, 9))}-29'",
        "columns": lambda: f"{draw(_TIMES)} {sign} {draw(_TIMES)}",
        "moments": lambda: f"tick {sign} '2024-01-01 00:00:00{draw(_MOMENTS)}'",
        "clocks": lambda: f"clock_ns {sign} '00:00:00{draw(_MOMENTS)}'",
        "clocks in": lambda: f"clock_ns {negation}in ('00:00:00{draw(_MOMENTS)}', '00:00:00{draw(_MOMENTS)}')",
        "zeros": lambda: f"part {negation}in ({draw(st.sampled_from(['0', '-0.0', '-0', '0.0']))}, 2)",
        "in": lambda: f"whole {negation}in ({draw(st.integers(-7, 16))}, 15, {draw(st.integers(0, 1))}.5)",
        "between": lambda: f"{draw(_NUMBERS)} {negation}between {draw(_NUMBERS)} and {draw(_NUMBERS)}",
        "large between": lambda: f"{draw(_INTEGERS)} {negation}between {draw(_INTEGERS)} and {draw(_INTEGERS)}",
        "null": lambda: f"{_number(draw)} is {negation}null",
        "flag": lambda: "flag",
    }
    return forms[draw(st.sampled_from(sorted(forms)))]()


_CONDITIONS = st.recursive(
    _simple(),
    lambda inner: st.one_of(
        st.builds("not {}".format, inner.map("({})".format)),
        st.builds("{} {} {}".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("({}) {}between ({}) and ({})".format, inner, st.sampled_from(["", "not "]), inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_CONDITIONS)
def test_made_up_conditions_have_the_values_of_duckdb(database, text):
    assert _ours(text) == _theirs(database, text)


@st.composite
def _of_integers(draw: st.DrawFn) -> str:
    """Arithmetic on integers of any size, with and without a sign, and what is compared with it."""
    calculated = f"{draw(_INTEGERS)} {draw(st.sampled_from('+-*%'))} {draw(_INTEGERS)}"
    left = draw(st.sampled_from([calculated, draw(_INTEGERS), f"coalesce({draw(_INTEGERS)}, {draw(_INTEGERS)})"]))
    negation = draw(st.sampled_from(["", "not "]))
    listed = f"{left} {negation}in ({', '.join(f'{number}' for number in draw(_LISTED))})"
    return draw(st.sampled_from([f"{left} {draw(_SIGN)} {draw(_INTEGERS)}", listed]))


_LISTED = st.lists(st.sampled_from([-1, 0, 7, 2**53, 2**63 - 1, 2**63, 2**64 - 1]), min_size=1, max_size=3)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_of_integers())
def test_integers_have_the_values_of_duckdb_or_are_refused(database, text):
    """DuckDB has integers of 128 bits, which are refused here."""
    try:
        found = _ours(text)
    except (DataError, OptionError) as error:
        assert "64 bits" in str(error) or "smaller numbers" in str(error)
        return
    try:
        expected = _theirs(database, text)
    except duckdb.OutOfRangeException:  # a difference below zero of integers without a sign
        return
    assert found == expected


def test_each_operator_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its value is compared with two ends, again and again."""
    calls: list[str] = []
    monkeypatch.setattr(expression, "applied", lambda name, values: (calls.append(name), applied(name, values))[1])
    text = "whole > 0"
    for _ in range(20):
        text = f"({text}) between true and true"
    assert _ours(text) == _ours("whole > 0")
    assert len(calls) < 100
