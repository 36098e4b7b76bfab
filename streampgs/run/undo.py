"""Return to an earlier checkpoint of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streampgs.base.errors import OptionError
from streampgs.options.commands import MOST_KEPT
from streampgs.order.arrivals import without_waiting
from streampgs.run.checkpoint import Kept, remove_after, rows_in_name
from streampgs.run.folder import RunFolder
from streampgs.run.history import UNDONE
from streampgs.run.record import RunRecord
from streampgs.run.saved import SavedRun, returned_in, saved_run
from streampgs.table.catalog import Shard
from streampgs.table.changes import content_of

BEFORE_LAST_UPDATE = "before-last-update"


@dataclass(frozen=True)
class Restorable:
    """A checkpoint that a run can return to."""

    rows: int
    path: Path
    before_update: bool

    def __str__(self) -> str:
        return f"{self.rows}{' (before an update)' if self.before_update else ''}"


def restorable(folder: RunFolder, record: RunRecord) -> list[Restorable]:
    """Oldest first, with the newest one, from which the run continues anyway. `record`: as of the newest checkpoint."""
    before = {update.rows for update in record.begun}
    return [Restorable(rows_in_name(path), path, rows_in_name(path) in before) for path in folder.checkpoints()]


@dataclass(frozen=True)
class Undone:
    rows: int
    steps: int
    """At which the run is now."""
    undone_rows: int
    rejected: tuple[str, ...]
    """Shards that joined later and are not to join again."""


def undo(folder: RunFolder, wanted: str, rejects: bool = False, **facts: Any) -> Undone | None:
    """Let the run continue from the wanted checkpoint, by removing all later ones. None if the run is there already. Shards
    that were left out later stay so. `rejects`: not those, but the shards that joined later are left out from now on.
    `facts`: for the history."""
    newest = saved_run(folder.path, None, "worker")
    record, newest_rows = newest.record, rows_in_name(newest.checkpoint.path)
    found = _wanted(folder, record, wanted)
    if found.rows >= newest_rows:
        return None
    before = saved_run(folder.path, found.path)
    then, joined = before.record, _joined_between(before, newest) if rejects else []
    rejected = [*record.rejected, *(content_of(shard.path, shard) for shard in joined)]
    left_out = then.left_out if rejects else tuple(dict.fromkeys([*then.left_out, *record.left_out]))
    changed = replace(then, left_out=left_out, rejected=tuple(dict.fromkeys([*then.rejected, *rejected])))
    if changed != then:
        folder.write_checkpoint({**before.checkpoint.sections, "run": changed.changes()}, found.rows, Kept(MOST_KEPT))
    remove_after(folder.path, found.rows)
    names = tuple(str(shard.path) for shard in joined)
    undone = Undone(found.rows, returned_in(before.checkpoint)[0].steps, newest_rows - found.rows, names)
    shards = before.cursor.arrivals[-1].shards
    folder.append_event(UNDONE, undone.rows, undone.steps, undone_rows=undone.undone_rows, shards=shards, **facts)
    return undone


def _joined_between(first: SavedRun, last: SavedRun) -> list[Shard]:
    """The shards of which rows were used at one checkpoint, and not at an earlier one."""
    known = [without_waiting(saved.cursor).arrivals[-1].shards for saved in (first, last)]
    return [shard for shard in first.folder.catalog().shards[slice(*known)] if shard.rows]


def _wanted(folder: RunFolder, record: RunRecord, wanted: str) -> Restorable:
    choices = restorable(folder, record)
    rows = _rows(record, wanted)
    found = [one for one in choices if one.rows == rows]
    if not found:
        listed = ", ".join(map(str, choices))
        raise OptionError(
            f"`--back-to {wanted}`: run '{folder.path}' has no such checkpoint",
            f"give the rows of one of its checkpoints: {listed}; `--keep N` keeps more of them from now on",
        )
    return found[0]


def _rows(record: RunRecord, wanted: str) -> int | None:
    """After how many rows the wanted checkpoint was written."""
    if wanted == BEFORE_LAST_UPDATE:
        return record.begun[-1].rows if record.begun else None
    number = re.fullmatch(r"(?:checkpoint-)?([0-9]{1,18})(?:\.arrows)?", Path(wanted).name.replace(",", ""))
    return int(number[1]) if number else None
