"""Messages in the words of Python: options are keywords there, and commands are functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache, wraps
from typing import Any, TypeVar, cast

from streampgs.base.errors import MARKED, BadValue, StreampgsError
from streampgs.options.fields import Checked, Flag, options_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OF_THE_COMMAND_LINE = {"--run": "run", "--no-intercept": "intercept=0", "--quiet": "progress=False"}
"""Options that only the command line has, with their replacements."""


def python_words(text: str) -> str:
    """The message with `epochs=3` for `--epochs 3`, and `streampgs.resume('RUN')` for `streampgs resume RUN`."""
    return MARKED.sub(_in_python, text)


def python_errors(function: _Function) -> _Function:
    """A public function whose errors name the arguments of Python."""

    @wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except StreampgsError as error:
            say_for_python(error)
            raise

    return cast(_Function, called)


def say_for_python(error: StreampgsError) -> None:
    """Let the error name the arguments of Python; a value is written as Python writes it."""
    found = [python_words(line) for line in error.found_lines]
    if isinstance(error, BadValue) and error.flag.startswith("--"):
        text = repr(error.value)
        shown = text if len(text) <= 80 and "\n" not in text else f"<{type(error.value).__name__}>"
        found, error.flag = [f"{python_words(error.flag)}={shown} {error.complaint}".rstrip()], ""
    error.say(found, [python_words(line) for line in error.remedy_lines])


def _in_python(found: re.Match[str]) -> str:
    command, *options = f" {found[1] or found[0]}".split(" --")
    keywords = [_keyword(*option.partition(" ")[::2]) for option in options]
    if not command:
        return ", ".join(keywords)
    function, *arguments = shlex.split(command.partition("streampgs ")[2])
    given = ", ".join([*map(repr, arguments), *keywords])
    return f"streampgs.{function}({given})" if given else f"streampgs.{function}"


def _keyword(name: str, value: str) -> str:
    keyword, symbols = _keywords(len(Checked.kinds)).get(f"--{name}", (f"--{name}", ""))
    if not value:
        return keyword
    if value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    is_number = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", value) is not None
    return f"{keyword}={value if is_number or value in symbols else repr(value)}"


@cache
def _keywords(kinds: int) -> dict[str, tuple[str, tuple[str, ...]]]:
    """For each option, the keyword and the symbols of its values. `kinds`: the number of dataclasses of options that are
    known by now."""
    known: dict[str, tuple[str, tuple[str, ...]]] = {
        flag: (keyword, ()) for flag, keyword in _OF_THE_COMMAND_LINE.items()
    }
    for kind in filter(is_dataclass, Checked.kinds):
        for name, each in options_of(kind).items():
            keyword = f"{name}=True" if isinstance(each.value, Flag) else name
            known[each.flag] = keyword, tuple(re.findall(r"\b[A-Z]+\b", each.value.metavar))
    return known
