"""Kernel features that approximate a kernel.

Random Fourier features of exp(-gamma·‖x - y‖²) (Rahimi and Recht 2007) are cosines and sines of random projections, in
pairs, which approximate it better than cosines with random phases. The kernel (gamma·<x, y> + 1)^degree has all products of
features, if they are few, or a sketch of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import count

import numpy as np

from streampgs.data.feature_maps.feature_map import FeatureMap, MappedRows, MapRecord
from streampgs.kernels import feature_map_loop as loops
from streampgs.kernels.randomness import key_of
from streampgs.kernels.rows import Rows

_TABLE_NUMBERS = 1 << 23
"""The most numbers in the table of projections. Features beyond it share its rows."""
_MOST_ORTHOGONAL = 512


class FourierFeatures(FeatureMap):
    how = "cosines and sines of random projections"

    def __init__(self, record: MapRecord) -> None:
        super().__init__(record)
        pairs = max(1, record.most // 2)
        self.width = 2 * pairs
        self._most_rows = max(1, _TABLE_NUMBERS // pairs)
        self._key = np.uint64(key_of(record.seed, "kernel features"))
        self._folding = np.uint64(key_of(record.seed, "shared kernel features"))
        self._scale = math.sqrt(2.0 * record.gamma) / (2.0 * math.pi)
        self._frequencies = np.empty((0, pairs), np.float32)
        rows = min(record.first_inputs, self._most_rows)
        if 0 < rows == record.first_inputs <= _MOST_ORTHOGONAL:
            self._frequencies = np.empty((rows, pairs), np.float32)
            loops.fill_orthogonal_frequencies(self._frequencies, self._key, self._scale)
        self._extend()

    def _extend(self) -> None:
        before, rows = len(self._frequencies), max(1, min(self.record.inputs, self._most_rows))
        if rows > before:
            table = np.empty((rows, self._frequencies.shape[1]), np.float32)
            table[:before] = self._frequencies
            loops.fill_frequencies(table, before, self._key, self._scale)
            self._frequencies = table

    @property
    def table_bytes(self) -> int:
        return self._frequencies.nbytes

    def name_of(self, place: int, name_of_input: Callable[[int], str]) -> str:
        pairs = self.width // 2
        return f"{'cosine' if place < pairs else 'sine'} of projection {place % pairs}"

    def map_rows(self, window: Rows, out: MappedRows) -> None:
        # The table may be longer than the features that are known, but never shorter.
        loops.fourier_rows(*self.entries(window), self.record.inputs, self._frequencies, self._folding, out)


def monomials(inputs: int, degree: int) -> int:
    """How many monomials so many features have, without the constant."""
    return math.comb(inputs + degree, degree) - 1


class Monomials(FeatureMap):
    """Every product of at most `degree` features, scaled so that inner products give the kernel without its constant 1,
    which belongs to the intercept. Products with features that join later follow all others; if they are too many, the
    last ones are left out."""

    how = "all products"

    def __init__(self, record: MapRecord) -> None:
        super().__init__(record)
        self._extend()

    def _extend(self) -> None:
        parents, variables = _monomials(self.record.inputs, self.record.degree, self.record.most)
        self._parents, self._variables = np.array(parents, np.int64), np.array(variables, np.int64)
        self.width = len(parents)
        self._factors = np.array([self._factor(place) for place in range(len(parents))])

    def _powers(self, place: int) -> Counter[int]:
        """The features of a monomial, with their powers."""
        found: Counter[int] = Counter()
        while place >= 0:
            found[int(self._variables[place])] += 1
            place = int(self._parents[place])
        return found

    def _factor(self, place: int) -> float:
        powers = self._powers(place)
        size, degree = powers.total(), self.record.degree
        orders = math.factorial(size) // math.prod(map(math.factorial, powers.values()))
        return math.sqrt(math.comb(degree, size) * orders * self.record.gamma**size)

    @property
    def table_bytes(self) -> int:
        return self._parents.nbytes + self._variables.nbytes + self._factors.nbytes

    def name_of(self, place: int, name_of_input: Callable[[int], str]) -> str:
        named = ((name_of_input(feature), power) for feature, power in sorted(self._powers(place).items()))
        return " × ".join(name if power == 1 else f"{name}^{power}" for name, power in named)

    def map_rows(self, window: Rows, out: MappedRows) -> None:
        loops.polynomial_rows(
            *self.entries(window), self.record.inputs, self._parents, self._variables, self._factors, out
        )


def _monomials(inputs: int, degree: int, most: int) -> tuple[list[int], list[int]]:
    """The parent of each monomial, and the feature that it has in addition, which is its last one. Those with the lowest
    last features are first."""
    parents: list[int] = []
    variables: list[int] = []
    degrees: list[int] = []
    for variable in range(inputs):
        if len(parents) >= most:
            break
        parents.append(-1)
        variables.append(variable)
        degrees.append(1)
        for place in count():
            if place == len(parents) or len(parents) >= most:
                break
            if degrees[place] < degree:
                parents.append(place)
                variables.append(variable)
                degrees.append(degrees[place] + 1)
    return parents, variables


class TensorSketch(FeatureMap):
    """As many features as the largest power of two that is allowed."""

    how = "a sketch of all products"

    def __init__(self, record: MapRecord) -> None:
        super().__init__(record)
        self.width = 1 << (record.most.bit_length() - 1)
        names = [key_of(record.seed, "sketch", number) for number in range(record.degree)]
        self._keys = np.array(names, np.uint64)
        self._tables = loops.roots_of_unity(self.width)

    def map_rows(self, window: Rows, out: MappedRows) -> None:
        scale = math.sqrt(self.record.gamma)
        loops.sketch_rows(*self.entries(window), self.record.inputs, scale, self._keys, *self._tables, out)
