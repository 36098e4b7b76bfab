"""Return to an earlier checkpoint of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streampgs.base.checks import understanding
from streampgs.base.errors import OptionError
from streampgs.engine.worker import cursor_in
from streampgs.options.commands import MOST_KEPT
from streampgs.order.arrivals import without_waiting
from streampgs.run.checkpoint import Checkpoint, Kept, read_checkpoint, remove_after, rows_in_name
from streampgs.run.folder import RunFolder
from streampgs.run.history import UNDONE
from streampgs.run.record import RunRecord
from streampgs.run.saved import returned_in
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
    newest = folder.newest_checkpoint("run", "worker")
    if newest is None:
        raise OptionError(f"`--back-to {wanted}`: run '{folder.path}' has no checkpoint yet", "leave it out")
    with understanding(newest.path):
        record = folder.run_record().as_of(newest.sections["run"])
    found = _wanted(folder, record, wanted)
    if found.rows >= rows_in_name(newest.path):
        return None
    to_restore = read_checkpoint(found.path)
    joined = _joined_between(folder, to_restore, newest) if rejects else []
    with understanding(to_restore.path):
        then = folder.run_record().as_of(to_restore.sections["run"])
    rejected = [*record.rejected, *(content_of(shard.path, shard) for shard in joined)]
    left_out = then.left_out if rejects else tuple(dict.fromkeys([*then.left_out, *record.left_out]))
    changed = replace(then, left_out=left_out, rejected=tuple(dict.fromkeys([*then.rejected, *rejected])))
    if changed != then:
        folder.write_checkpoint({**to_restore.sections, "run": changed.changes()}, found.rows, Kept(MOST_KEPT))
    remove_after(folder.path, found.rows)
    names = tuple(str(shard.path) for shard in joined)
    undone = Undone(found.rows, returned_in(to_restore).facts.steps, rows_in_name(newest.path) - found.rows, names)
    shards = _shards(to_restore)
    folder.append_event(UNDONE, undone.rows, undone.steps, undone_rows=undone.undone_rows, **shards, **facts)
    return undone


def _joined_between(folder: RunFolder, first: Checkpoint, last: Checkpoint) -> list[Shard]:
    """The shards of which rows were used at one checkpoint, and not at an earlier one."""
    known = []
    for checkpoint in first, last:
        with understanding(checkpoint.path):
            known.append(without_waiting(cursor_in(checkpoint.sections["worker"])).arrivals[-1].shards)
    return [shard for shard in folder.catalog().shards[slice(*known)] if shard.rows]


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


def _shards(checkpoint: Checkpoint) -> dict[str, int]:
    with understanding(checkpoint.path):
        return {"shards": cursor_in(checkpoint.sections["worker"]).arrivals[-1].shards}
