"""Labels: which classes a label column has, and the number that each label becomes.

The decision is made once, from counts of the column's values, and recorded in the options. Classes that appear later are
appended, so that a class keeps its number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.errors import DataError, OptionError, counted
from streampgs.losses import CLASSIFYING, LOSSES
from streampgs.options import ModelOptions

# Why a row's label cannot be used: see table.layout for the other reasons.
LABEL_NULL, LABEL_NOT_FINITE, LABEL_NO_CLASS, LABEL_UNKNOWN_CLASS, LABEL_TOO_LOW = 16, 17, 18, 23, 25

_UNKNOWN = -2.0  # the code of a string that is not a class
_DEFAULT_LABELS = (-1.0, 0.0, 1.0)
_MOST_CLASSES = 10_000
_TWO_CLASSES_SHARE = 0.99


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
        return np.where(codes == 1.0, 1.0, -1.0), ~np.isin(codes, _DEFAULT_LABELS), LABEL_NO_CLASS

    def factors(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weights of rows by their classes."""
        numbers = targets > 0.0 if len(self.weights) == 2 else targets
        return np.array(self.weights)[numbers.astype(np.intp)]

    def unknown_text(self, code: float) -> str | None:
        """The fault of a string that is not a class."""
        if not self.textual or self.classes is None or code != _UNKNOWN:
            return None
        return f"a label that is not one of {_listed(self.classes)}"


def label_specs(options: ModelOptions) -> tuple[LabelSpec, ...]:
    """One for each label column."""
    if not options.classifies:
        lowest = max(LOSSES[loss].lowest_label for loss in options.losses)
        return tuple(LabelSpec(lowest=lowest) for _ in options.labels)
    if len(options.labels) > 1:
        return tuple(LabelSpec(pair) for pair in options.label_pairs or (None,) * len(options.labels))
    weights = options.class_weight if isinstance(options.class_weight, tuple) else ()
    return (LabelSpec(options.classes, options.positive, weights),)


@dataclass(frozen=True)
class LabelCounts:
    """The different values of a label column, in ascending order, and how often each occurs."""

    column: str
    textual: bool
    values: tuple[Any, ...]
    counts: NDArray[np.int64]

    @staticmethod
    def of(column: str, arrays: Iterable[pa.Array]) -> LabelCounts:
        """Null, NaN and infinite labels are not counted."""
        found = [types.undictionaried(types.plain(array)).drop_null() for array in arrays]
        found = [array for array in found if len(array)]
        textual = [types.class_of(array.type) == types.STRING for array in found]
        if any(textual) and not all(textual):
            raise DataError(
                f"label column '{column}' holds strings in some shards and numbers in others",
                "write the same type everywhere",
            )
        if not any(textual):
            numbers = np.concatenate([np.empty(0), *(types.numbers_of(array) for array in found)]).astype(np.float64)
            values, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
            return LabelCounts(column, False, tuple(values.tolist()), counts)
        strings = pa.concat_arrays([array.cast(pa.large_string()) for array in found])
        try:
            strings.validate(full=True)
        except pa.ArrowInvalid as fault:
            raise DataError(
                f"label column '{column}' holds a string that is not valid UTF-8: {fault}", "fix the label"
            ) from fault
        counted = sorted((one["values"], one["counts"]) for one in pc.value_counts(strings).to_pylist())
        return LabelCounts(column, True, tuple(value for value, _ in counted), np.array([n for _, n in counted]))

    def rows(self, value: float | str) -> int:
        return int(self.counts[self.values.index(value)]) if value in self.values else 0

    def share(self, *values: float) -> float:
        total = int(self.counts.sum())
        return sum(self.rows(value) for value in values) / total if total else 1.0


# The classes of a new run.


def learn_labels(options: ModelOptions, found: Sequence[LabelCounts]) -> tuple[ModelOptions, list[str]]:
    """The options, completed by the classes of each label column, and notes for the user."""
    textual = [labels for labels in found if labels.textual]
    if textual and not options.classifies:
        raise OptionError(
            f"--loss {options.losses[0]} predicts numbers, but label column '{textual[0].column}' holds strings",
            f"choose one of {', '.join(CLASSIFYING)}, or another --label",
        )
    if not options.classifies:
        return options, []
    if len(found) > 1:
        return replace(options, label_pairs=tuple(_pair(one) if one.textual else None for one in found)), []
    [labels] = found
    learnt = _of_strings(options, labels) if labels.textual else _of_numbers(options, labels)
    notes = _notes(learnt, labels, was_given=options.classes is not None)
    return _with_class_weights(learnt, labels), notes


def _pair(labels: LabelCounts) -> tuple[str, str]:
    if len(labels.values) != 2:
        raise DataError(
            f"label column '{labels.column}' holds {len(labels.values):,} different strings",
            "with several label columns, each must have two classes",
        )
    return labels.values[0], labels.values[1]


def _of_strings(options: ModelOptions, labels: LabelCounts) -> ModelOptions:
    if options.classes is not None:
        return replace(options, classes=tuple(_as_typed(label) for label in options.classes))
    found = labels.values
    if options.positive is not None:
        positive = _as_typed(options.positive)
        if positive not in found:
            raise DataError(
                f"no sampled row has the label '{positive}'; the labels are {_listed(found)}", "check --positive"
            )
        others = [label for label in found if label != positive]
        if len(others) == 1:
            return replace(options, positive=None, classes=(others[0], positive))
        return replace(options, positive=positive)
    if len(found) < 2:
        raise DataError(
            f"label column '{labels.column}' has only one value in the sample: {_listed(found)}",
            "a classifier needs two classes: name them with --classes A,B, or choose another --label",
        )
    if len(found) > _MOST_CLASSES:
        raise DataError(
            f"label column '{labels.column}' has {len(found):,} different strings", "choose another --label"
        )
    return replace(options, classes=found)


