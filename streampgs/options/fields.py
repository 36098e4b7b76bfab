"""How an option is declared: once, as a dataclass field with its values, help, heading and default.

The command line, the checks, the keywords of the Python API and docs/reference.md all follow from these fields.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from streampgs.base.errors import BadValue, OptionError

COMMON, DATA, MODEL, LIMITS = "Common options", "Data and columns", "Model", "Limits"
RESOURCES, GROWTH, STREAMS, OUTPUT = "Resources", "Growing data", "Streams", "Output"
HEADINGS = (COMMON, DATA, MODEL, LIMITS, RESOURCES, GROWTH, STREAMS, OUTPUT)
FIRST_SCREEN = (COMMON, OUTPUT)
"""What --help lists, with a sentence for each option. --help-all has everything."""

_LARGEST = 1 << 60  # of whole numbers: sums of two are still far from the end of 64 bits
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {letter + end: 2 ** (10 * (1 + power)) for power, letter in enumerate("KMGT") for end in ("", "IB")}


def parse_size(text: str | int) -> int:
    """Bytes from '512MB', '2GiB', '1.5G' or a plain number."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", str(text))
    unit = match.group(2).upper() if match else ""
    if match is None or unit not in _UNITS:
        raise BadValue(text, "is not a valid size", "write it like 512MB, 2GiB or 1.5G")
    size = float(match.group(1)) * _UNITS[unit]
    if size > _LARGEST:
        raise BadValue(text, "is larger than any machine", "write it like 512MB, 2GiB or 1.5G")
    return int(size)


def parse_duration(text: str | float) -> float:
    """Seconds from '30s', '5m', '1h' or a plain number."""
    match = re.fullmatch(r"\s*\+?([0-9]+(?:\.[0-9]*)?)\s*([smh]?)\s*", str(text))
    if match is None:
        raise BadValue(text, "is not a valid duration", "write it like 30s, 5m or 1h")
    return float(match.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600}[match.group(2)]


