"""exp, log1p, log2 and powers agree with the math library over their whole range, and the compiled forms agree with the
plain ones."""

from __future__ import annotations

import math
import sys

import numba
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.kernels.vector_math import exp2_of, exp_of_negative, log1p_of_unit, log2_of, power_of

FEW_ULP = 2e-15
POWER_TOLERANCE = 1e-12
SMALLEST_NORMAL, LARGEST = sys.float_info.min, sys.float_info.max
SMALLEST_SUBNORMAL = 5e-324
LOWEST_EXPONENT = -708.0

any_normal = st.floats(SMALLEST_NORMAL, LARGEST)
wide_exponents = st.one_of(
    st.floats(1e-3, 1e3), st.sampled_from([1e-300, 1e-9, 0.25, 0.5, 1.0, 1.25, 2.0, 9.25, 101.0])
)


def relative(found: float, expected: float) -> float:
    return abs(found - expected) / abs(expected)


# The exponential.


@given(x=st.floats(LOWEST_EXPONENT, 0.0))
@example(x=-1e-300)
@example(x=-SMALLEST_SUBNORMAL)
@example(x=-(2.0**-53))
@example(x=-0.5 * math.log(2.0))
@example(x=math.nextafter(-0.5 * math.log(2.0), -1.0))
def test_exp_agrees_with_the_math_library(x):
    assert relative(exp_of_negative(x), math.exp(x)) <= FEW_ULP


@given(x=st.floats(LOWEST_EXPONENT, 0.0), share=st.floats(0.0, 1.0))
def test_exp_increases_up_to_rounding_and_stays_between_0_and_1(x, share):
    y = x * share
    assert 0.0 < exp_of_negative(x) <= exp_of_negative(y) * (1.0 + FEW_ULP) <= 1.0 + FEW_ULP


# Logarithms.


@given(x=st.floats(0.0, 1.0, exclude_min=True))
@example(x=1.0)
@example(x=SMALLEST_SUBNORMAL)
@example(x=SMALLEST_NORMAL)
@example(x=2.0**-53)
@example(x=1e-9)
def test_log1p_agrees_with_the_math_library(x):
    # Subnormal numbers have fewer digits, so their relative error may be larger.
    assert abs(log1p_of_unit(x) - math.log1p(x)) <= FEW_ULP * math.log1p(x) + SMALLEST_SUBNORMAL


@given(x=any_normal)
@example(x=LARGEST)
@example(x=SMALLEST_NORMAL)
@example(x=math.sqrt(0.5))
@example(x=math.nextafter(math.sqrt(0.5), 0.0))
@example(x=math.nextafter(math.sqrt(2.0), 0.0))
@example(x=math.nextafter(math.sqrt(2.0), 2.0))
@example(x=math.nextafter(1.0, 0.0))
@example(x=math.nextafter(1.0, 2.0))
def test_log2_agrees_with_the_math_library(x):
    assert abs(log2_of(x) - math.log2(x)) <= FEW_ULP * abs(math.log2(x))


# Powers.


@given(y=st.floats(-1022.0, 1023.0, exclude_max=True))
@example(y=math.nextafter(1023.0, 0.0))
@example(y=0.5)
@example(y=-0.5)
@example(y=math.nextafter(0.5, 1.0))
def test_exp2_agrees_with_the_math_library(y):
    assert relative(exp2_of(y), math.exp2(y)) <= FEW_ULP


@given(exponent=wide_exponents, share=st.floats(0.0, 1.0))
def test_power_agrees_with_the_math_library(exponent, share):
    """For every normal x whose power is a normal number."""
    low = max(-1022.0, -1021.9 / exponent)
    high = min(1023.0, 1022.9 / exponent)
    x = 2.0 ** (low + share * (high - low))
    assert relative(power_of(x, exponent), math.pow(x, exponent)) <= POWER_TOLERANCE


@given(exponent=wide_exponents)
def test_powers_of_zero_and_one_are_exact_and_powers_of_subnormal_numbers_are_zero(exponent):
    assert power_of(0.0, exponent) == 0.0
    assert power_of(1.0, exponent) == 1.0
    for x in (SMALLEST_SUBNORMAL, 1e-310, math.nextafter(SMALLEST_NORMAL, 0.0)):
        assert power_of(x, exponent) == 0.0


# The compiled forms. They may round a product and a sum once instead of twice; nothing else differs.


@numba.njit
def compiled_forms(x, exponents, out):
    for k in range(x.size):
        out[0, k] = exp_of_negative(-708.0 * x[k])
        out[1, k] = log1p_of_unit(x[k])
        out[2, k] = log2_of(x[k] * 1e300 + 1e-300)
        out[3, k] = exp2_of(2046.0 * x[k] - 1023.0)
        out[4, k] = power_of(x[k] * 1e3, exponents[k])


def plain_forms(x, exponents):
    return np.array(
        [
            [
                exp_of_negative(-708.0 * a),
                log1p_of_unit(a),
                log2_of(a * 1e300 + 1e-300),
                exp2_of(2046.0 * a - 1023.0),
                power_of(a * 1e3, e),
            ]
            for a, e in zip(x.tolist(), exponents.tolist(), strict=True)
        ]
    ).T


def test_compiled_and_plain_forms_agree():
    random = np.random.default_rng(0)
    ends = [0.0, 1.0, 0.5, 1e-300, SMALLEST_NORMAL, SMALLEST_SUBNORMAL, 0.25, 1e-3, math.nextafter(1.0, 0.0)]
    x = np.concatenate([ends, random.uniform(size=1000), 10.0 ** random.uniform(-300, 0, size=1000)])
    exponents = np.resize([0.25, 1.0, 1.3, 2.0, 9.25, 101.0], x.size)
    found = np.empty((5, x.size))
    compiled_forms(x, exponents, found)
    expected = plain_forms(x, exponents)
    tolerances = [FEW_ULP, FEW_ULP, FEW_ULP, FEW_ULP, POWER_TOLERANCE]
    for name, mine, plain, tolerance in zip(
        ("exp", "log1p", "log2", "exp2", "power"), found, expected, tolerances, strict=True
    ):
        assert np.array_equal(mine == 0.0, plain == 0.0), name
        assert (np.abs(mine - plain) <= tolerance * np.abs(plain)).all(), name


def test_a_loop_gives_the_bits_of_single_calls():
    """With and without vector registers, so the bits do not depend on where a loop is split."""
    x = np.random.default_rng(1).uniform(size=257)
    exponents = np.full(257, 1.7)
    whole = np.empty((5, 257))
    compiled_forms(x, exponents, whole)
    for k in (0, 1, 2, 3, 100, 255, 256):
        alone = np.empty((5, 1))
        compiled_forms(x[k : k + 1], exponents[k : k + 1], alone)
        assert alone[:, 0].tobytes() == whole[:, k].tobytes()
