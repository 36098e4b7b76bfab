"""Errors and notes name functions and keywords of Python, never commands and options of the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import streampgs
from streampgs.base.errors import OptionError
from streampgs.options.commands import TRAIN_OPTIONS, ModelOptions, Resources
from streampgs.options.fields import Checked, Flag, options_of
from streampgs.options.messages import python_errors, python_words
from streampgs.packing.options import PackOptions

PACKAGE = Path(streampgs.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z]")
ALL_OPTIONS = {
    each.flag: name
    for kind in (*filter(is_dataclass, Checked.kinds), PackOptions)
    for name, each in options_of(kind).items()
}


@pytest.mark.parametrize("flag", ALL_OPTIONS)
def test_every_option_has_a_keyword(flag: str) -> None:
    name = ALL_OPTIONS[flag]
    for text in (f"give {flag}", f"{flag} without it", f"(no {flag}, or more)", f"`{flag} VALUE`", f"`{flag} 'a b'`"):
        assert re.search(rf"\b{name}\b", python_words(text)), text
        assert not OPTION.search(python_words(text)), text


@pytest.mark.parametrize(
    ("command_line", "python"),
    [
        (
            "give more --memory, or leave out columns with --ignore",
            "give more memory, or leave out columns with ignore",
        ),
        ("`--memory 10MB` is too little", "memory='10MB' is too little"),
        ("use it with `--loss squared` alone", "use it with loss='squared' alone"),
        ("`--epochs 3`, `--step 1e-3`, or `--epochs N`", "epochs=3, step=1e-3, or epochs=N"),
        ("give `--kernel rbf` or `--sigma auto`", "give kernel='rbf' or sigma='auto'"),
        ("name it with `--label COLUMN`", "name it with label=COLUMN"),
        ("`--ignore SOLD` matches none", "ignore='SOLD' matches none"),
        ("`--text 'a b'` matches none", "text='a b' matches none"),
        ("`--classes a b,c` with a loss", "classes='a b,c' with a loss"),
        ("fulfils `--where \"a > 'x'\"`; check it", "fulfils where=\"a > 'x'\"; check it"),
        ("continue with: --accept-changes", "continue with: accept_changes=True"),
        ("`--checkpoint-every 30s`", "checkpoint_seconds='30s'"),
        ("give `--rows +N --target-gap 0.1`", "give rows='+N', target_gap=0.1"),
        ("name another folder as --run", "name another folder as run"),
        ("leave --no-intercept out", "leave intercept=0 out"),
        ("continue with: `streampgs resume a/run`", "continue with: streampgs.resume('a/run')"),
        ("train longer: `streampgs resume run --epochs +1`", "train longer: streampgs.resume('run', epochs='+1')"),
        ("from that row: `producer | streampgs resume run -`", "from that row: streampgs.resume('run', '-')"),
        ("`streampgs inspect DATA` shows more", "streampgs.inspect('DATA') shows more"),
        ("`streampgs train DATA --run 'my run'`", "streampgs.train('DATA', run='my run')"),
        ("in random order (`streampgs pack --shuffle`)", "in random order (streampgs.pack(shuffle=True))"),
        ("compare them with `streampgs evaluate`", "compare them with streampgs.evaluate"),
        ("a column 'x--y', 3 -- 4 and `a b` stay", "a column 'x--y', 3 -- 4 and `a b` stay"),
    ],
)
def test_commands_and_options_become_functions_and_keywords(command_line: str, python: str) -> None:
    assert python_words(command_line) == python
    assert python_words(python) == python


def test_the_command_line_prints_a_message_without_its_marks() -> None:
    error = OptionError("`--l1 0.5` with `a b`", "`streampgs resume RUN --epochs +1`, or more --memory")
    assert str(error) == "--l1 0.5 with `a b`\n  → streampgs resume RUN --epochs +1, or more --memory"


def messages() -> Iterator[tuple[str, str]]:
    """The texts of the library that are not of the command line. A value in a text is '1'."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "cli" in path.parts or path.name == "python_words.py":
            continue
        tree = ast.parse(path.read_text())
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        skipped = {
            id(part.value)
            for node in ast.walk(tree)
            if isinstance(node, documented)
            for part in node.body
            if isinstance(part, ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in node.values}
                parts = [str(part.value) if isinstance(part, ast.Constant) else " 1" for part in node.values]
                yield path.name, re.sub(r"(?<![a-z]) 1", "1", "".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                yield path.name, node.value


def test_no_message_of_the_library_keeps_an_option_of_the_command_line() -> None:
    found = [(where, text) for where, text in messages() if OPTION.search(python_words(text))]
    assert found == []
    assert sum(bool(OPTION.search(text)) for _, text in messages()) > 100  # the search finds messages at all


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"sigma": -1.0}, "sigma=-1.0 is not"),
        ({"sigma": (1e-3, -2.0)}, "sigma=-2.0 is not"),
        ({"class_weight": {0: 1}}, r"class_weight=\{0: 1\} is not 'balanced'"),
        ({"loss": "log"}, "loss='log' is unknown"),
        ({"seed": "many"}, "seed='many' is not"),
        ({"threads": None}, "threads=None is not"),
        ({"weight": object}, r"weight=<class 'object'> is a type"),
    ],
    ids=str,
)
def test_a_wrong_value_is_shown_as_python_shows_it(options: dict[str, object], found: str) -> None:
    with pytest.raises(OptionError, match=found) as refused:
        python_errors(lambda: ModelOptions(**options))()
    assert refused.value.remedy
    assert "--" not in str(refused.value)


def test_the_name_of_a_keyword_may_differ_from_its_option() -> None:
    with pytest.raises(OptionError, match="checkpoint_seconds='soon' is not a valid duration"):
        python_errors(lambda: Resources(checkpoint_seconds="soon"))()  # type: ignore[arg-type]


def test_every_option_of_training_names_its_keyword_when_it_is_wrong() -> None:
    wrong = object()
    for kind in TRAIN_OPTIONS:
        for name, declared in options_of(kind).items():
            with pytest.raises(OptionError) as refused:
                python_errors(lambda kind=kind, name=name: kind(**{name: wrong}))()
            assert refused.value.found.startswith(f"{name}="), (name, declared)
            assert refused.value.remedy, name
            assert isinstance(declared.value, Flag) == ("True or False" in refused.value.remedy), name
