"""Labels: which classes a column has, the number of each label, and what later classes change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.errors import DataError
from streampgs.encoding.label_choices import extend_labels, learn_labels
from streampgs.encoding.labels import LabelCounts, LabelSpec, label_specs
from streampgs.options.commands import ModelOptions


def counts(*values: Any, column: str = "label") -> LabelCounts:
    return LabelCounts.of(column, [pa.array(values)])


def learnt(options: ModelOptions, *values: Any) -> ModelOptions:
    return learn_labels(options, [counts(*values)])[0]


def targets(spec: LabelSpec, values: list[Any], known: int | None = None) -> list[float | None]:
    """What a classifier learns from these labels; None: the row cannot be used."""
    found, bad, _ = spec.targets(np.array(spec.codes(pa.array(values)).to_pylist(), np.float64), known)
    return [None if fault else target for target, fault in zip(found.tolist(), bad.tolist(), strict=True)]


# Codes and targets.


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_a_string_becomes_its_place_among_the_known_strings(kind):
    labels = ["no", "yes", None, "maybe", "", "yes"]
    array = pa.array(labels).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(labels).dictionary_encode()
    assert LabelSpec(("no", "yes")).codes(array[1:]).to_pylist() == [1.0, None, -2.0, -2.0, 1.0]
    assert LabelSpec(positive="yes").codes(array).to_pylist() == [0.0, 1.0, None, 0.0, 0.0, 1.0]


@given(
    classes=st.lists(st.integers(-9, 9), min_size=2, max_size=6, unique=True).map(sorted),
    labels=st.lists(st.integers(-10, 10), max_size=20),
    textual=st.booleans(),
)
def test_a_label_becomes_the_number_of_its_class(classes, labels, textual):
    make = str if textual else float
    spec = LabelSpec(tuple(make(label) for label in classes))
    numbers = {label: (number * 2 - 1 if len(classes) == 2 else number) for number, label in enumerate(classes)}
    assert targets(spec, [make(label) for label in labels]) == [numbers.get(label) for label in labels]


# Counts.


@given(labels=st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", ""])), max_size=9))
def test_strings_are_counted_without_nulls_however_they_are_stored(labels):
    array = pa.array(labels, pa.string())
    parts = [array[:3], array[3:].cast(pa.large_string()), pa.array(labels).dictionary_encode(), pa.nulls(2)]
    found = LabelCounts.of("label", parts)
    known = [label for label in labels if label is not None]
    assert dict(zip(found.values, found.counts.tolist(), strict=True)) == {x: 2 * known.count(x) for x in known}
    assert list(found.values) == sorted(set(known))


# The classes of a new run.


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ((0.0, 1.0), (0.0, 1.0)),
        ((-1.0, 1.0), None),
        ((-1.0, 0.0, 1.0), None),
        ((3.0, 7.0), (3.0, 7.0)),
        ((0.5, 0.7), (0.5, 0.7)),
        ((1, 2, 4), (1.0, 2.0, 4.0)),
        (("b", "a", "b"), ("a", "b")),
        ((True, False), (0.0, 1.0)),
        ((None, float("nan")), None),
        ((*[0.0, 1.0] * 100, 7.0), (0.0, 1.0)),
    ],
)
def test_the_values_of_the_sample_decide_the_classes(values, classes):
    assert learnt(ModelOptions(), *values).classes == classes


def place_of(number: int, values: Sequence[Any]) -> str:
    return f"the row of {values[0]} in column {number}"


QUANTITIES = {
    "867 delays": (range(-43, 824), 3),
    "214 blood values of 442 rows": (range(25, 239), 2),
    "33 values": (range(33), 100),
    "25 values with a gap": ([*range(24), 30], 100),
    "25 values from 5 on": (range(5, 30), 100),
    "25 counts of which the largest are rare": ([0] * 9000 + [1] * 900 + list(range(25)) * 9, 1),
    "12 values in 24 rows": (range(12), 2),
    "three numbers that are not whole": ([0.5, 1.0, 2.0], 100),
}
CLASSES = {
    "two numbers that are not whole": ([0.5, 0.7], 2),
    "ten digits": (range(10), 1),
    "7 cover types from 1 on": (range(1, 8), 2),
    "20 ids": (range(100, 2100, 100), 3),
    "26 letters": (range(26), 100),
    "32 classes from 1 on": (range(1, 33), 3),
}


@pytest.mark.parametrize(("values", "times"), QUANTITIES.values(), ids=QUANTITIES)
def test_labels_that_look_like_quantities_are_predicted_as_numbers(values, times):
    options, notes = learn_labels(ModelOptions(), [counts(*values, *list(values) * (times - 1))])
    assert (options.loss, options.classes) == ("squared", None)
    assert "predicted as a number (`--loss squared`). If these are classes: `--classes auto`" in notes[0]


@pytest.mark.parametrize(("values", "times"), CLASSES.values(), ids=CLASSES)
def test_labels_that_look_like_classes_are_classes(values, times):
    options, notes = learn_labels(ModelOptions(), [counts(*list(values) * times)])
    assert (options.loss, options.classes) == ("logistic", tuple(map(float, values)))
    assert (
        len(values) == 2 or "each is a class (`--loss logistic`). If these are quantities: `--loss squared`" in notes[0]
    )


@pytest.mark.parametrize("given", [{}, {"loss": "hinge"}, {"classes": "auto"}], ids=str)
@pytest.mark.parametrize("label", ["yes", 1, 0.0, True])
def test_a_label_with_one_value_is_refused_whatever_its_type(label, given):
    with pytest.raises(DataError, match=r"only one value in the sample: .*\n.*two classes: .*--classes A,B"):
        learnt(ModelOptions(**given), label, label, None)


def test_the_positive_class_of_strings():
    assert learnt(ModelOptions(positive="a"), "a", "b").classes == ("b", "a")
    several = learnt(ModelOptions(positive=2.0), "1", "2", "3")
    assert (several.classes, several.positive) == (None, "2")
    with pytest.raises(DataError, match="no sampled row has the label 'x'; the labels are 'a', 'b'"):
        learnt(ModelOptions(positive="x"), "a", "b")
    with pytest.raises(DataError, match="holds numbers, not strings like 'x'"):
        learnt(ModelOptions(positive="x"), 1.0, 2.0)
    with pytest.raises(DataError, match="only one value in the sample: 'a'"):
        learnt(ModelOptions(), "a", "a")


@pytest.mark.parametrize(
    ("values", "weights"),
    [((0, 1, 1, 1), (2.0, 2 / 3)), ((-1, 1, 1, 0), (1.0, 1.0)), (("a", "b", "c", "c"), (4 / 3, 4 / 3, 2 / 3))],
)
def test_balanced_classes_have_equal_weight_in_the_sample(values, weights):
    assert learnt(ModelOptions(class_weight="balanced"), *values).class_weight == pytest.approx(weights, rel=1e-15)


# Classes that appear later.


@given(st.data())
def test_a_class_keeps_its_number_when_others_join(data):
    make = data.draw(st.sampled_from([str, float]))
    old = data.draw(st.lists(st.integers(0, 9), min_size=3, max_size=6, unique=True))
    new = data.draw(st.lists(st.integers(0, 15), max_size=6))
    options = learnt(ModelOptions(), *(make(label) for label in old))
    grown, _ = extend_labels(options, [counts(*(make(label) for label in new))] if new else [counts(None)], place_of)
    assert options.classes is not None
    assert grown.classes is not None
    assert grown.classes[: len(options.classes)] == options.classes
    joined = sorted({make(label) for label in new} - set(options.classes))
    assert list(grown.classes[len(options.classes) :]) == joined
    assert grown.joined_classes == len(joined)
    for label in options.classes:
        assert targets(label_specs(grown)[0], [label]) == targets(label_specs(options)[0], [label])


def test_two_classes_do_not_become_three():
    options = learnt(ModelOptions(), "a", "b")
    with pytest.raises(
        DataError, match=r"column 'label' that .* not know .*\('?.*'a', 'b'\): 'c'; .* the row of c in column 0"
    ):
        extend_labels(options, [counts("a", "c")], place_of)
    skipping = replace(options, on_bad_row="skip")
    assert extend_labels(skipping, [counts("a", "c")], place_of) == (skipping, [])
    with pytest.raises(DataError, match=r"it knows two classes\): 7;"):
        extend_labels(ModelOptions(), [counts(1.0, 7.0)], place_of)
    one_of_many = learnt(ModelOptions(positive="b"), "a", "b", "c")
    assert extend_labels(one_of_many, [counts("z")], place_of) == (one_of_many, [])
