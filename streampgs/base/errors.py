"""Errors that a user can fix. Each names the finding, its place and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from streampgs.base.printable import printable_lines, without_secrets

_NAMES_SHOWN, _LONGEST_VALUE = 20, 80
MARKED = re.compile(r"`((?:--|streampgs |producer \| )[^`]*)`|(?<![\w-])--[a-z][a-z0-9-]*")
"""What messages mark: an option with its value (`--l1 0.5`), and a command with its arguments (`streampgs resume RUN`). An
option alone needs no mark. Python has other words for them, see options.messages."""


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """For messages: 1 shard, 2,000 shards."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def sized(size: float) -> str:
    """For messages: 1.2 GB, 35.0 MB, 0.4 kB."""
    unit, factor = ("GB", 1e9) if size >= 1e9 else ("MB", 1e6) if size >= 1e6 else ("kB", 1e3)
    return f"{size / factor:,.1f} {unit}"


def did_you_mean(name: str, columns: Iterable[str]) -> str:
    """A remedy for the name of a column that does not exist."""
    names = [*columns]
    near = get_close_matches(name.lower(), [each.lower() for each in names], n=1)
    found = [f"did you mean '{each}'? " for each in names if [each.lower()] == near][:1]
    listed = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    return "".join(found) + f"The columns are {listed}"


def command_words(text: str) -> str:
    """The message as the command line prints it: without marks."""
    return MARKED.sub(lambda found: found[1] or found[0], text)


class StreampgsError(Exception):
    """An error in data, options or files; `str()` is the whole message. `found` and `remedy` are marked, see MARKED."""

    kind = "system"
    """For programs, as in the JSON of a command that failed."""
    exit_code = 1

    def __init__(self, found: str | Sequence[str], remedy: str | Sequence[str] = "") -> None:
        """Several lines are given as a list: a line break within a line belongs to the data, and is escaped."""
        super().__init__()
        self.say(found, remedy)

    def say(self, found: str | Sequence[str], remedy: str | Sequence[str]) -> None:
        """Give the error other words."""
        self.found_lines, self.remedy_lines = _lines(found), _lines(remedy)
        message = printable_lines(map(command_words, self.found_lines))
        if self.remedy:
            message += f"\n  → {printable_lines(map(command_words, self.remedy_lines), '    ')}"
        self.args = (message,)

    @property
    def found(self) -> str:
        """For programs. The message for people is `str(error)`."""
        return "\n  ".join(self.found_lines)

    @property
    def remedy(self) -> str:
        return "\n    ".join(self.remedy_lines)


def _lines(text: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(map(without_secrets, (text,) if isinstance(text, str) else text))


class OptionError(StreampgsError):
    """An invalid option or combination of options."""

    kind = "option"
    exit_code = 2


class BadValue(OptionError):
    """A value that an option cannot take."""

    def __init__(self, value: Any, complaint: str, remedy: str, flag: str = "") -> None:
        """`flag`: empty while the option is not known."""
        self.flag, self.value, self.complaint = flag, value, complaint
        written = f"{value:.10g}" if isinstance(value, float) else str(value) or "''"
        shown = written if isinstance(value, str | int | float) or len(written) <= _LONGEST_VALUE else ""
        given = f"`{flag} {shown}`" if flag and shown else flag or f"'{shown}'"
        super().__init__(f"{given} {complaint}".rstrip(), remedy)


class DataError(StreampgsError):
    """A shard, block or row that cannot be used."""

    kind = "data"


class BadRow(DataError):
    """A row that cannot be used."""


class Unfinished(DataError):
    """A shard without an end: it is still being written, or its writer was interrupted."""


class DataChanged(DataError):
    """A shard that differs from its record in the catalog."""


class RunError(StreampgsError):
    """A run folder that cannot be used: locked, damaged, absent, or of another format."""

    kind = "run"


class Unreadable(StreampgsError):
    """A file that the system could not open or read, see `faults`. Its content may be sound."""


class Diverged(StreampgsError):
    """The model is no longer finite; this state was not saved."""

    kind = "diverged"


class MissingPackage(StreampgsError, ImportError):
    """An optional package that is not installed."""


class InvalidInput(StreampgsError, ValueError):
    """An error from an estimator, of the type that scikit-learn expects."""


class StreamWarning(UserWarning):
    """What an estimator found in its rows and a user should know: a column that contains the label, for example."""
