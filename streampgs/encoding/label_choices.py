"""What the labels of a run are: numbers, or which classes.

The decision is made once, from counts of the column's values, and recorded in the options. Classes that appear later are
appended, so that a class keeps its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streampgs.base.errors import DataError, OptionError, counted
from streampgs.encoding.labels import (
    DEFAULT_LABELS,
    MOST_CLASSES,
    LabelCounts,
    LabelSpec,
    label_specs,
    label_text,
    listed,
)
from streampgs.losses import CLASSIFYING
from streampgs.options.commands import LOSS_FOR_CLASSES, LOSS_FOR_NUMBERS, ModelOptions

_TWO_CLASSES_SHARE = 0.99
# A whole number may be a class or a quantity. These bounds are explained in docs/labels.md.
_SURELY_CLASSES = 10
_LIKELY_CLASSES = 20
_MOST_LIKELY_CLASSES = 32
_MOST_UNASKED_CLASSES = 100
_ROWS_PER_CLASS = 3
_RAREST_SHARE = 0.1


def learn_labels(options: ModelOptions, found: Sequence[LabelCounts]) -> tuple[ModelOptions, list[str]]:
    """The options, completed by the loss and by the classes of each label column, and notes for the user."""
    notes: list[str] = []
    if options.loss is None:
        options, notes = _with_loss(options, found)
    _refuse_texts_as_numbers(options, found)
    if not options.classifies:
        return options, notes
    _refuse_inexact(found)
    options = replace(options, label_types=tuple(labels.kind for labels in found))
    if len(found) > 1:
        return replace(options, label_pairs=tuple(map(_pair, found))), notes
    [labels] = found
    taking_all = options.takes_all_classes
    if taking_all:
        options = replace(options, classes=_all_values(labels))
    learnt = _of_strings(options, labels) if labels.textual else _of_numbers(options, labels)
    if learnt.multiclass and options.classes is None:
        notes.append(_classes_note(learnt, labels))
    if not taking_all and labels.textual and learnt.classes is not None and len(learnt.classes) == 2:
        notes.append(f"the positive class is '{learnt.classes[1]}', the other '{learnt.classes[0]}'")
    return _with_class_weights(learnt, labels), notes


# The loss, where the user left it open.


def _with_loss(options: ModelOptions, found: Sequence[LabelCounts]) -> tuple[ModelOptions, list[str]]:
    if options.names_classes:
        return replace(options, loss=LOSS_FOR_CLASSES), []
    reasons = {labels.column: reason for labels in found if (reason := _reason_for_numbers(labels)) is not None}
    if not reasons:
        return replace(options, loss=LOSS_FOR_CLASSES), []
    if len(reasons) < len(found):
        column, reason = next(iter(reasons.items()))
        classes = next(labels.column for labels in found if labels.column not in reasons)
        raise OptionError(
            f"label column '{column}' holds {reason}, and '{classes}' holds classes",
            "train a run for each of them, or choose a --loss that fits both",
        )
    return replace(options, loss=LOSS_FOR_NUMBERS), [
        f"label '{column}' holds {reason}: it is predicted as a number (`--loss {LOSS_FOR_NUMBERS}`). If these are classes: "
        "`--classes auto`"
        for column, reason in reasons.items()
    ]


def _reason_for_numbers(labels: LabelCounts) -> str | None:
    """What the column holds, if its values are quantities; None: they are classes."""
    different = len(labels.values)
    if labels.textual or different <= 2:
        return None
    if labels.first_odd is not None:
        return f"numbers that are not whole{labels.where}, like {labels.first_odd:g}"
    if labels.share(*DEFAULT_LABELS) >= _TWO_CLASSES_SHARE:
        return None
    if different > _MOST_LIKELY_CLASSES or (different > _LIKELY_CLASSES and not _are_numbered(labels)):
        return _whole_numbers(labels)
    if different > _SURELY_CLASSES and labels.total < _ROWS_PER_CLASS * different:
        return f"{_whole_numbers(labels)} in {counted(labels.total, 'row')}"
    return None


def _are_numbered(labels: LabelCounts) -> bool:
    """Whether the values are those of a list of classes: from 0 or 1 without gaps, and none of them is much rarer than
    the others. Counts have gaps or rare values at their upper end."""
    first, last = labels.values[0], labels.values[-1]
    without_gaps = first in (0.0, 1.0) and last - first == len(labels.values) - 1
    return without_gaps and bool(labels.counts.min() >= _RAREST_SHARE * labels.counts.mean())


def _whole_numbers(labels: LabelCounts) -> str:
    many = f"more than {MOST_CLASSES:,}" if labels.too_many else f"{len(labels.values):,}"
    span = "" if labels.too_many else f", from {label_text(labels.values[0])} to {label_text(labels.values[-1])}"
    return f"{many} different whole numbers{labels.where}{span}"


def _classes_note(options: ModelOptions, labels: LabelCounts) -> str:
    if labels.textual:
        return f"label '{labels.column}' holds {len(labels.values):,} different strings{labels.where}: each is a class"
    return (
        f"label '{labels.column}' holds {_whole_numbers(labels)}: each is a class (`--loss "
        f"{','.join(options.losses)}`). If these are quantities: `--loss {LOSS_FOR_NUMBERS}`"
    )


# What cannot work.


def _refuse_texts_as_numbers(options: ModelOptions, found: Sequence[LabelCounts]) -> None:
    textual = [labels for labels in found if labels.textual]
    if textual and not options.classifies:
        raise OptionError(
            f"`--loss {options.losses[0]}` predicts numbers, but label column '{textual[0].column}' holds strings",
            f"choose one of {', '.join(CLASSIFYING)}, or another --label",
        )


def _refuse_inexact(found: Sequence[LabelCounts]) -> None:
    """Labels are float64 in memory: two large numbers would silently become one class."""
    for labels in found:
        if labels.inexact:
            raise DataError(
                f"label column '{labels.column}' holds whole numbers of 2^53 or more, such as "
                f"{max(labels.values, key=abs):.0f}, which cannot be told apart as classes",
                f"write the labels as strings, or predict them as numbers with `--loss {LOSS_FOR_NUMBERS}`",
            )


def _one_value(labels: LabelCounts) -> DataError:
    return DataError(
        f"label column '{labels.column}' has only one value{labels.where}: {listed(labels.values)}",
        "a classifier needs two classes: choose another --label; if rows of another class will be added, name both "
        "with `--classes A,B`",
    )


# The classes of a new run.


def _all_values(labels: LabelCounts) -> tuple[Any, ...]:
    """Each value is a class."""
    if len(labels.values) < 2:
        raise _one_value(labels)
    if labels.too_many:
        kind = "strings" if labels.textual else "numbers"
        found = f"label column '{labels.column}' has more than {MOST_CLASSES:,} different {kind}"
        raise DataError(found, "choose another --label")
    return labels.values


def _are_zero_and_one(labels: LabelCounts) -> bool:
    found, zero_or_one = labels.values, labels.share(0.0, 1.0) >= _TWO_CLASSES_SHARE
    return -1.0 not in found and 0.0 in found and 1.0 in found and zero_or_one


def _pair(labels: LabelCounts) -> tuple[float | str, float | str] | None:
    if not labels.textual:
        return (0.0, 1.0) if _are_zero_and_one(labels) else None
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
            seen = "row" if labels.complete else "sampled row"
            raise DataError(f"no {seen} has the label '{positive}'; the labels are {listed(found)}", "check --positive")
        if len(found) == 2:
            return replace(options, positive=None, classes=tuple(sorted(found, key=lambda label: label == positive)))
        return replace(options, positive=positive)
    return replace(options, classes=_all_values(labels))


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
    if len(found) == 1:
        raise _one_value(labels)
    if _are_zero_and_one(labels):
        return replace(options, classes=(0.0, 1.0))  # so that predictions are 0 and 1
    if labels.share(*DEFAULT_LABELS) >= _TWO_CLASSES_SHARE:
        return options  # two classes; the few other rows are reported as bad rows
    if len(found) > 2:
        _refuse_quantities(options, labels)
    return replace(options, classes=found)


def _refuse_quantities(options: ModelOptions, labels: LabelCounts) -> None:
    losses = f"`--loss {','.join(options.losses)}`"
    if labels.first_odd is not None:
        raise OptionError(
            f"{losses} needs classes, but label column '{labels.column}' holds numbers that are not whole{labels.where}, "
            f"like {labels.first_odd:g}",
            f"predict numbers with `--loss {LOSS_FOR_NUMBERS}`, or name the positive class with `--positive VALUE`",
        )
    if len(labels.values) > _MOST_UNASKED_CLASSES:
        raise OptionError(
            f"{losses} would train a model for each class, but label column '{labels.column}' holds {_whole_numbers(labels)}",
            f"if they are quantities, predict numbers with `--loss {LOSS_FOR_NUMBERS}`; if they are classes, say so with "
            "`--classes auto`",
        )


def _with_class_weights(options: ModelOptions, labels: LabelCounts) -> ModelOptions:
    """'balanced' becomes numbers: each class weighs as much as the others in the sample."""
    if options.class_weight is None:
        return options
    if options.class_weight != "balanced":
        if options.classes is None and len(options.class_weight) != 2:
            raise OptionError(
                f"`--class-weight {','.join(map(str, options.class_weight))}` for two classes",
                "give a number for each class, in the order of the classes",
            )
        return options
    if options.classes is not None:
        counts = [labels.rows(label) for label in options.classes]
    else:
        positives = labels.rows(1.0 if options.positive is None else options.positive)
        counts = [int(labels.counts.sum()) - positives, positives]
    if min(counts) == 0:
        raise DataError(
            "`--class-weight balanced`, but a class has no row in the sample", "give the weights as numbers"
        )
    return replace(options, class_weight=tuple(sum(counts) / (len(counts) * count) for count in counts))


# Classes that appear later.


def extend_labels(
    options: ModelOptions, found: Sequence[LabelCounts], place_of: Callable[[int, Sequence[Any]], str]
) -> tuple[ModelOptions, list[str]]:
    """The options with the new classes of new shards, and notes for the user.

    `place_of`: the first row that has one of these values in a label column, by the number of the column."""
    if not options.classifies:
        return options, []
    _refuse_inexact(found)
    new = [_unknown(spec, labels) for spec, labels in zip(label_specs(options), found, strict=True)]
    if options.multiclass and new[0] and all(isinstance(label, str) or label == round(label) for label in new[0]):
        return _with_more_classes(options, new[0])
    for number, (labels, unknown) in enumerate(zip(found, new, strict=True)):
        if unknown and options.on_bad_row != "skip":
            known = listed(options.classes) if options.classes is not None else "two classes"
            raise DataError(
                f"new shards have labels in column '{labels.column}' that the run does not know (it knows {known}): "
                f"{listed(unknown)}; the first is in {place_of(number, unknown)}",
                "start a new run on all the data, or continue without the shards: `--leave-out FILE`; `--on-bad-row skip` "
                "leaves only such rows out",
            )
    return options, []


def _unknown(spec: LabelSpec, labels: LabelCounts) -> list[float | str]:
    """The values that are not classes so far."""
    if spec.positive is not None:
        return []
    known = DEFAULT_LABELS if spec.classes is None else spec.classes
    return [value for value in labels.values if value not in known]


def _with_more_classes(options: ModelOptions, new: list[float | str]) -> tuple[ModelOptions, list[str]]:
    assert options.classes is not None
    classes = (*options.classes, *new)
    if len(classes) > MOST_CLASSES:
        raise DataError(
            f"with the new shards label column '{options.labels[0]}' has {len(classes):,} classes",
            "fix the labels, or remove the new shards",
        )
    weights, notes = options.class_weight, []
    if isinstance(weights, tuple):
        weights = (*weights, *[1.0] * len(new))
        notes.append("rows of new classes have weight 1: --class-weight was given before they appeared")
    notes.append(
        f"{counted(len(new), 'new class', 'new classes')} ({listed(new)}) in addition to {len(options.classes):,}: each gets "
        "its own model"
    )
    joined = options.joined_classes + len(new)
    return replace(options, classes=classes, joined_classes=joined, class_weight=weights), notes
