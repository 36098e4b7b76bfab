"""Laws of every registered loss. A new loss is tested without being listed here."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.kernels.judge_loop import loss_sum_for
from streampgs.losses import CLASSIFYING, LOSSES, Loss

LARGEST_SCORE = 1e300
# Squares of larger numbers exceed the largest float64.
LARGEST_SQUARED_SCORE = 1e150

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
scores = st.floats(-60.0, 60.0)


def shapes(loss: Loss) -> list[float]:
    """The default for the sample labels, and values across the allowed range."""
    if loss.parameter is None:
        return [0.0]
    low, high = loss.parameter.above, loss.parameter.below
    inside = [low + 0.25, low + 3.0] if math.isinf(high) else [low + share * (high - low) for share in (0.1, 0.9)]
    return [loss.shape(sample_labels(loss)), *inside]


def sample_labels(loss: Loss, count: int = 400) -> np.ndarray:
    random = np.random.default_rng(7)
    if loss.classifies:
        return np.where(random.random(count) < 0.3, 1.0, -1.0)
    return np.maximum(np.round(random.normal(2.0, 2.0, count), 1), loss.lowest_label)


def labels(loss: Loss) -> st.SearchStrategy[float]:
    return st.sampled_from([-1.0, 1.0]) if loss.classifies else st.floats(max(-20.0, loss.lowest_label), 20.0)


def labels_and_shapes(loss: Loss) -> st.SearchStrategy[tuple[float, float]]:
    return st.tuples(labels(loss), st.sampled_from(shapes(loss)))


def has_unbounded_curvature(loss: Loss) -> bool:
    """Such a loss declares the unit of its steps instead."""
    return loss.unit(sample_labels(loss)) != 1.0


def rounding(*values: float) -> float:
    return 1e-14 * (1.0 + max(abs(value) for value in values))


@every_loss
@given(data=st.data())
def test_slope_is_between_the_one_sided_difference_quotients(loss, data):
    """For small distances, this makes the slope the derivative where the loss has one."""
    y, shape = data.draw(labels_and_shapes(loss))
    s = data.draw(st.one_of(scores, st.sampled_from([y, -y, 0.0, shape, y + shape, y - shape])))
    h = data.draw(st.sampled_from([1e-5, 1e-3, 0.1, 5.0]))
    at, above, below = (loss.value(x, y, shape) for x in (s, s + h, s - h))
    slack = 4 * rounding(at, above, below) / h
    assert (at - below) / h - slack <= loss.slope(s, y, shape) <= (above - at) / h + slack


@every_loss
@given(data=st.data())
def test_value_is_never_below_a_tangent(loss, data):
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
def test_huge_scores_give_finite_values_and_slopes(loss, data):
    largest = LARGEST_SCORE if loss.lipschitz else LARGEST_SQUARED_SCORE
    y, shape = data.draw(labels_and_shapes(loss))
    for size in (largest, 10.0 ** data.draw(st.floats(-300.0, math.log10(largest)))):
        for s in (size, -size):
            assert math.isfinite(loss.value(s, y, shape))
            assert math.isfinite(loss.slope(s, y, shape))


@every_loss
@pytest.mark.parametrize("s", [LARGEST_SCORE, -LARGEST_SCORE])
def test_the_largest_scores_never_give_nan_and_keep_a_finite_slope(loss, s):
    for y in sample_labels(loss, 20).tolist():
        for shape in shapes(loss):
            assert not math.isnan(loss.value(s, y, shape))
            assert math.isfinite(loss.slope(s, y, shape))


@every_loss
def test_lipschitz_is_true_if_and_only_if_the_slope_is_bounded(loss):
    for shape in shapes(loss):
        steepest = [
            max(abs(loss.slope(s, y, shape)) for s in (size, -size) for y in sample_labels(loss, 20).tolist())
            for size in (1e3, 1e9, 1e150, 1e300)
        ]
        if loss.lipschitz:
            assert len(set(steepest)) == 1
        else:
            assert sorted(set(steepest)) == steepest


def second_derivative(loss: Loss, s: float, y: float, shape: float, h: float = 1e-3) -> float:
    """The difference quotient of the slope, or 0 if the slope jumps between s and s + h."""

    def rise(low: float, high: float) -> float:
        return loss.slope(high, y, shape) - loss.slope(low, y, shape)

    low, high, whole = s, s + h, rise(s, s + h)
    for _ in range(20):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if rise(low, middle) > rise(middle, high) else (middle, high)
    return 0.0 if rise(low, high) > 0.3 * whole else whole / h


@every_loss
def test_curvature_is_a_bound_of_the_second_derivative(loss):
    """The bound keeps the first step, 1/(curvature·mean ‖x‖²), from overshooting. If a loss has no bound, models start
    at the base, and `curvature` is the second derivative there."""
    found, h = sample_labels(loss), 1e-3
    shape, y = loss.shape(found), float(found[0])
    places = [h * (place + 0.5) for place in range(-4000, 4000)]
    if has_unbounded_curvature(loss):
        places = [loss.base(found, np.empty(0), np.empty(0), shape) - h]
    assert loss.curvature > 0.0
    bend = max(second_derivative(loss, s, y, shape) for s in places)
    assert bend <= loss.curvature / loss.unit(found) * (1.0 + 1e-6)


@every_loss
@given(data=st.data())
def test_classification_is_symmetric_and_regression_depends_only_on_score_minus_label(loss, data):
    (y, shape), s = data.draw(labels_and_shapes(loss)), data.draw(scores)
    if loss.classifies:
        assert loss.value(-s, -y, shape) == loss.value(s, y, shape)
        assert loss.slope(-s, -y, shape) == -loss.slope(s, y, shape)
    elif loss.prediction(np.array([s])) == s:
        assert loss.value(s - y, 0.0, shape) == loss.value(s, y, shape)


@every_loss
@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])
@pytest.mark.parametrize("shifted", [False, True], ids=["no offsets", "offsets"])
def test_no_constant_score_has_a_smaller_mean_loss_than_the_base(loss, weighted, shifted):
    found, random = sample_labels(loss), np.random.default_rng(8)
    weights = random.uniform(0.0, 3.0, len(found)) if weighted else np.empty(0)
    offsets = random.normal(0.0, 0.3, len(found)) if shifted and not loss.classifies else np.empty(0)
    counted = weights if weighted else np.ones(len(found))

    def mean_loss(s: float) -> float:
        return float(counted @ loss.values(s + (offsets if offsets.size else 0.0), found, shape))

    # Only the default and larger shapes: the rate of a Poisson model must be in the range where it is exponential.
    for shape in shapes(loss):
        if has_unbounded_curvature(loss) and shape < loss.shape(found):
            continue
        base = loss.base(found, weights, offsets, shape)
        for distance in (1e-6, 1e-3, 0.1, 1.0, 10.0):
            for s in (base - distance, base + distance):
                assert mean_loss(s) >= mean_loss(base) * (1.0 - 1e-12)


@every_loss
def test_base_is_finite_for_labels_of_one_value_and_zero_without_rows(loss):
    shape, value = shapes(loss)[0], max(1.0, loss.lowest_label)
    nothing = np.empty(0)
    assert math.isfinite(loss.base(np.full(5, value), nothing, nothing, shape))
    if math.isfinite(loss.lowest_label):
        assert math.isfinite(loss.base(np.full(5, loss.lowest_label), nothing, nothing, shape))
    assert loss.base(np.ones(3), np.zeros(3), nothing, shape) == loss.base(nothing, nothing, nothing, shape) == 0.0


@every_loss
@given(data=st.data(), times=st.sampled_from([0.01, 3.0, 1e4]))
def test_larger_labels_and_scores_have_a_loss_that_is_larger_by_the_declared_degree(loss, data, times):
    """So a model may see labels in another unit."""
    (y, shape), s = data.draw(labels_and_shapes(loss)), data.draw(scores)
    if loss.degree:
        larger = loss.value(times * s, times * y, loss.scaled_shape(shape, 1.0 / times))
        assert larger == pytest.approx(times**loss.degree * loss.value(s, y, shape), rel=1e-9, abs=1e-9 * times**2)
    assert (loss.degree > 0) == (loss.scale(np.array([1.0, 4.0, 30.0]), np.ones(3)) != 1.0)


@every_loss
@given(labels=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), times=st.sampled_from([0.5, 3.0, 1e6]))
def test_the_scale_of_labels_grows_with_them_ignores_a_shift_and_counts_weights_as_repetitions(loss, labels, times):
    found, repeats = np.array(labels), 1 + np.arange(len(labels)) % 3
    scale = loss.scale(found, np.ones(len(found)))
    assert 0.0 < scale < math.inf
    if loss.degree and np.ptp(found) > 1e-3:
        assert loss.scale(times * found, np.ones(len(found))) == pytest.approx(times * scale, rel=1e-9)
        assert loss.scale(found + 7.0, np.ones(len(found))) == pytest.approx(scale, rel=1e-3)
        repeated = np.repeat(found, repeats)
        weighted = loss.scale(found, repeats.astype(float))
        assert weighted == pytest.approx(loss.scale(repeated, np.ones(len(repeated))), rel=1e-6)
    assert loss.scale(found, np.zeros(len(found))) == loss.scale(found[:0], np.empty(0)) == 1.0


@every_loss
def test_the_unit_and_the_default_shape_are_valid_for_any_labels(loss):
    one = np.array([max(1.0, loss.lowest_label)])
    for found in (sample_labels(loss), np.tile(sample_labels(loss)[:, np.newaxis], 2), one, one[:0], np.zeros(4)):
        assert 0.0 < loss.unit(found) < math.inf
        if loss.parameter is not None:
            assert loss.parameter.above < loss.shape(found) < loss.parameter.below


@every_loss
def test_probabilities_increase_with_the_score_and_exist_only_for_classification(loss):
    if loss.probability is None:
        return
    places = np.linspace(-800.0, 800.0, 1601)
    found = loss.probability(places)
    assert loss.classifies
    assert np.all((found >= 0.0) & (found <= 1.0) & (np.diff(found, prepend=0.0) >= 0.0))
    np.testing.assert_allclose(found + found[::-1], 1.0, rtol=1e-15)


@every_loss
def test_predictions_increase_with_the_score(loss):
    if not loss.classifies:
        assert np.all(np.diff(loss.prediction(np.linspace(-800.0, 600.0, 1401))) >= 0.0)


@every_loss
def test_the_compiled_sum_agrees_with_the_sum_of_the_plain_values(loss):
    random, found = np.random.default_rng(9), sample_labels(loss)
    weights, places = random.uniform(0.0, 2.0, len(found)), random.normal(0.0, 3.0, len(found))
    for shape in shapes(loss):
        expected = math.fsum(weights * loss.values(places, found, shape))
        assert loss_sum_for(loss)(places, found, weights, shape) == pytest.approx(expected, rel=1e-13)


def test_keys_are_names_and_every_formula_has_a_unique_name():
    """Compiled code is cached under the name of its formula. If two formulas had one name, the wrong code would run."""
    assert all(name == loss.name for name, loss in LOSSES.items())
    assert tuple(name for name, loss in LOSSES.items() if loss.classifies) == CLASSIFYING
    formulas = [
        (formula.__module__, formula.__qualname__) for loss in LOSSES.values() for formula in (loss.value, loss.slope)
    ]
    assert len(set(formulas)) == len(formulas)
    assert all("<" not in name for _, name in formulas)


def test_the_registry_needs_no_compiler():
    program = "import sys, streampgs.losses; print(sorted({'numba', 'pyarrow', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Known values.


@given(y=st.sampled_from([-1.0, 1.0]), s=st.one_of(st.floats(-50.0, 50.0), st.floats(-1e4, 1e4)))
@example(y=1.0, s=0.0)
@example(y=-1.0, s=-745.0)
@example(y=1.0, s=-1e4)
def test_logistic_agrees_with_arithmetic_in_50_digits(y, s):
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


@pytest.mark.parametrize("name", AT_ZERO)
@given(data=st.data())
def test_value_at_score_zero(name, data):
    loss = LOSSES[name]
    y, shape = data.draw(labels_and_shapes(loss))
    expected = AT_ZERO[name](y, shape)
    assert loss.value(0.0, y, shape) == pytest.approx(expected, rel=1e-15)
    assert loss.values(0.0, np.array([y, y]), shape) == pytest.approx([expected, expected], rel=1e-15)
