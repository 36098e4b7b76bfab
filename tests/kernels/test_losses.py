"""The laws of a loss: its slope is a sub-gradient of its value, it is convex, and nothing overflows that need not."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from streampgs.kernels.losses import LOSSES, Loss, loss_values

SHAPES = {"huber": (1.0, 0.25, 3.0), "quantile": (0.5, 0.1, 0.9)}
LARGEST_SCORE = 1e300
# Squares of what is larger are beyond the largest float64, whoever computes them.
LARGEST_SQUARED_SCORE = 1e150

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
scores = st.floats(-60.0, 60.0)


def labels_and_shapes(loss: Loss) -> st.SearchStrategy[tuple[float, float]]:
    labels = st.sampled_from([-1.0, 1.0]) if loss.classifies else st.floats(-20.0, 20.0)
    return st.tuples(labels, st.sampled_from(SHAPES.get(loss.name, (0.0,))))


def kinks(loss: Loss, y: float) -> list[float]:
    """Where the value has no derivative."""
    return {"hinge": [y], "absolute": [y], "quantile": [y]}.get(loss.name, [])


def rounding(*values: float) -> float:
    return 1e-14 * (1.0 + max(abs(value) for value in values))


@every_loss
@given(data=st.data())
def test_slope_is_the_difference_quotient_of_the_value_away_from_kinks(loss, data):
    y, shape = data.draw(labels_and_shapes(loss))
    s = data.draw(scores)
    h = 1e-5
    assume(all(abs(s - kink) > 2 * h for kink in kinks(loss, y)))
    above, below = loss.value(s + h, y, shape), loss.value(s - h, y, shape)
    quotient = (above - below) / (2 * h)
    # Where a piece of a parabola ends, the second derivative jumps and the quotient is off by h times that.
    assert loss.slope(s, y, shape) == pytest.approx(quotient, abs=2 * h + rounding(above, below) / h)


@every_loss
@given(data=st.data())
def test_slope_lies_between_the_one_sided_quotients_everywhere(loss, data):
    y, shape = data.draw(labels_and_shapes(loss))
    s = data.draw(st.one_of(scores, st.sampled_from([y, -y, 0.0, y + shape, y - shape])))
    h = data.draw(st.sampled_from([1e-3, 0.1, 5.0]))
    at, above, below = (loss.value(x, y, shape) for x in (s, s + h, s - h))
    slack = 4 * rounding(at, above, below) / h
    assert (at - below) / h - slack <= loss.slope(s, y, shape) <= (above - at) / h + slack


@every_loss
@given(data=st.data())
def test_value_lies_above_every_tangent(loss, data):
    y, shape = data.draw(labels_and_shapes(loss))
    s, elsewhere = data.draw(scores), data.draw(scores)
    tangent = loss.value(s, y, shape) + loss.slope(s, y, shape) * (elsewhere - s)
    value = loss.value(elsewhere, y, shape)
    assert value >= tangent - 10 * rounding(value, tangent)


@every_loss
@given(data=st.data())
def test_value_is_convex_and_never_negative(loss, data):
    y, shape = data.draw(labels_and_shapes(loss))
    first, last, share = data.draw(scores), data.draw(scores), data.draw(st.floats(0.0, 1.0))
    between = share * first + (1.0 - share) * last
    chord = share * loss.value(first, y, shape) + (1.0 - share) * loss.value(last, y, shape)
    value = loss.value(between, y, shape)
    assert 0.0 <= value <= chord + 10 * rounding(chord)


@every_loss
@given(data=st.data())
@example(data=None)
def test_huge_scores_give_finite_values_and_slopes(loss, data):
    largest = LARGEST_SCORE if loss.lipschitz else LARGEST_SQUARED_SCORE
    if data is None:
        y, shape, sizes = 1.0, SHAPES.get(loss.name, (0.0,))[0], [largest]
    else:
        y, shape = data.draw(labels_and_shapes(loss))
        sizes = [10.0 ** data.draw(st.floats(-300.0, math.log10(largest)))]
    for size in sizes:
        for s in (size, -size):
            assert math.isfinite(loss.value(s, y, shape))
            assert math.isfinite(loss.slope(s, y, shape))


@every_loss
@pytest.mark.parametrize("s", [LARGEST_SCORE, -LARGEST_SCORE])
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_the_hugest_scores_never_give_nan_and_keep_a_finite_slope(loss, s, y):
    shape = SHAPES.get(loss.name, (0.0,))[0]
    assert not math.isnan(loss.value(s, y, shape))
    assert math.isfinite(loss.slope(s, y, shape))


@given(y=st.sampled_from([-1.0, 1.0]), s=st.one_of(st.floats(-50.0, 50.0), st.floats(-1e4, 1e4)))
@example(y=1.0, s=0.0)
@example(y=-1.0, s=-745.0)
@example(y=1.0, s=-1e4)
def test_logistic_against_50_digits(y, s):
    with localcontext() as context:
        context.prec = 50
        odds = (-Decimal(y) * Decimal(s)).exp()
        value, slope = float((1 + odds).ln()), float(-Decimal(y) * odds / (1 + odds))
    # Below 1e-300 float64 itself has fewer digits.
    assert LOSSES["logistic"].value(s, y, 0.0) == pytest.approx(value, rel=4e-15, abs=1e-300)
    assert LOSSES["logistic"].slope(s, y, 0.0) == pytest.approx(slope, rel=4e-15, abs=1e-300)


AT_ZERO = {
    "hinge": lambda y, shape: 1.0,
    "logistic": lambda y, shape: math.log(2.0),
    "squared": lambda y, shape: y * y,
    "squared-hinge": lambda y, shape: 1.0,
    "modified-huber": lambda y, shape: 1.0,
    "huber": lambda y, shape: y * y / 2 if abs(y) <= shape else shape * abs(y) - shape * shape / 2,
    "absolute": lambda y, shape: abs(y),
    "quantile": lambda y, shape: shape * y if y > 0 else (shape - 1.0) * y,
}


@every_loss
@given(data=st.data())
def test_value_at_score_zero(loss, data):
    y, shape = data.draw(labels_and_shapes(loss))
    expected = AT_ZERO[loss.name](y, shape)
    assert loss.value(0.0, y, shape) == pytest.approx(expected, rel=1e-15)
    assert loss_values(loss)(0.0, [y, y], shape) == pytest.approx([expected, expected], rel=1e-15)


@every_loss
def test_lipschitz_says_whether_the_slope_is_bounded(loss):
    shape = SHAPES.get(loss.name, (0.0,))[0]
    steepest = {
        size: max(abs(loss.slope(s, y, shape)) for s in (size, -size) for y in (-1.0, 1.0))
        for size in (1e3, 1e9, 1e150, 1e300)
    }
    if loss.lipschitz:
        assert len(set(steepest.values())) == 1
        assert steepest[1e300] <= 4.0
    else:
        assert steepest[1e3] < steepest[1e9] < steepest[1e150] < steepest[1e300]


@every_loss
def test_steepness_is_no_less_than_any_second_derivative(loss):
    """So the first step, 1/(steepness·mean ‖x‖²), does not overshoot."""
    shape, h = SHAPES.get(loss.name, (0.0,))[0], 1e-3
    places = [h * (place + 0.5) for place in range(-4000, 4000)]
    bends = [
        (loss.slope(s + h, 1.0, shape) - loss.slope(s, 1.0, shape)) / h
        for s in places
        if not any(s <= kink <= s + h for kink in kinks(loss, 1.0))
    ]
    assert loss.steepness > 0.0
    assert max(bends) <= loss.steepness * (1.0 + 1e-6)


@every_loss
@given(data=st.data())
def test_classes_are_mirror_images_and_targets_may_be_moved(loss, data):
    (y, shape), s = data.draw(labels_and_shapes(loss)), data.draw(scores)
    if loss.classifies:
        assert loss.value(-s, -y, shape) == loss.value(s, y, shape)
        assert loss.slope(-s, -y, shape) == -loss.slope(s, y, shape)
    else:
        assert loss.value(s - y, 0.0, shape) == loss.value(s, y, shape)


def test_names_are_keys():
    assert all(name == loss.name for name, loss in LOSSES.items())
