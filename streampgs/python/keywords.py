"""Public functions of Python: their options are listed by `help()` and `inspect.signature()`, and their errors name
keywords."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from streampgs.options.fields import HEADINGS, Flag, Option, options_for
from streampgs.options.messages import python_errors, python_words

_Function = TypeVar("_Function", bound=Callable[..., Any])
_WIDTH, _INDENT = 100, "      "
_REPEATED = {"Can be repeated.": "Also a list.", "Repeat it": "Give a list"}


def public(command: str, *kinds: type, required: Sequence[str] = ()) -> Callable[[_Function], _Function]:
    """The function of a command: it takes the options of these dataclasses as keywords. `required`: arguments that have a
    default only so that a call without them gets an error with a remedy."""

    def decorated(function: _Function) -> _Function:
        called = python_errors(function)
        signature = inspect.signature(function)
        own = [
            each.replace(default=inspect.Parameter.empty) if each.name in required else each
            for each in signature.parameters.values()
            if each.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        declared = {
            name: each for name, each in options_for(command, kinds).items() if name not in signature.parameters
        }
        types = {each.name: (each.type, each.default) for kind in kinds for each in fields(kind)}
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=types[name][0], default=types[name][1])
            for name in declared
        ]
        called.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        called.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{_described(declared)}"
        return called

    return decorated


def _described(options: dict[str, Option]) -> str:
    """Under headings, as in the help of the command."""
    lines = []
    for heading in HEADINGS:
        under = {name: each for name, each in options.items() if each.heading == heading}
        lines += ["", f"{heading}:"] if under else []
        for name, each in under.items():
            values = "True|False" if isinstance(each.value, Flag) else each.value.metavar
            lines.append(f"  {name}: {values}")
            lines += textwrap.wrap(_in_python(each.text), _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "\n".join(lines[1:])


def _in_python(help: str) -> str:
    for words, instead in _REPEATED.items():
        help = help.replace(words, instead)
    return python_words(help)
