"""Options of Python: text is read as on the command line, every value is taken or refused by name, and help lists them all."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields
from typing import Any

import numpy as np
import pandas
import pytest

import streampgs
from streampgs.base.errors import StreampgsError
from streampgs.options.commands import (
    RESUME_OPTIONS,
    TRAIN_OPTIONS,
    EncodingOptions,
    EvaluateOptions,
    HistoryOptions,
    InspectOptions,
    Limits,
    ModelOptions,
    NewLimits,
    PredictOptions,
    Resources,
)
from streampgs.options.fields import More, options_for, options_of
from streampgs.packing.options import PackOptions

KINDS = [
    *TRAIN_OPTIONS,
    NewLimits,
    RESUME_OPTIONS[-1],
    EvaluateOptions,
    InspectOptions,
    PredictOptions,
    PackOptions,
]
ODD = [
    None, 0, -1, 3, 2.5, float("nan"), float("inf"), True, "", "x", "1", "a,b", b"x", (), [], [[1]], ["a", 1], {}, {"a": 1},
    {0: 1}, {1}, range(3), object(), int, np.zeros(3), np.zeros((2, 2)), np.array(["a", "b"]), np.float32(1), np.int8(1),
    np.str_("a"), pandas.Series([1, 2]), pandas.DataFrame({"a": [1]}), iter([1]),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_any_value_is_taken_or_refused(kind: Any) -> None:
    for name in options_of(kind):
        for value in ODD:
            try:
                kind(**{name: value})
            except StreampgsError as refused:
                assert str(refused), (name, value)


@pytest.mark.parametrize(
    ("kind", "name", "text", "value"),
    [
        (Limits, "seconds", "5m", 300.0),
        (Limits, "epochs", "3", 3),
        (Limits, "epochs", "+3", 3),
        (Limits, "seconds", "+5m", 300.0),
        (NewLimits, "epochs", "3", 3),
        (NewLimits, "epochs", "+3", More(3)),
        (NewLimits, "seconds", "+5m", More(300.0)),
        (ModelOptions, "sigma", "1e-3,1e-4", (1e-3, 1e-4)),
        (ModelOptions, "sigma", "auto", "auto"),
        (ModelOptions, "loss", "hinge,logistic", ("hinge", "logistic")),
        (ModelOptions, "classes", "a,b,c", ("a", "b", "c")),
        (ModelOptions, "class_weight", "1,2.5", (1.0, 2.5)),
        (Resources, "memory", "256MB", 256 * 10**6),
        (Resources, "checkpoint_seconds", "1h", 3600.0),
        (EncodingOptions, "cross", "a,b", (("a", "b"),)),
        (PackOptions, "types", "age=int64", (("age", "int64"),)),
    ],
)
def test_text_is_read_as_on_the_command_line(kind: Any, name: str, text: str, value: object) -> None:
    assert getattr(kind(**{name: text}), name) == value


def test_arrays_of_numbers_are_several_values() -> None:
    sigmas = np.logspace(-5, -2, 4)
    assert ModelOptions(sigma=sigmas).sigma == tuple(sigmas.tolist())  # type: ignore[arg-type]
    assert ModelOptions(sigma=pandas.Series([0.5])).sigma == 0.5  # type: ignore[arg-type]


PUBLIC = {
    "train": TRAIN_OPTIONS,
    "resume": RESUME_OPTIONS,
    "evaluate": (EvaluateOptions,),
    "predict": (PredictOptions,),
    "inspect": (InspectOptions, EncodingOptions),
    "history": (HistoryOptions,),
    "pack": (PackOptions,),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_signature_and_help_list_every_option(name: str) -> None:
    function = getattr(streampgs, name)
    parameters = inspect.signature(function).parameters
    options = options_for(name, PUBLIC[name])
    assert set(options) <= set(parameters)
    defaults = {each.name: each.default for kind in PUBLIC[name] for each in fields(kind)}
    own = set(inspect.signature(inspect.unwrap(function)).parameters)
    for option in set(options) - own:
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[option].default == defaults[option]
    assert name != "train" or parameters["run"].default is inspect.Parameter.empty
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    text = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert "--" not in text
    assert "epeat" not in text  # the word of the command line for a list
    for option in set(options) - own:
        assert f"{option}: " in text
