"""Read records of a run: typed, with bounds that keep compiled loops inside their arrays, and errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from streampgs.base.errors import RunError, StreampgsError, Unreadable

_LARGEST = 1 << 62
_PART_BYTES = 1 << 24

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


@contextmanager
def understanding(path: Path | None) -> Iterator[None]:
    """Turn errors about the contents of an intact file into an error that names the file."""
    try:
        yield
    except (RunError, Unreadable):
        raise
    except MemoryError as error:
        raise Unreadable(
            f"'{path}' cannot be read: out of memory",
            "free some memory, then try again; do not trust the file if it came from someone else",
        ) from error
    except (
        LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RecursionError, StreampgsError,
    ) as error:  # fmt: skip
        reason = error.found if isinstance(error, StreampgsError) else repr(error)
        raise RunError(
            f"'{path}' is intact, but its contents are invalid: {reason[:300]}",
            "restore it from a copy or start a new run; do not trust it if it came from someone else",
        ) from error


def refuse_other_format(path: Path, found: Any, known: int) -> None:
    """Refuse a file of another format than `known`, the one that is read here. `found`: the number that the file carries."""
    if found == known:
        return
    if type(found) is int and known < found < _LARGEST:
        raise RunError(
            f"'{path}' was written by a newer streampgs: it is of format {found}, this version reads format {known}",
            "upgrade streampgs",
        )
    raise RunError(
        f"'{path}' is of format {found!r:.20}; this version reads format {known}",
        "start again in a new folder, or use the version of streampgs that wrote it",
    )


def most_brackets(text: bytes) -> int:
    """At least the depth of the JSON: brackets in strings count, too."""
    depth = highest = lowest = 0
    for at in range(0, len(text), _PART_BYTES):
        part = np.frombuffer(text, np.uint8, min(_PART_BYTES, len(text) - at), at)
        letters = part | 32  # brackets and braces differ in this bit
        steps = (letters == ord("{")).astype(np.int8) - (letters == ord("}"))
        depths = depth + np.cumsum(steps[steps != 0], dtype=np.int64)
        highest, lowest = max(highest, depths.max(initial=depth)), min(lowest, depths.min(initial=depth))
        depth = depths[-1] if len(depths) else depth
    return int(highest - lowest)


def require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def decode(kind: type[T], record: Any) -> T:
    """A dataclass from a JSON-like record; ValueError names the field with a wrong type or bound.

    Bounds are part of the field's type: `Annotated[int, msgspec.Meta(ge=0)]`. Keys without a field are ignored.
    """
    try:
        return msgspec.convert(record, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None
    except StreampgsError as error:  # options check themselves
        raise ValueError(f"{kind.__name__}: {error.found}") from None


def encode(value: Any) -> Any:
    """The JSON-like record of a dataclass; `decode` reads it back."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=lambda number: number.item())  # of numpy
