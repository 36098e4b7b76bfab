"""Powers by square roots agree with pow, and a decimal p is read as the exact fraction that it approximates."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.kernels.powers import dual_exponent, power_for

# p = 1.8 uses 2.25 and 1.25, and p = 1.5 uses 3 and 2. 8.75 is the largest exponent that is computed by roots.
EXPONENTS = [1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 3.0, 10.0 / 3.0, 4.75, 8.75, 9.0, 9.25, 10.0, 11.0, 101.0, 1000.0]
# Between these powers of ten, the result is a normal float64.
SMALLEST_POWER, LARGEST_POWER = -290.0, 300.0


@pytest.mark.parametrize("exponent", EXPONENTS)
@given(share=st.floats(0.0, 1.0))
def test_power_agrees_with_the_math_library(exponent, share):
    x = 10.0 ** ((SMALLEST_POWER + share * (LARGEST_POWER - SMALLEST_POWER)) / exponent)
    assert power_for(exponent)(x) == pytest.approx(math.pow(x, exponent), rel=1e-12, abs=0.0)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_of_zero_and_one_are_exact(exponent):
    assert power_for(exponent)(0.0) == 0.0
    assert power_for(exponent)(1.0) == 1.0


@pytest.mark.parametrize(
    ("p", "exponent"),
    [(2.0, 1.0), (1.8, 1.25), (1.5, 2.0), (1.25, 4.0), (1.2, 5.0), (1.1, 10.0), (1.05, 20.0), (1.01, 100.0)],
)
def test_the_dual_exponent_of_a_decimal_p_is_an_exact_quarter(p, exponent):
    assert dual_exponent(p) == exponent


@given(p=st.floats(1.001, 2.0))
def test_p_and_q_are_dual(p):
    q = dual_exponent(p) + 1.0
    assert (p - 1.0) * (q - 1.0) == pytest.approx(1.0, rel=1e-9)
    assert 1.0 / p + 1.0 / q == pytest.approx(1.0, rel=1e-9)
