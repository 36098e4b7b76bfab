"""Laws of every norm: its weights maximise <w, θ> - r(w) over the ball, and its conjugate is the value of that maximum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streampgs.kernels.powers import dual_exponent
from streampgs.learn.norms import EUCLID, PNorm

NORMS = [EUCLID, *(PNorm(p) for p in (1.9, 1.8, 1.5, 1.2, 1.05))]
every_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: f"p{norm.p:g}")
duals = arrays(np.float64, 5, elements=st.floats(-10.0, 10.0).filter(lambda x: x == 0.0 or abs(x) > 1e-3))
radii = st.sampled_from([0.01, 0.3, 5.0, math.inf])


def regularizer(norm: PNorm, w: np.ndarray) -> float:
    return float(np.linalg.norm(w, norm.p) ** 2 / (2.0 * (norm.p - 1.0)))


def weights(norm: PNorm, theta: np.ndarray, radius: float, scale: float = 1.0) -> np.ndarray:
    """The weights from the sums that a learner keeps for λ = 3 θ, at a clock of 3."""
    scaled = 3.0 * theta / scale
    raised = np.sign(scaled) * np.abs(scaled) ** dual_exponent(norm.p)
    return norm.weights(raised, float(np.sum(np.abs(scaled) ** norm.q)), scale, 3.0, radius)


def conjugate(norm: PNorm, theta: np.ndarray, radius: float) -> float:
    return norm.conjugate(float(np.linalg.norm(theta, norm.q)), radius)


@every_norm
@given(theta=duals, radius=radii)
def test_the_conjugate_is_the_value_at_the_weights(norm: PNorm, theta: np.ndarray, radius: float) -> None:
    w = weights(norm, theta, radius)
    assert np.linalg.norm(w, norm.p) <= radius * (1.0 + 1e-9)
    assert conjugate(norm, theta, radius) == pytest.approx(float(w @ theta) - regularizer(norm, w), rel=1e-7, abs=1e-9)


@every_norm
@given(theta=duals, other=duals, radius=radii)
def test_no_other_weights_in_the_ball_have_a_larger_value(
    norm: PNorm, theta: np.ndarray, other: np.ndarray, radius: float
) -> None:
    size = np.linalg.norm(other, norm.p)
    inside = other * min(1.0, radius / size) if size else other
    reached = float(inside @ theta) - regularizer(norm, inside)
    assert reached <= conjugate(norm, theta, radius) * (1.0 + 1e-9) + 1e-9


@every_norm
@given(theta=duals, radius=radii)
def test_weights_do_not_depend_on_the_scale_of_the_sums(norm: PNorm, theta: np.ndarray, radius: float) -> None:
    assert weights(norm, theta, radius, 7.0) == pytest.approx(weights(norm, theta, radius), rel=1e-9, abs=1e-12)


@every_norm
@given(a=duals, b=duals)
def test_the_dual_distance_agrees_with_numpy_and_never_overflows(norm: PNorm, a: np.ndarray, b: np.ndarray) -> None:
    expected = float(np.linalg.norm(a - b, norm.q))
    assert norm.dual_distance(a, b) == pytest.approx(expected, rel=1e-9)
    assert norm.dual_distance(1e250 * a, 1e250 * b) == pytest.approx(1e250 * expected, rel=1e-9)


@every_norm
def test_the_radius_contains_the_optimum(norm: PNorm) -> None:
    """F(w) = 2·|1 - w| + σ·r(w) in one dimension, minimised on a grid."""
    for sigma in (0.1, 1.0, 10.0):
        grid = np.linspace(-2.0, 2.0, 4001)
        optimum = grid[np.argmin(2.0 * np.abs(1.0 - grid) + sigma * grid**2 / (2.0 * (norm.p - 1.0)))]
        assert abs(optimum) <= norm.radius_of_optimum(2.0, sigma)


@pytest.mark.parametrize("p", [1.0, 0.5, 2.1, math.nan])
def test_invalid_powers_are_refused(p: float) -> None:
    with pytest.raises(ValueError, match="p "):
        PNorm(p)
