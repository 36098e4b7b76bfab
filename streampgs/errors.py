"""What goes wrong for reasons a user can mend: each error says what was found, where, and what to do."""

from __future__ import annotations


class StreampgsError(Exception):
    """A fault in data, options or files. `str()` of it is the whole message for people."""

    def __init__(self, found: str, remedy: str = "") -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}\n  → {remedy}" if remedy else found)


class OptionError(StreampgsError):
    """An option or a combination of options that cannot be honoured."""


class DataError(StreampgsError):
    """A shard, block or row that cannot be used."""


class Unfinished(DataError):
    """A shard without its end: its writer is still at it, or was interrupted."""


class DataChanged(DataError):
    """A shard that is no longer what the catalog recorded."""


class RunError(StreampgsError):
    """A run's folder that cannot be used: locked, damaged, absent, of another format."""


class Diverged(StreampgsError):
    """The numbers left the finite range; nothing of it was saved."""
