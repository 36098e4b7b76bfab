"""Labels: the number that each label becomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.losses import LOSSES
from streampgs.options.commands import ModelOptions

# Why a row's label cannot be used: see table.layout for the other reasons.
LABEL_NULL, LABEL_NOT_FINITE, LABEL_NO_CLASS, LABEL_UNKNOWN_CLASS, LABEL_TOO_LOW = 16, 17, 18, 23, 25
LABEL_TOO_LARGE = 27
LARGEST_LABEL = 1e70
"""Of numbers to predict, and of offsets: training squares their products with features and weights."""

_UNKNOWN = -2.0  # the code of a string that is not a class
DEFAULT_LABELS = (-1.0, 0.0, 1.0)


@dataclass(frozen=True)
class LabelSpec:
    """How the labels of one column become numbers.

    First a label becomes a code: a number stays as it is, a string becomes its place among the known strings. Then a
    classifier's codes become -1 and +1, or the number of the class if there are more than two.
    """

    classes: tuple[float | str, ...] | None = None
    """In the order of their numbers; of two, the negative one first. None: 1 against 0 and -1."""
    positive: float | str | None = None
    """This class against all others."""
    weights: tuple[float, ...] = ()
    """A factor for the rows of each class; empty: 1."""
    lowest: float = -math.inf
    """Of labels that are numbers: smaller ones are refused."""

    @property
    def textual(self) -> bool:
        return isinstance(self.positive if self.classes is None else self.classes[0], str)

    def codes(self, array: pa.Array) -> pa.Array:
        """Float64; null stays null."""
        if not self.textual:
            return types.as_float64(array)
        array = types.undictionaried(array)
        known = (self.positive,) if self.classes is None else self.classes
        places = pc.index_in(array.cast(pa.large_string()), pa.array(known, pa.large_string()))
        if self.classes is None:
            codes = places.is_valid().to_numpy(zero_copy_only=False).astype(np.float64)
        else:
            codes = places.cast(pa.float64()).fill_null(_UNKNOWN).to_numpy(zero_copy_only=False)
        return pa.array(codes, mask=types.nulls_of(array))

    def targets(
        self, codes: NDArray[np.float64], known: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
        """What a classifier learns from these codes; which codes are not classes, and the reason's number.

        `known`: how many classes there were when the shard joined. A later class does not change its rows, because the
        rows of an open window must not change."""
        if self.classes is not None:
            count = len(self.classes)
            labels = np.arange(count, dtype=np.float64) if self.textual else np.array(self.classes, np.float64)
            order = np.argsort(labels)
            numbers = order[np.minimum(np.searchsorted(labels, codes, sorter=order), count - 1)]
            unknown = (labels[numbers] != codes) | (numbers >= (known or count))
            return np.asarray(numbers * 2.0 - 1.0 if count == 2 else numbers, np.float64), unknown, LABEL_UNKNOWN_CLASS
        if self.positive is not None:
            positive = 1.0 if self.textual else self.positive
            return np.where(codes == positive, 1.0, -1.0), np.zeros(len(codes), np.bool_), 0
        return np.where(codes == 1.0, 1.0, -1.0), ~np.isin(codes, DEFAULT_LABELS), LABEL_NO_CLASS

    def factors(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weights of rows by their classes."""
        numbers = targets > 0.0 if len(self.weights) == 2 else targets
        return np.array(self.weights)[numbers.astype(np.intp)]

    def is_unknown_text(self, code: float) -> bool:
        """Whether the code is that of a string that is not a class."""
        return self.textual and self.classes is not None and code == _UNKNOWN


def label_specs(options: ModelOptions) -> tuple[LabelSpec, ...]:
    """One for each label column."""
    if not options.classifies:
        lowest = max(LOSSES[loss].lowest_label for loss in options.losses)
        return tuple(LabelSpec(lowest=lowest) for _ in options.labels)
    if len(options.labels) > 1:
        pairs = options.label_pairs or (None,) * len(options.labels)
        return tuple(LabelSpec(pair if pair is not None and isinstance(pair[0], str) else None) for pair in pairs)
    weights = options.class_weight if isinstance(options.class_weight, tuple) else ()
    return (LabelSpec(options.classes, options.positive, weights),)


def label_text(label: float | str) -> str:
    if isinstance(label, str):
        return f"'{label}'"
    return str(int(label)) if label == int(label) else repr(label)


def listed(found: Sequence[Any]) -> str:
    """The first labels, for messages."""
    return ", ".join(map(label_text, found[:6])) + (", …" if len(found) > 6 else "")
