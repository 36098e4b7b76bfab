"""Names that are passed over, on disk as in object stores."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from itertools import takewhile


def is_ignored(name: str) -> bool:
    """Such names are markers and files in the making, by the custom of Spark and Hive."""
    return name.startswith(("_", ".")) and name not in (".", "..")


def is_hidden(match: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a name is ignored where the pattern left it open, be it of the file or of a folder above it. Both are
    told by their parts."""
    named = takewhile(lambda part: not glob.has_magic(part), pattern)
    return any(is_ignored(part) for part in match[len(list(named)) :])
