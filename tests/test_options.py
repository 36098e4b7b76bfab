"""What a user may choose: each fault of a choice is an error that names the option."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.checks import decode, encode
from streampgs.base.errors import OptionError, command_words
from streampgs.cli.main import cli
from streampgs.cli.options import DeclaredOption
from streampgs.losses import ELSEWHERE as NAMES_OF_LOSSES
from streampgs.losses import LOSSES
from streampgs.options.commands import (
    Growth,
    Limits,
    ModelOptions,
    Resources,
    default_epochs,
)
from streampgs.options.fields import (
    ELSEWHERE,
    Choice,
    Number,
    build,
    meant,
    options_of,
    parse_duration,
    parse_size,
)
from streampgs.options.solvers import SMALLEST_P, SOLVERS

# Sizes and durations.

SIZES = {
    "0": 0, "1234": 1234, "7B": 7, "512MB": 512 * 10**6, "1.5GB": 15 * 10**8, "2TB": 2 * 10**12, "3kb": 3000,
    "2GiB": 2 * 2**30, "1.5G": 3 * 2**29, "64K": 2**16, "1M": 2**20, "1t": 2**40, "256 MiB": 2**28, " 10 MB ": 10**7,
    "1.GB": 10**9, "0.5KiB": 512,
}  # fmt: skip


@pytest.mark.parametrize("text", SIZES)
def test_size(text):
    assert parse_size(text) == SIZES[text]
    assert type(parse_size(text)) is int


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", "1e9", "1.5.2GB", "12 parsecs", "1,000", "0x10", "nan", "inf", "1 GB 2", ".5G"]
)
def test_invalid_size(text):
    with pytest.raises(OptionError, match=r"is not a valid size\n  → write it like 512MB, 2GiB or 1\.5G"):
        parse_size(text)


DURATIONS = {"0": 0.0, "90": 90.0, "30s": 30.0, "1.5m": 90.0, "2h": 7200.0, " 5 m ": 300.0, "0.25s": 0.25}


@pytest.mark.parametrize("text", DURATIONS)
def test_duration(text):
    assert parse_duration(text) == DURATIONS[text]


@pytest.mark.parametrize("text", ["", "s", "-5s", "1d", "1h30m", "5 minutes", "nan", "inf", "1,5s", "5S"])
def test_invalid_duration(text):
    with pytest.raises(OptionError, match=r"is not a valid duration\n  → write it like 30s, 5m or 1h"):
        parse_duration(text)


# What defines a model.

shown = Number().text
NO_NUMBERS = [0.0, -1.0, math.nan, math.inf, -math.inf]

WRONG_MODELS: list[tuple[dict[str, Any], str]] = [
    ({"loss": "log"}, "--loss log is unknown"),
    ({"loss": ""}, "--loss '' is unknown"),
    ({"returns": "best"}, "--return best is unknown"),
    ({"on_bad_row": "ignore"}, "--on-bad-row ignore is unknown"),
    *[({"p": p}, f"--p {shown(p)} is not") for p in (1.0, SMALLEST_P - 1e-9, 2.0 + 1e-9, 0.0, -2.0, 3.0, math.nan, math.inf)],
    *[({"sigma": sigma}, f"--sigma {shown(sigma)} is not 'auto' or a number above 0") for sigma in NO_NUMBERS],
    *[({"ball": ball}, f"--ball {shown(ball)} is not 'auto' or 'none' or a number above 0") for ball in NO_NUMBERS],
    ({"ball": 0}, "--ball 0 is not 'auto' or"),
    ({"ball": "large"}, "--ball large is not"),
    *[({"t0": t0}, f"--t0 {shown(t0)} is not 'auto' or a number above 0") for t0 in NO_NUMBERS],
    *[({"batch": batch}, f"--batch {batch} is not a whole number of at least 1 and at most 1048576") for batch in (0, -1, 1 << 21)],
    *[({"intercept": c}, f"--intercept {c} is not 'auto' or a number of at least 0") for c in (-0.1, math.nan, math.inf)],
    *[({"loss": names}, f"--loss {','.join(names)}: losses of regression have different units") for names in (("squared", "poisson"), ("squared", "huber", "absolute"))],
    ({"quantile": 0.5}, "--quantile with --loss logistic"),
    *[({"loss": "quantile", "quantile": q}, f"--quantile {shown(q)} is not a number above 0 and below 1") for q in (0.0, 1.0, -1.0, 2.0, math.nan)],
    ({"huber_width": 1.0}, "--huber-width with --loss logistic"),
    ({"loss": "squared", "huber_width": 1.0}, "--huber-width with --loss squared"),
    *[({"loss": "huber", "huber_width": w}, f"--huber-width {shown(w)} is not a number above 0") for w in NO_NUMBERS],
    ({"seed": 2**62}, f"--seed {2**62} is not"),
    *[({"feature_count": n}, f"--feature-count {n} is not a whole number") for n in (0, -1, 2**31)],
]  # fmt: skip


@pytest.mark.parametrize(("changes", "found"), WRONG_MODELS, ids=str)
def test_wrong_model_names_the_option(changes, found):
    with pytest.raises(OptionError) as refused:
        ModelOptions(**changes)
    assert found in str(refused.value)
    assert refused.value.remedy


@given(
    st.builds(
        ModelOptions,
        loss=st.sampled_from(tuple(LOSSES)),
        p=st.floats(SMALLEST_P, 2.0),
        sigma=st.floats(min_value=0.0, exclude_min=True, allow_infinity=False),
        ball=st.one_of(st.sampled_from([None, "auto", "none"]), st.floats(1e-300, 1e300)),
        t0=st.one_of(st.just("auto"), st.floats(1e-300, 1e300)),
        batch=st.integers(1, 1 << 20),
        seed=st.integers(1 - 2**62, 2**62 - 1),
        label=st.text(),
        positive=st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    )
)
def test_every_digit_comes_back_from_json(options):
    assert decode(ModelOptions, json.loads(json.dumps(encode(options)))) == options


def test_a_decoded_record_is_checked_too():
    record = encode(ModelOptions())
    with pytest.raises(ValueError, match="--p 5"):
        decode(ModelOptions, {**record, "p": 5})


# When training ends.


def test_limits_given_or_by_default():
    assert not Limits().given
    assert Limits().or_default(1000) == Limits(epochs=default_epochs(1000))
    for limits in (
        Limits(epochs=1),
        Limits(rows=10),
        Limits(seconds=0.5),
        Limits(target_accuracy=1.0),
        Limits(target_gap=1e-9),
    ):
        assert limits.given
        assert limits.or_default(1000).given
    for limits in (Limits(epochs=1), Limits(rows=10), Limits(seconds=0.5), Limits(rows=10, target_gap=0.1)):
        assert limits.or_default(1000) is limits


# What training may use.


# Options that solvers and losses declare.


def another_value(kind):
    """A value that is valid and not the default of any option of a solver."""
    if isinstance(kind, Choice):
        return next(name for name in reversed(kind.names) if name != "none")
    return 3 if getattr(kind, "whole", False) else 1.5


@pytest.mark.parametrize("name", SOLVERS)
def test_options_of_another_solver_are_refused(name):
    others = {field for solver in SOLVERS.values() for field in solver.options} - set(SOLVERS[name].options)
    for field in others:
        value = another_value(options_of(ModelOptions)[field].value)
        with pytest.raises(OptionError, match=f"{options_of(ModelOptions)[field].flag} with --solver {name}"):
            ModelOptions(solver=name, **{field: value})


@pytest.mark.parametrize("loss", [loss for loss in LOSSES.values() if loss.parameter and loss.parameter.help])
def test_the_parameter_of_a_loss_is_an_option_for_this_loss_alone(loss):
    value = 0.25
    assert ModelOptions(loss=loss.name, **{loss.parameter.name: value}).loss_parameter(loss.name) == value
    for other in set(LOSSES) - {loss.name}:
        with pytest.raises(OptionError, match=f"use it with --loss {loss.name} alone"):
            ModelOptions(loss=other, **{loss.parameter.name: value})


# Keywords of the Python API.


def test_options_of_another_command_are_refused():
    assert build("train", {"sigma": 0.5}, ModelOptions, Growth)[0].sigma == 0.5
    assert build("resume", {"sigma": 0.5}, Growth)[0].sigma == 0.5
    with pytest.raises(OptionError, match="unknown option 'add'"):
        build("train", {"add": "more/"}, ModelOptions, Growth)
    with pytest.raises(OptionError, match="unknown option 'window'"):
        build("resume", {"window": "1MB"}, Resources)


def test_a_misspelt_option_is_refused_with_the_nearest_one():
    with pytest.raises(OptionError, match="did you mean sigma\\?"):
        build("train", {"sigmma": 0.5}, ModelOptions)


# Help, and names of other libraries.

COMMANDS = list(cli.commands)


def help_of(command, option, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(cli, [command, option])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_fits_a_screen_and_help_all_has_every_option(command, monkeypatch):
    first = help_of(command, "--help", monkeypatch)
    assert len(first.splitlines()) <= 50
    everything = help_of(command, "--help-all", monkeypatch) if "--help-all" in first else first
    declared = [option for option in cli.commands[command].params if isinstance(option, DeclaredOption)]
    for option in declared:
        assert re.search(rf"^  {option.declared.flag}( |$)", everything, re.MULTILINE), option.declared.flag
        assert "".join(command_words(option.declared.text).split()) in "".join(everything.split())
    assert all(option.declared.flag in first for option in declared if option.declared.required)


@pytest.mark.parametrize("options", ELSEWHERE)
def test_a_name_of_another_library_suggests_options_that_exist(options):
    known = [flag for option in cli.commands["train"].params for flag in option.opts]
    expected = [f"--{option}" for option in options.split()]
    assert set(expected) <= set(known)
    for name in ELSEWHERE[options].split():
        assert f"--{name}" not in known
        assert meant(f"--{name}", known) == expected
        done = CliRunner().invoke(cli, ["train", "data", f"--{name}", "1"])
        assert f"Did you mean {' or '.join(expected)}?" in done.output


@pytest.mark.parametrize("loss", NAMES_OF_LOSSES)
def test_a_loss_of_another_library_suggests_one_that_exists(loss):
    assert loss in LOSSES
    for name in NAMES_OF_LOSSES[loss].replace("-", "_").split():
        with pytest.raises(OptionError, match=rf"{name} is unknown\n  → did you mean {loss}\? choose one of"):
            ModelOptions(loss=name)
