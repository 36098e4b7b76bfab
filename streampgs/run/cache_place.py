"""Where the cache of a run may be: in the run's folder, or in a folder that is marked as a cache of streampgs.

A run's folder may be untrusted. Its record could name any folder as its cache, to be written to and deleted from. So a folder
outside of the run is used only if somebody on this machine has asked for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from streampgs.base.errors import RunError
from streampgs.base.faults import is_fault, naming_faults
from streampgs.base.files import read_whole

OWN = "cache"
_TAG = "CACHEDIR.TAG"
_TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# A cache of streampgs, which backups may leave out. It may be deleted at any time.
# Runs from elsewhere may keep decoded blocks and copies of shards in here, because this file says so.
"""


def mark(folder: Path) -> None:
    """Allow runs to keep their cache here."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(folder / _TAG, "xb") as file:
            file.write(_TAG_TEXT)
    except OSError as error:
        raise RunError(
            f"the cache in '{folder}' cannot be written: {error.strerror or error}",
            "name another place with `--cache DIR`",
        ) from error


def place(run: Path, recorded: str) -> tuple[Path, str | None]:
    """The folder of the cache, given the one in the run's record; and a note for the user."""
    with naming_faults(f"the place of the cache of run '{run}'"):
        return _place(run, recorded)


def _place(run: Path, recorded: str) -> tuple[Path, str | None]:
    own = run / OWN
    for folder in (own, own / "shards", own / "columns"):
        if folder.is_symlink() and not is_marked(folder):
            raise RunError(
                f"'{folder}' is a link to '{os.readlink(folder)}', which is not marked as a cache",
                "remove the link: then the cache is kept in the run's folder",
            )
    asked = run / recorded
    if asked == own or asked.resolve() == own.resolve():
        return own.absolute(), None
    if is_marked(asked):
        return asked.absolute(), None
    return (
        own.absolute(),
        f"'{asked}', where the run had its cache, is not marked as one: now it is in the run's folder",
    )


def is_marked(folder: Path) -> bool:
    """Whether several runs may use it."""
    try:
        return read_whole(folder / _TAG, len(_TAG_TEXT)) == _TAG_TEXT
    except OSError as error:
        if is_fault(error):
            raise
    except ValueError:
        pass
    return False