def size_text(size: int) -> str:
    """The shortest text that `parse_size` reads as this size."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("MiB", 2**20)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def values_of(option: Any) -> tuple[Any, ...]:
    """The values of an option that takes one or several."""
    if isinstance(option, range) or getattr(option, "ndim", None) == 1:  # an array or a series
        return tuple(option)
    return tuple(option) if isinstance(option, tuple | list) else (option,)


@dataclass(frozen=True)
class Text:
    """Any text. The other kinds of values override how a value is read."""

    symbol: str = "TEXT"

    @property
    def metavar(self) -> str:
        return self.symbol

    def word(self, text: str) -> Any:
        """A word on the command line, where it means something else than the same text in Python."""
        return text

    def read(self, value: Any) -> Any:
        """The value in its final type; BadValue if it is not valid. A text is read as on the command line."""
        if isinstance(value, str | os.PathLike) or (isinstance(value, Integral) and not isinstance(value, bool)):
            return str(value)
        raise BadValue(value, f"is a {type(value).__name__}", "give a text")

    def settle(self, flag: str, value: Any) -> Any:
        """As `read`; the error names the option."""
        try:
            return self.read(value)
        except BadValue as fault:
            raise BadValue(fault.value, fault.complaint, fault.remedy, flag) from None

    def text(self, value: Any) -> str:
        """The value as a user would write it."""
        return f"{value:.10g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Number(Text):
    """A number in [low, high], without the ends if `above` and `below` are set. Or one of `words`."""

    symbol: str = "X"
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    whole: bool = False
    words: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def metavar(self) -> str:
        return "|".join((self.symbol, *self.words))

    def number(self, text: str) -> float:
        return int(text) if self.whole else float(text)

    def read(self, value: Any) -> Any:
        if isinstance(value, str) and value in self.words:
            return value
        try:
            number: Any = self.number(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        is_number = isinstance(number, Real) and not isinstance(number, bool)
        if not is_number or not self._allows(number):
            raise BadValue(value, f"is not {self.range_text}", self.remedy or f"give {self.range_text}")
        if self.whole and math.isinf(self.high) and number > _LARGEST:
            raise BadValue(number, "is too large", f"give at most {self.text(_LARGEST)}")
        return int(number) if self.whole else float(number)

    def _allows(self, number: Any) -> bool:
        if not self.low <= number <= self.high or (self.above and number == self.low):
            return False
        if self.below and number == self.high:
            return False
        return isinstance(number, Integral) or (math.isfinite(number) and (not self.whole or number == int(number)))

    @property
    def noun(self) -> str:
        return "a whole number" if self.whole else "a number"

    @property
    def range_text(self) -> str:
        text = "".join(f"'{word}' or " for word in self.words) + self.noun
        if math.isfinite(self.low):
            text += f" {'above' if self.above else 'of at least'} {self.text(self.low)}"
        if math.isfinite(self.high):
            text += " and" if math.isfinite(self.low) else ""
            text += f" {'below' if self.below else 'at most'} {self.text(self.high)}"
        return text


@dataclass(frozen=True)
class Size(Number):
    """A number of bytes, also as '512MB'."""

    symbol: str = "SIZE"
    low: float = 0
    whole: bool = True
    noun = "a size"

    def number(self, text: str) -> int:
        return parse_size(text)

    def text(self, value: Any) -> str:
        return size_text(value) if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Duration(Number):
    """A number of seconds, also as '5m'."""

    symbol: str = "TIME"
    low: float = 0
    noun = "a duration"

    def number(self, text: str) -> float:
        return parse_duration(text)

    def text(self, value: Any) -> str:
        return f"{value:g}s" if value else "0"


@dataclass(frozen=True)
class More:
    """So much in addition to the amount that is reached."""

    amount: float


@dataclass(frozen=True)
class Total(Text):
    """A number that counts from the start of a run, or '+N': from where the run is."""

    of: Number = Number()

    @property
    def metavar(self) -> str:
        return f"[+]{self.of.metavar}"

    def read(self, value: Any) -> Any:
        if isinstance(value, str) and re.match(r"\+[0-9.]", value):
            return More(self.of.read(value[1:]))
        return More(self.of.read(value.amount)) if isinstance(value, More) else self.of.read(value)


@dataclass(frozen=True)
class Choice(Text):
    """One of some names."""

    symbol: str = ""
    names: Iterable[str] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """The names that other libraries have for them."""

    @property
    def metavar(self) -> str:
        return self.symbol or "|".join(self.names)

    def read(self, value: Any) -> str:
        if not isinstance(value, str) or value not in tuple(self.names):
            near = " or ".join(meant(value, self.names, self.elsewhere)) if isinstance(value, str) else ""
            question = f"did you mean {near}? " if near else ""
            raise BadValue(value, "is unknown", f"{question}choose one of {', '.join(self.names)}")
        return str(value)


@dataclass(frozen=True)
class Label(Text):
    """A number, or a text that is not a number."""

    symbol: str = "VALUE"

    def word(self, text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text

    def read(self, value: Any) -> float | str:
        if isinstance(value, str):
            return value
        if not isinstance(value, Real) or not math.isfinite(value):
            raise BadValue(value, "is not a label", "give a finite number or a text")
        return float(value)


@dataclass(frozen=True)
class Flag(Text):
    """Given or not."""

    symbol: str = ""

    def read(self, value: Any) -> bool:
        if type(value).__name__ not in ("bool", "bool_"):
            raise BadValue(value, "is not True or False", "give True or False")
        return bool(value)


@dataclass(frozen=True)
class FilePath(Text):
    """A file or folder."""

    symbol: str = "PATH"

    def word(self, text: str) -> Path:
        return Path(text)

    def read(self, value: Any) -> Path:
        if not isinstance(value, str | os.PathLike):
            raise BadValue(value, f"is a {type(value).__name__}", "give the path of a file or folder")
        return Path(value)


@dataclass(frozen=True)
class Lengths(Text):
    """A range of lengths: '1-2' or '3'."""

    symbol: str = "A-B"
    high: int = 32

    def read(self, value: Any) -> tuple[int, int]:
        match = re.fullmatch(r"\s*(\d{1,3})\s*(?:-\s*(\d{1,3})\s*)?", "-".join(map(str, values_of(value))))
        shortest, longest = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= shortest <= longest <= self.high:
            raise BadValue(value, "is not a range of lengths", f"give lengths like 1-2, from 1 to {self.high}")
        return shortest, longest


@dataclass(frozen=True)
class Pair(Text):
    """Two names with a comma between them."""

    symbol: str = "A,B"

    def read(self, value: Any) -> tuple[str, str]:
        names = tuple(value.split(",")) if isinstance(value, str) else values_of(value)
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            raise BadValue(value, "is not a pair of columns", "name two columns with a comma between them")
        return names


@dataclass(frozen=True)
class Listed(Text):
    """One value, or several with commas between them; a single value stays alone unless `always` is set."""

    of: Text = Text()
    alone: tuple[str, ...] = ()
    """Words that cannot be combined with other values."""
    always: bool = False
    unique: bool = True

    @property
    def metavar(self) -> str:
        first, *words = self.of.metavar.split("|")
        return "|".join((f"{first}[,…]", *words))

    def read(self, value: Any) -> Any:
        if isinstance(value, str):
            value = [self.of.word(part.strip()) for part in value.split(",")]
        return self._read_each(values_of(value))

    def _read_each(self, given: tuple[Any, ...]) -> Any:
        values = tuple(map(self.of.read, given))
        repeated = self.unique and len(set(values)) < len(values)
        if not values or repeated or (len(values) > 1 and any(word in values for word in self.alone)):
            words = "".join(f", and '{word}' alone" for word in self.alone)
            raise BadValue(",".join(map(self.of.text, values)), "", f"give each value once{words}")
        return values[0] if len(values) == 1 and not self.always else values


@dataclass(frozen=True)
class Repeated(Listed):
    """An option that may be given several times."""

    always: bool = True
    unique: bool = False

    @property
    def metavar(self) -> str:
        return self.of.metavar

    def read(self, value: Any) -> Any:
        given = () if value is None else values_of(value)
        return () if self.always and not given else self._read_each(given)


@dataclass(frozen=True)
class Option:
    """All that is known about one option."""

    value: Text
    heading: str
    help: str
    flag: str = ""
    """As on the command line; empty: the field's name."""
    shown: str = ""
    """The default in words, where the field's value does not say it."""
    command: str = ""
    """The only command that has it; empty: all that take its dataclass."""
    required: bool = False

    @property
    def text(self) -> str:
        return f"{self.help} Default: {self.shown}." if self.shown else self.help


