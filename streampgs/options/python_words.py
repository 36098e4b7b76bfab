"""Messages for users of Python. The library writes messages in the words of the command line; here `--epochs 3` becomes
`epochs=3`, and `streampgs resume RUN` becomes `streampgs.resume('RUN')`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import cache, wraps
from typing import Any, TypeVar, cast

from streampgs.base.errors import BadValue, OptionError, StreampgsError
from streampgs.options.fields import Checked, FilePath, Flag, Label, Listed, Pair, Text, options_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_VALUE = r"'[^']*'|\"[^\"]*\"|[^\s;:()'→]*[^\s;:()'→.,]"
_FLAG = re.compile(rf"(?<![\w-])(--[a-z0-9][a-z0-9-]*)(?: ({_VALUE}))?")
_COMMAND = re.compile(
    r"(?:producer \| )?\bstreampgs (train|resume|evaluate|predict|inspect|history|pack)\b(?! [a-z]+ing\b)"
    rf"((?: (?!--)(?:{_VALUE}))?)((?: -(?![\w-])| [A-Z][A-Z-]+\b)*)((?: --[a-z-]+(?: (?!--)(?:{_VALUE}))?)*)"
)
_COMMAND_WITHOUT_ITS_PROGRAM = re.compile(r"\b(train|resume) (?=--)")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*(?:,[A-Z…]+)*")
_ANY_TEXT = Text, FilePath, Label, Pair
"""Kinds of values of which any word could be one."""
_NOT_VALUES = {
    "a", "all", "alone", "an", "and", "are", "as", "at", "beside", "column", "columns", "does", "for", "from", "gives",
    "has", "helps", "if", "in", "instead", "is", "leaves", "makes", "may", "must", "names", "needs", "of", "on", "or",
    "reads", "sets", "shows", "takes", "tells", "than", "that", "the", "then", "there", "to", "together", "uses", "was",
    "were", "when", "which", "with", "without",
}  # fmt: skip
_VERBS = {"and", "has", "is", "leaves", "needs", "or", "reads", "shows", "takes", "tells", "to", "with", "writes"}


def python_words(text: str) -> str:
    """The message with calls of functions and keywords instead of commands and options."""
    text = _COMMAND.sub(_call, text)
    return _FLAG.sub(_keyword, _COMMAND_WITHOUT_ITS_PROGRAM.sub(r"\1 with ", text))


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
    """Let the error name the arguments of Python."""
    error.say(_found(error), [python_words(line) for line in error.remedy_lines])


def _found(error: StreampgsError) -> list[str]:
    """The lines of the finding; a value is written as in Python."""
    if isinstance(error, BadValue) and error.flag.startswith("--"):
        keyword = _keywords().get(error.flag.split()[0])
        name, error.flag = keyword.name if keyword else error.flag, ""
        return [f"{name}={_shown(error.value)} {error.complaint}".rstrip()]
    return [python_words(line) for line in error.found_lines]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 and "\n" not in text else f"<{type(value).__name__}>"


@dataclass(frozen=True)
class _Keyword:
    name: str
    values: tuple[Text, ...]
    """Of all commands that have the option."""


_OF_THE_COMMAND_LINE = {
    "--run": _Keyword("run", (FilePath(),)),
    "--no-intercept": _Keyword("intercept=0", (Flag(),)),
    "--quiet": _Keyword("progress=False", (Flag(),)),
}
"""Options that only the command line has, with their replacements."""


def _keywords() -> dict[str, _Keyword]:
    """The keyword of each option, by its flag."""
    return _keywords_of(sum(map(is_dataclass, Checked.kinds)))


@cache
def _keywords_of(kinds: int) -> dict[str, _Keyword]:
    """`kinds`: the number of dataclasses of options that are known by now."""
    known = dict(_OF_THE_COMMAND_LINE)
    for kind in filter(is_dataclass, Checked.kinds):
        for name, each in options_of(kind).items():
            values = known[each.flag].values if each.flag in known else ()
            known[each.flag] = _Keyword(name, (*values, each.value))
    return known


def _keyword(found: re.Match[str]) -> str:
    flag, word = found.group(1), found.group(2)
    keyword = _keywords().get(flag)
    if keyword is None:
        return found.group(0)
    name, values, rest = keyword.name, keyword.values, "" if word is None else f" {word}"
    if any(isinstance(value, Flag) for value in values):
        return (name if "=" in name else f"{name}=True") + rest
    taking = [value for value in values if word is not None and _is_value(value, flag, word)]
    return f"{name}={_literal(taking[0], str(word))}" if taking else name + rest


def _is_value(value: Text, flag: str, word: str) -> bool:
    if word[0] in "'\"" or _PLACEHOLDER.fullmatch(word):
        return True
    if _is_any_text(value):
        return word not in _NOT_VALUES
    try:
        value.settle(flag, value.parse(word))
    except OptionError:
        return bool(re.match(r"-?[0-9]", word))
    return True


def _is_any_text(value: Text) -> bool:
    return type(value.of if isinstance(value, Listed) else value) in _ANY_TEXT


def _literal(value: Text, word: str) -> str:
    if word[0] in "'\"":
        return word
    is_number = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", word) is not None
    is_name = _PLACEHOLDER.fullmatch(word) is not None and "," not in word and not _is_any_text(value)
    return word if is_number or is_name else f"'{word}'"


def _call(found: re.Match[str]) -> str:
    command, first, others, options = found.groups()
    if first.strip() in _VERBS:
        return f"streampgs.{command}{first}"
    arguments = ["'" + word.strip("'") + "'" for word in [first.strip(), *others.split()] if word]
    if not arguments and not options:
        return f"streampgs.{command}"
    keywords = [_FLAG.sub(_keyword, f"--{part}") for part in options.split(" --")[1:]]
    return f"streampgs.{command}({', '.join([*arguments, *keywords])})"