def _as_typed(label: float | str) -> str:
    """A number from the command line as the user typed it."""
    return str(int(label)) if isinstance(label, float) and label == int(label) else str(label)


def _of_numbers(options: ModelOptions, labels: LabelCounts) -> ModelOptions:
    given = options.positive if options.classes is None else options.classes[0]
    if isinstance(given, str):
        raise DataError(
            f"label column '{labels.column}' holds numbers, not strings like '{given}'",
            "give numbers with --positive or --classes",
        )
    if given is not None:
        return options
    found = labels.values
    zero_or_one = labels.share(0.0, 1.0) >= _TWO_CLASSES_SHARE
    if -1.0 not in found and 0.0 in found and 1.0 in found and zero_or_one:
        return replace(options, classes=(0.0, 1.0))  # so that predictions are 0 and 1
    if labels.share(*_DEFAULT_LABELS) >= _TWO_CLASSES_SHARE:
        return options  # two classes; the few other rows are reported as bad rows
    if len(found) != 2 and (len(found) > _MOST_CLASSES or any(label != round(label) for label in found)):
        odd = next((label for label in found if label != round(label)), found[-1])
        raise OptionError(
            f"--loss {','.join(options.losses)} needs classes, but label column '{labels.column}' has "
            f"{len(found):,} different values in the sample, such as {odd:g}",
            "predict numbers with --loss squared, or name the positive class with --positive VALUE",
        )
    return replace(options, classes=found) if len(found) > 1 else options


def _notes(options: ModelOptions, labels: LabelCounts, was_given: bool) -> list[str]:
    notes, classes = [], options.classes or ()
    if options.multiclass and not was_given and not labels.textual:
        notes.append(
            f"the {len(classes):,} whole numbers of label column '{labels.column}' are taken as classes; to predict them "
            "as numbers: --loss squared"
        )
    if not labels.textual and len(labels.values) == 1:
        notes.append(
            f"label column '{labels.column}' has only one value in the sample: {labels.values[0]:g}; a model of one class "
            "is useless"
        )
    if labels.textual and len(classes) == 2:
        notes.append(f"the positive class is '{classes[1]}', the other '{classes[0]}'")
    return notes


def _with_class_weights(options: ModelOptions, labels: LabelCounts) -> ModelOptions:
    """'balanced' becomes numbers: each class weighs as much as the others in the sample."""
    if options.class_weight is None:
        return options
    if options.class_weight != "balanced":
        if options.classes is None and len(options.class_weight) != 2:
            raise OptionError(
                f"--class-weight {','.join(map(str, options.class_weight))} for two classes",
                "give a number for each class, in the order of the classes",
            )
        return options
    if options.classes is not None:
        counts = [labels.rows(label) for label in options.classes]
    else:
        positives = labels.rows(1.0 if options.positive is None else options.positive)
        counts = [int(labels.counts.sum()) - positives, positives]
    if min(counts) == 0:
        raise DataError("--class-weight balanced, but a class has no row in the sample", "give the weights as numbers")
    return replace(options, class_weight=tuple(sum(counts) / (len(counts) * count) for count in counts))


# Classes that appear later.


def extend_labels(options: ModelOptions, found: Sequence[LabelCounts]) -> tuple[ModelOptions, list[str]]:
    """The options with the new classes of new shards, and notes for the user."""
    if not options.classifies:
        return options, []
    new = [_unknown(spec, labels) for spec, labels in zip(label_specs(options), found, strict=True)]
    if options.multiclass and new[0] and all(isinstance(label, str) or label == round(label) for label in new[0]):
        return _with_more_classes(options, new[0])
    for labels, unknown in zip(found, new, strict=True):
        if unknown and options.on_bad_row != "skip":
            known = _listed(options.classes) if options.classes is not None else "two classes"
            raise DataError(
                f"new shards have other labels in column '{labels.column}' than the run knows ({known}): "
                f"{_listed(unknown)}",
                "start a new run on all the data, or remove the new shards; resume --on-bad-row skip leaves such rows out",
            )
    return options, []


def _unknown(spec: LabelSpec, labels: LabelCounts) -> list[float | str]:
    """The values that are not classes so far."""
    if spec.positive is not None:
        return []
    known = _DEFAULT_LABELS if spec.classes is None else spec.classes
    return [value for value in labels.values if value not in known]


def _with_more_classes(options: ModelOptions, new: list[float | str]) -> tuple[ModelOptions, list[str]]:
    assert options.classes is not None
    classes = (*options.classes, *new)
    if len(classes) > _MOST_CLASSES:
        raise DataError(
            f"with the new shards label column '{options.labels[0]}' has {len(classes):,} classes",
            "fix the labels, or remove the new shards",
        )
    weights, notes = options.class_weight, []
    if isinstance(weights, tuple):
        weights = (*weights, *[1.0] * len(new))
        notes.append("rows of new classes have weight 1: --class-weight was given before they appeared")
    notes.append(
        f"{counted(len(new), 'new class', 'new classes')} ({_listed(new)}) in addition to {len(options.classes):,}: each gets "
        "its own model"
    )
    joined = options.joined_classes + len(new)
    return replace(options, classes=classes, joined_classes=joined, class_weight=weights), notes


def _listed(found: Sequence[Any]) -> str:
    return ", ".join(f"'{label}'" for label in found[:6]) + (", …" if len(found) > 6 else "")
