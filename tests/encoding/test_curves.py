"""Curves of numbers, and crosses of two columns of which one is a number: what a row's entries are, and what they do not depend
on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.errors import OptionError
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import of_family
from streampgs.encoding.kinds.curve import Curve
from streampgs.encoding.kinds.surface import Surface
from streampgs.encoding.learning import grown, learn, with_straight_numbers
from streampgs.encoding.plan import plan_columns, plan_growth
from streampgs.options.commands import EncodingOptions
from tests.encoding.tables import encoded

DRAW = np.random.default_rng(3)
NUMBERS = DRAW.lognormal(size=400)
TABLE = {
    "x": pa.array(NUMBERS),
    "y": pa.array(DRAW.integers(0, 5, 400)),
    "kind": pa.array(DRAW.choice(["a", "b", "c"], 400).tolist()),
    "yes": pa.array(DRAW.random(400) < 0.5),
}


def learnt(arrays: dict[str, Any] = TABLE, **options: Any) -> Encoding:
    chosen = EncodingOptions(**options)
    schema = pa.schema([pa.field(name, array.type) for name, array in arrays.items()])
    return learn(plan_columns(schema, chosen, {}, "a table"), chosen, [arrays])


def rows_of(encoding: Encoding, arrays: dict[str, Any]) -> list[dict[int, float]]:
    found = encoded(encoding, arrays, len(next(iter(arrays.values()))))
    return [{index: float(np.frombuffer(bits, np.float32)[0]) for index, bits in row} for row in found]


def plain_shares(value: float | None, knots: tuple[float, ...]) -> dict[int, float]:
    """By place: how near a value is to the knots next to it."""
    if value is None:
        return {}
    low = max([0, *(k for k in range(len(knots) - 1) if knots[k] <= value)])
    share = (value - knots[low]) / (knots[low + 1] - knots[low])
    share = min(1.0, max(0.0, share))
    return {place: part for place, part in ((low, 1.0 - share), (low + 1, share)) if part}


def of_column(encoding: Encoding, name: str) -> Any:
    return next(column for column in encoding.columns if column.name == name)


@given(values=st.lists(st.one_of(st.none(), st.floats(-5, 50)), min_size=1, max_size=10))
def test_a_number_has_the_knots_next_to_it_besides_itself(values: list[float | None]) -> None:
    encoding = learnt({"x": TABLE["x"]}, numbers="curves")
    number, curve = of_column(encoding, "x"), of_column(encoding, "curve of x")
    first = encoding.first_of["curve of x"]
    for value, row in zip(values, rows_of(encoding, {"x": pa.array(values, pa.float64())}), strict=True):
        shares = {place - first: part for place, part in row.items() if place >= first}
        assert shares == pytest.approx(plain_shares(value, curve.knots[0]), abs=1e-6)
        straight = 0.0 if value is None else (value - number.centre[0]) * number.scale[0]
        assert row.get(encoding.first_of["x"], 0.0) == pytest.approx(min(8.0, max(-8.0, straight)), abs=1e-5)


def test_knots_are_quantiles_or_all_values_and_few_values_have_none() -> None:
    encoding = learnt(numbers="curves")
    knots = np.array(of_column(encoding, "curve of x").knots[0])
    shares = [np.mean(knots[0] > NUMBERS), *np.diff([np.mean(knot > NUMBERS) for knot in knots])]
    assert len(knots) == 8
    assert shares[0] < 0.01
    assert shares[1:] == pytest.approx([0.99 / 7] * 7, abs=0.01)
    assert of_column(encoding, "curve of y").knots == ((0.0, 1.0, 2.0, 3.0, 4.0),)
    assert "curve of yes" not in encoding.first_of, "two values have no curve"


def test_features_of_curves_are_named_by_their_knots() -> None:
    encoding = learnt(numbers="curves")
    first = encoding.first_of["curve of y"]
    assert [encoding.name_of(first + place) for place in range(5)] == [f"y near {place}" for place in range(5)]


def test_without_its_curves_an_encoding_is_the_one_that_never_had_any() -> None:
    curved, straight = learnt(numbers="curves"), learnt(numbers="linear")
    found = with_straight_numbers(curved, [TABLE])
    assert found.digest == straight.digest
    assert of_family(found.columns, Curve) == []
    assert rows_of(found, TABLE) == rows_of(straight, TABLE)
    assert [found.name_of(k) for k in range(8)] == [straight.name_of(k) for k in range(8)]


def test_columns_that_join_later_have_curves_like_the_others() -> None:
    encoding = learnt({"x": TABLE["x"]}, numbers="curves")
    schema = pa.schema([pa.field(name, array.type) for name, array in TABLE.items()])
    more, _ = grown(encoding, plan_growth(schema, encoding, {}), [TABLE])
    assert [column.name for column, _ in of_family(more.columns, Curve)] == ["curve of y"]
    before, after = rows_of(encoding, {"x": TABLE["x"]}), rows_of(more, TABLE)
    assert [{k: v for k, v in row.items() if k < more.first_feature} for row in after] == before


PAIRS = [("x", "y"), ("x", "kind"), ("kind", "x"), ("yes", "x"), ("yes", "kind")]


@pytest.mark.parametrize("pair", PAIRS, ids="×".join)
def test_a_cross_with_a_number_has_the_products_of_the_shares_of_both(pair: tuple[str, str]) -> None:
    """Equal combinations have equal features, and different ones different features."""
    alone, crossed = learnt(hash_bits=20), learnt(hash_bits=20, cross=(pair,))
    column = of_column(crossed, "×".join(pair))
    assert isinstance(of_family((column,), Surface)[0][1], Surface)
    known: dict[Any, int] = {}
    for row, (before, after) in enumerate(zip(rows_of(alone, TABLE), rows_of(crossed, TABLE), strict=True)):
        products: dict[Any, float] = {(): 1.0}
        for name, knots in zip(pair, column.knots, strict=True):
            value = TABLE[name][row].as_py()
            parts = plain_shares(float(value), knots) if knots else {value: 1.0}
            products = {(*key, part): share * of for key, share in products.items() for part, of in parts.items()}
        own = {place: value for place, value in after.items() if place not in before}
        assert sorted(map(abs, own.values())) == pytest.approx(sorted(products.values()), abs=1e-6)
        if len(products) == 1:
            ((key, place),) = zip(products, own, strict=True)
            assert known.setdefault(key, place) == place
    assert len(set(known.values())) == len(known)


def test_null_is_a_value_of_its_own_in_a_cross() -> None:
    crossed = learnt(hash_bits=20, cross=(("x", "kind"),))
    arrays = {**TABLE, "x": pa.nulls(400, pa.float64())}
    own = [
        set(row) - set(other)
        for row, other in zip(rows_of(crossed, arrays), rows_of(learnt(hash_bits=20), arrays), strict=True)
    ]
    assert {len(features) for features in own} == {1}
    assert len(set.union(*own)) == 3, "one for each kind"


def test_names_of_crosses_say_both_values() -> None:
    encoding = learnt(cross=(("y", "kind"),))
    named = [name for name in encoding.names if " " in name]
    assert "y=3 kind=b" in named
    assert len(named) == 15


@given(cut=st.integers(0, 400))
def test_a_row_does_not_depend_on_its_batch(cut: int) -> None:
    encoding = learnt(numbers="curves", cross=tuple(PAIRS))
    encoder = Encoder(encoding, reusing=True)
    parts = [{name: array[part] for name, array in TABLE.items()} for part in (slice(0, cut), slice(cut, 400))]
    found = [row for part in parts for row in encoded(encoding, part, len(part["x"]), encoder)]
    assert found == encoded(encoding, TABLE, 400)


def test_a_number_that_is_not_finite_stays_a_fault() -> None:
    encoding = learnt({"x": TABLE["x"]}, numbers="curves")
    (row,) = rows_of(encoding, {"x": pa.array([math.nan])})
    assert any(math.isnan(value) for value in row.values())


def test_names_of_curves_and_crosses_never_stand_for_columns_of_the_table() -> None:
    arrays = {"x": TABLE["x"], "y": TABLE["y"], "curve of x": TABLE["kind"], "x×y": TABLE["yes"]}
    encoding = learnt(arrays, numbers="curves")
    assert [column.name for column, _ in of_family(encoding.columns, Curve)] == ["curve of y"]
    with pytest.raises(OptionError, match="there is a column 'x×y' already"):
        learnt(arrays, cross=(("x", "y"),))
