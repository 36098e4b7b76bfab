"""Kernel features: the features of a row become others, whose inner products approximate a kernel, or equal it.

The numbers of a row depend on that row alone, and are summed in the order of its entries: never on the rows next to it, so
that blocks of rows may begin and end anywhere. Sines, cosines and normal numbers are plain arithmetic, because those of
math libraries differ from machine to machine.
"""

from __future__ import annotations

import math

import numpy as np

from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.randomness import STRIDE, mix
from streampgs.kernels.vector_math import log_of

_ROUNDING = 6755399441055744.0  # 1.5·2^52: adding it leaves the nearest integer in the last bits
_FRACTION = 2.0**-53
_SHIFT_11, _SHIFT_32 = np.uint64(11), np.uint64(32)
_ONE = np.uint64(1)
_CONSTANT = np.uint64(1 << 40)
"""The number of the constant feature of a sketch; those of rows are below."""
# (2π)^k / k!, of alternating signs.
_S1, _S3, _S5, _S7, _S9, _S11, _S13, _S15, _S17 = (
    (-1.0) ** (k // 2) * (2.0 * math.pi) ** k / math.factorial(k) for k in range(1, 18, 2)
)


@inlinable
def _sine(turns):  # type: ignore[no-untyped-def]
    """sin(2π·turns) for |turns| ≤ 1/4."""
    w = turns * turns
    total = _S15 + w * _S17
    total = _S13 + w * total
    total = _S11 + w * total
    total = _S9 + w * total
    total = _S7 + w * total
    total = _S5 + w * total
    total = _S3 + w * total
    return turns * (_S1 + w * total)


@inlinable
def _fraction(turns):  # type: ignore[no-untyped-def]
    """The angle between -1/2 and 1/2 turns."""
    return turns - ((turns + _ROUNDING) - _ROUNDING) if abs(turns) < 2.0**51 else 0.0


@inlinable
def _cosine_of(fraction):  # type: ignore[no-untyped-def]
    return _sine(0.25 - abs(fraction))


@inlinable
def _sine_of(fraction):  # type: ignore[no-untyped-def]
    return _sine(min(max(fraction, -0.5 - fraction), 0.5 - fraction))


@inlinable
def _normal(key, counter):  # type: ignore[no-untyped-def]
    """A standard normal number, by Box and Muller."""
    first, second = mix(key + STRIDE * (counter + counter)), mix(key + STRIDE * (counter + counter + _ONE))
    radius = math.sqrt(-2.0 * log_of((np.float64(first >> _SHIFT_11) + 1.0) * _FRACTION))
    return radius * _cosine_of(np.float64(second >> _SHIFT_11) * _FRACTION - 0.5)


@compiled
def entry_sums(starts, stops, values):  # type: ignore[no-untyped-def]
    """The sums of all entries of the rows, and of their squares."""
    total = squares = 0.0
    for r in range(starts.size):
        for j in range(starts[r], stops[r]):
            value = np.float64(values[j])
            total += value
            squares += value * value
    return total, squares


# Random Fourier features.


@compiled
def fill_frequencies(frequencies, first, key, scale):  # type: ignore[no-untyped-def]
    """Independent normal numbers, `scale` times the standard ones, in rows from `first` on."""
    width = np.uint64(frequencies.shape[1])
    for i in range(first, frequencies.shape[0]):
        for k in range(frequencies.shape[1]):
            frequencies[i, k] = scale * _normal(key, np.uint64(i) * width + np.uint64(k))


@compiled
def fill_orthogonal_frequencies(frequencies, key, scale):  # type: ignore[no-untyped-def]
    """The same; as many columns as there are rows are orthogonal to each other, and each has the length that it had: that
    of a vector of normal numbers. Such features approximate the kernel better (Yu et al. 2016)."""
    size, count = frequencies.shape
    vectors = np.empty((count, size))
    for k in range(count):
        for i in range(size):
            vectors[k, i] = _normal(key, np.uint64(i) * np.uint64(count) + np.uint64(k))
    for k in range(count):
        length = 0.0
        for i in range(size):
            length += vectors[k, i] * vectors[k, i]
        length = math.sqrt(length)
        for _ in range(2):  # the second time removes the rounding errors of the first
            for before in range(k - k % size, k):
                along = square = 0.0
                for i in range(size):
                    along += vectors[k, i] * vectors[before, i]
                    square += vectors[before, i] * vectors[before, i]
                for i in range(size):
                    vectors[k, i] -= along / square * vectors[before, i]
        left = 0.0
        for i in range(size):
            left += vectors[k, i] * vectors[k, i]
        factor = length / math.sqrt(left)
        for i in range(size):
            vectors[k, i] *= factor
    for i in range(size):
        for k in range(count):
            frequencies[i, k] = scale * vectors[k, i]


@compiled
def fourier_rows(starts, stops, indices, values, sparse, inputs, frequencies, key, out):  # type: ignore[no-untyped-def]
    """out[r]: cosines, then sines, of the angles that row r makes with the frequencies, in turns; of length 1. Features
    beyond the table share its rows, with random signs. Features from `inputs` on are not known and add nothing."""
    count = frequencies.shape[1]
    angles = np.empty(count)
    size = 1.0 / math.sqrt(count)
    table = np.uint64(frequencies.shape[0])
    for r in range(starts.size):
        for k in range(count):
            angles[k] = 0.0
        for j in range(starts[r], stops[r]):
            i = np.int64(indices[j]) if sparse else j - starts[r]
            if i >= inputs:
                continue
            value = np.float64(values[j])
            if i >= frequencies.shape[0]:
                word = mix(key + STRIDE * np.uint64(i))
                i = np.int64(((word >> _SHIFT_32) * table) >> _SHIFT_32)
                if word & _ONE:
                    value = -value
            row = frequencies[i]
            for k in range(count):
                angles[k] += value * row[k]
        cosines, sines = out[r, :count], out[r, count:]
        for k in range(count):
            fraction = _fraction(angles[k])
            cosines[k] = size * _cosine_of(fraction)
            sines[k] = size * _sine_of(fraction)


# Polynomials.


@compiled
def polynomial_rows(  # type: ignore[no-untyped-def]
    starts, stops, indices, values, sparse, inputs, parents, variables, factors, out
):
    """out[r, m] = factors[m] times the product of the features of monomial m: that of its parent (-1: none), times one
    feature more."""
    reach = np.int64(variables.max()) + 1 if variables.size else 0
    row, products = np.zeros(reach), np.empty(parents.size)
    for r in range(starts.size):
        row[:] = 0.0
        for j in range(starts[r], stops[r]):
            i = np.int64(indices[j]) if sparse else j - starts[r]
            if i < reach and i < inputs:
                row[i] = np.float64(values[j])
        for m in range(parents.size):
            before = products[parents[m]] if parents[m] >= 0 else 1.0
            products[m] = before * row[variables[m]]
            out[r, m] = factors[m] * products[m]


@compiled
def roots_of_unity(size):  # type: ignore[no-untyped-def]
    """The cosines and sines of k/size turns, for k below size/2, and the bits of each number below `size` reversed."""
    half = size // 2
    cosines, sines, reversed_bits = np.empty(half), np.empty(half), np.zeros(size, np.int64)
    for k in range(half):
        fraction = _fraction(k / size)
        cosines[k], sines[k] = _cosine_of(fraction), _sine_of(fraction)
    for k in range(1, size):
        reversed_bits[k] = reversed_bits[k >> 1] >> 1
        if k & 1:
            reversed_bits[k] += half
    return cosines, sines, reversed_bits


@inlinable
def _transform(real, imaginary, cosines, sines, reversed_bits):  # type: ignore[no-untyped-def]
    """The discrete Fourier transform in place, by powers of two."""
    size = real.size
    for k in range(size):
        other = reversed_bits[k]
        if other > k:
            real[k], real[other] = real[other], real[k]
            imaginary[k], imaginary[other] = imaginary[other], imaginary[k]
    half = 1
    while half < size:
        stride = size // (2 * half)
        for first in range(0, size, 2 * half):
            for k in range(half):
                low, high = first + k, first + k + half
                c, s = cosines[k * stride], -sines[k * stride]
                re = real[high] * c - imaginary[high] * s
                im = real[high] * s + imaginary[high] * c
                real[high], imaginary[high] = real[low] - re, imaginary[low] - im
                real[low], imaginary[low] = real[low] + re, imaginary[low] + im
        half *= 2


@inlinable
def _count(sketch, i, value, key):  # type: ignore[no-untyped-def]
    """Add a feature at its random place with its random sign."""
    word = mix(key + STRIDE * i)
    place = np.int64(((word >> _SHIFT_32) * np.uint64(sketch.size)) >> _SHIFT_32)
    sketch[place] += -value if word & _ONE else value


@compiled
def sketch_rows(  # type: ignore[no-untyped-def]
    starts, stops, indices, values, sparse, inputs, scale, keys, cosines, sines, reversed_bits, out
):
    """TensorSketch (Pham and Pagh 2013): the circular convolution of as many count sketches of (scale·x, 1) as there are
    keys. Two sketches take one transform, as its real and its imaginary part."""
    size, degree = out.shape[1], keys.size
    real, imaginary = np.empty(size), np.empty(size)
    total_real, total_imaginary = np.empty(size), np.empty(size)
    for r in range(starts.size):
        for pair in range(0, degree, 2):
            real[:] = 0.0
            imaginary[:] = 0.0
            both = pair + 1 < degree
            for j in range(starts[r], stops[r]):
                i = np.int64(indices[j]) if sparse else j - starts[r]
                if i < inputs:
                    value = scale * np.float64(values[j])
                    _count(real, np.uint64(i), value, keys[pair])
                    if both:
                        _count(imaginary, np.uint64(i), value, keys[pair + 1])
            _count(real, _CONSTANT, 1.0, keys[pair])
            if both:
                _count(imaginary, _CONSTANT, 1.0, keys[pair + 1])
            _transform(real, imaginary, cosines, sines, reversed_bits)
            for k in range(size):
                mirror = (size - k) & (size - 1)
                re, im = real[k], imaginary[k]
                if both:
                    first_re, first_im = 0.5 * (re + real[mirror]), 0.5 * (im - imaginary[mirror])
                    second_re, second_im = 0.5 * (im + imaginary[mirror]), 0.5 * (real[mirror] - re)
                    re = first_re * second_re - first_im * second_im
                    im = first_re * second_im + first_im * second_re
                if pair == 0:
                    total_real[k], total_imaginary[k] = re, im
                else:
                    re, im = (
                        total_real[k] * re - total_imaginary[k] * im,
                        total_real[k] * im + total_imaginary[k] * re,
                    )
                    total_real[k], total_imaginary[k] = re, im
        for k in range(size):  # the inverse transform is that of the conjugate
            total_imaginary[k] = -total_imaginary[k]
        _transform(total_real, total_imaginary, cosines, sines, reversed_bits)
        for k in range(size):
            out[r, k] = total_real[k] / size
