"""exp, log1p and powers as plain arithmetic, so that loops over lanes or entries can use vector registers.

With a call to the math library, such a loop would process one number at a time. Each docstring gives the range of the
arguments. Errors are a few units in the last place, multiplied by the size of the exponent for powers. This module does
not import the compiler: streampgs.kernels.jit registers the functions with it.
"""

from __future__ import annotations

import math
import struct

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_LN_2_HIGH = 6.93147180369123816490e-01  # its last 32 bits are zero: products with small integers are exact
_LN_2_LOW = 1.90821492927058770002e-10
_ROUNDING = 6755399441055744.0  # 1.5·2^52: adding it leaves the nearest integer in the last bits
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_MANTISSA = (1 << 52) - 1
_WHOLE = 0x4330000000000000  # the bits of 2^52
_TWO_52 = 4503599627370496.0
_SMALLEST_NORMAL = 2.2250738585072014e-308
_LOWEST_POWER_OF_TWO = -1022.0

_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = (1.0 / math.factorial(k) for k in range(2, 14))


def bits_of(number: float) -> int:
    """A float64 as the int64 of the same 64 bits."""
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits


def float_of(bits: int) -> float:
    """An int64 as the float64 of the same 64 bits."""
    signed = (int(bits) + (1 << 63)) % (1 << 64) - (1 << 63)
    number: float = struct.unpack("<d", struct.pack("<q", signed))[0]
    return number


def _exp_of_small(r: float) -> float:
    """e^r for |r| ≤ ln 2 / 2."""
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (_E2 + _E3 * r) + r4 * ((_E4 + _E5 * r) + r2 * (_E6 + _E7 * r))
    return low + r4 * r4 * ((_E8 + _E9 * r) + r2 * (_E10 + _E11 * r) + r4 * (_E12 + _E13 * r))


def exp_of_negative(x: float) -> float:
    """e^x for x ≤ 0; below -708 that of -708, which is nearly zero."""
    x = max(x, -708.0)
    shifted = x * _LOG2_E + _ROUNDING
    whole = shifted - _ROUNDING
    r = (x - whole * _LN_2_HIGH) - whole * _LN_2_LOW
    return float_of(bits_of(_exp_of_small(r)) + (bits_of(shifted) << 52))


def exp_of(x: float) -> float:
    """e^x; beyond ±708 that of ±708, which is finite and not 0."""
    shrunk = exp_of_negative(-abs(x))
    return shrunk if x <= 0.0 else 1.0 / shrunk


def _atanh_start(w: float) -> float:
    """1/25 + w/27 + … + w⁴/33, where w may be as large as 1/9."""
    total = 1.0 / 33.0
    total = total * w + 1.0 / 31.0
    total = total * w + 1.0 / 29.0
    total = total * w + 1.0 / 27.0
    return total * w + 1.0 / 25.0


def _atanh_rest(total: float, w: float) -> float:
    """1/3 + w/5 + w²/7 + …; `total` is the sum of the terms after w¹⁰/23."""
    total = total * w + 1.0 / 23.0
    total = total * w + 1.0 / 21.0
    total = total * w + 1.0 / 19.0
    total = total * w + 1.0 / 17.0
    total = total * w + 1.0 / 15.0
    total = total * w + 1.0 / 13.0
    total = total * w + 1.0 / 11.0
    total = total * w + 1.0 / 9.0
    total = total * w + 1.0 / 7.0
    total = total * w + 1.0 / 5.0
    return total * w + 1.0 / 3.0


def log1p_of_unit(x: float) -> float:
    """log(1 + x) for 0 ≤ x ≤ 1."""
    z = x / (2.0 + x)
    w = z * z
    return 2.0 * (z + z * w * _atanh_rest(_atanh_start(w), w))


def log2_of(x: float) -> float:
    """log2 x for normal x > 0."""
    bits = bits_of(x) - _SQRT_HALF_BITS
    exponent = (bits >> 52) + 2048  # positive, so that its bits can be converted to a float
    whole = float_of(exponent | _WHOLE) - (_TWO_52 + 2048.0)
    mantissa = float_of((bits & _MANTISSA) + _SQRT_HALF_BITS)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    w = z * z
    return whole + (2.0 * _LOG2_E) * (z + z * w * _atanh_rest(0.0, w))  # w is at most 0.03


def log_of(x: float) -> float:
    """log x; for x below the smallest normal number that of this number."""
    return log2_of(max(x, _SMALLEST_NORMAL)) * _LN_2


def exp2_of(y: float) -> float:
    """2^y for y below 1023; 0 if that is not a normal number."""
    clipped = max(y, _LOWEST_POWER_OF_TWO)
    shifted = clipped + _ROUNDING
    r = (clipped - (shifted - _ROUNDING)) * _LN_2
    power = float_of(bits_of(_exp_of_small(r)) + (bits_of(shifted) << 52))
    return power if y >= _LOWEST_POWER_OF_TWO else 0.0


def power_of(x: float, exponent: float) -> float:
    """x^exponent for x ≥ 0 and exponent > 0; 0 if x or the power is not a normal number."""
    power = exp2_of(exponent * log2_of(max(x, _SMALLEST_NORMAL)))
    return power if x >= _SMALLEST_NORMAL else 0.0


FUNCTIONS = (
    _exp_of_small,
    exp_of_negative,
    exp_of,
    _atanh_start,
    _atanh_rest,
    log1p_of_unit,
    log2_of,
    log_of,
    exp2_of,
    power_of,
)
"""All that loops may call: a product and the sum that takes it up may be rounded once."""