def option(default: Any, value: Text, heading: str, help: str, **facts: Any) -> Any:
    """A dataclass field for an option; see Option for the other facts."""
    return field(default=default, metadata={"option": Option(value, heading, help, **facts)})


def options_of(kind: Any) -> Mapping[str, Option]:
    """The options that a dataclass declares, by the names of their fields."""
    return _options_of(kind)


@cache
def _options_of(kind: Any) -> Mapping[str, Option]:
    found = {}
    for each in fields(kind):
        if "option" in each.metadata:
            declared: Option = each.metadata["option"]
            flag = declared.flag or "--" + each.name.replace("_", "-")
            unnamed = each.default is None or each.default == () or isinstance(each.default, bool)
            shown = declared.shown or ("" if unnamed else declared.value.text(each.default))
            found[each.name] = replace(declared, flag=flag, shown=shown)
    return MappingProxyType(found)


class Checked:
    """A frozen dataclass of options. Each option is checked and converted to its final type; a default None is allowed."""

    kinds: ClassVar[list[type]] = []
    """All dataclasses of options that were imported."""

    def __init_subclass__(cls) -> None:
        Checked.kinds.append(cls)

    def __post_init__(self) -> None:
        for name, declared in options_of(type(self)).items():
            value = getattr(self, name)
            if value is not None or getattr(type(self), name) is not None:
                object.__setattr__(self, name, declared.value.settle(declared.flag, value))

    @property
    def given(self) -> bool:
        """Whether any option has another value than its default."""
        return self != type(self)()


def options_for(command: str, kinds: Iterable[type]) -> dict[str, Option]:
    """The options that a command takes, by name."""
    declared = (each for kind in kinds for each in options_of(kind).items())
    return {name: option for name, option in declared if option.command in ("", command)}


# What other libraries call an option, and the options here that mean the same or do the same job.
ELSEWHERE = {
    "sigma": "alpha l2 lambda reg-lambda c weight-decay",
    "sigma step": "lr learning-rate eta eta0 step-size",
    "l1": "l1-ratio reg-alpha",
    "epochs": "max-iter n-iter iterations",
    "target-gap": "tol tolerance",
    "seed": "random-state",
    "threads": "n-jobs workers",
    "hash-bits": "bits n-features",
    "no-intercept intercept": "fit-intercept",
    "cross": "interactions quadratic",
}


def meant(name: str, known: Iterable[str], elsewhere: Mapping[str, str] = ELSEWHERE) -> list[str]:
    """The options, or values of one, that somebody means who writes a name that does not exist."""
    names = {each.lstrip("-").replace("_", "-"): each for each in known}
    word = name.lstrip("-").replace("_", "-").lower()
    here = " ".join(those for those, others in elsewhere.items() if word in others.split())
    return [names[each] for each in here.split() if each in names] or get_close_matches(name, names.values(), n=1)


def build(command: str, given: Mapping[str, Any], *kinds: Any) -> list[Any]:
    """One dataclass of each kind, with the options that were given."""
    known = options_for(command, kinds)
    for name in given:
        if name not in known:
            near = " or ".join(meant(name, known))
            question = f"did you mean {near}? " if near else ""
            raise OptionError(f"unknown option '{name}'", f"{question}The options are {', '.join(known)}")
    taken = [options_for(command, [kind]) for kind in kinds]
    return [
        kind(**{name: given[name] for name in names if name in given}) for kind, names in zip(kinds, taken, strict=True)
    ]
