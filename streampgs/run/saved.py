"""A run as its newest undamaged checkpoint holds it, for everybody who only reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from streampgs.base.checks import Count, decode, encode, require, understanding
from streampgs.base.errors import RunError
from streampgs.base.stage import Bundle
from streampgs.data.shards import catalog_at
from streampgs.engine.worker import cursor_in
from streampgs.learn.lanes import Lanes
from streampgs.losses import Vector
from streampgs.order.arrivals import owed_until
from streampgs.order.cursor import Cursor
from streampgs.run.checkpoint import Checkpoint, read_checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.lineages import Lineages
from streampgs.run.record import RunRecord
from streampgs.run.words import resume_command
from streampgs.selection.race import Race
from streampgs.selection.returned import Returned
from streampgs.table.catalog import Catalog

RETURNED = "returned"
"""The section of a checkpoint with the model that the run returns. Training does not read it."""


@dataclass(frozen=True)
class ReturnedFacts:
    spec: dict[str, Any]
    """The specification of the best candidate, for its first target."""
    targets: tuple[str, ...]
    """Their names."""
    steps: Count
    has_converged: bool
    relative_gap: float | None


def returned_section(lineages: Lineages) -> Bundle:
    race, lanes, leading = lineages.race, lineages.race.lanes, lineages.race.leading_lanes()
    gap, names = lanes.relative_gap(), tuple(target.name for target in race.targets)
    gap = gap if gap is not None and math.isfinite(gap) else None
    facts = ReturnedFacts(encode(lanes.specs[leading.start]), names, lanes.steps, lanes.have_converged(), gap)
    length, vector = lanes.features + 1, partial(_constant_and_weights, lineages.returned)
    return Bundle(encode(facts), vectors={str(lane): (length, partial(vector, lane)) for lane in leading})


def _constant_and_weights(returned: Returned, lane: int) -> Vector:
    weights, constant = returned.predictor(lane)
    return np.concatenate([[constant], weights])


def returned_in(checkpoint: Checkpoint) -> tuple[ReturnedFacts, list[Vector]]:
    """The model of a checkpoint: for each target the constant and the weights of the features, in the unit of the labels."""
    with understanding(checkpoint.path):
        section = checkpoint.sections[RETURNED]
        facts, vectors = decode(ReturnedFacts, section.values), [*section.arrays.values()]
        require(0 < len(facts.targets) == len(vectors), f"{len(vectors)} vectors of {len(facts.targets)} targets")
        for vector in vectors:
            right = vector.dtype == np.float64 and vector.ndim == 1 and len(vector) == len(vectors[0]) > 0
            require(right, f"weights of type {vector.dtype} and shape {vector.shape}")
            require(bool(np.isfinite(vector).all()), "weights that are not finite")
        return facts, vectors


@dataclass(frozen=True)
class SavedRun:
    folder: RunFolder
    checkpoint: Checkpoint
    record: RunRecord
    """As of the checkpoint."""
    cursor: Cursor

    def catalog(self) -> Catalog:
        """The shards that were known."""
        catalog = self.folder.catalog()
        with understanding(self.checkpoint.path):
            return catalog_at(self.checkpoint.sections["worker"], self.cursor, catalog)

    @cached_property
    def lineages(self) -> Lineages:
        """Everything that was learned, with the race: for showing all of it."""
        lineages = Lineages(Race(Lanes()), self.record.options.seed, 1)
        lineages.restore_all(self.checkpoint)
        return lineages

    @property
    def race(self) -> Race:
        return self.lineages.race

    def paused(self, facts: ReturnedFacts) -> str | None:
        """Where training was paused, if an epoch is the only limit and is not reached."""
        limits, epoch, gap = self.record.limits, self.cursor.epoch, facts.relative_gap
        others = (limits.rows, limits.seconds, limits.target_accuracy, limits.target_gap)
        # The gap at which a solver of columns stops if no other limit is given.
        near = limits.relative_gap is not None and gap is not None and gap <= limits.relative_gap
        if limits.epochs is None or any(others) or facts.has_converged or (near and self.cursor.begins_epoch):
            return None
        last = max(limits.epochs, owed_until(self.cursor))
        if epoch >= last:
            return None
        of_epochs = f" of {last}" if limits.relative_gap is None else ""
        return f"training was paused in epoch {epoch + 1}{of_epochs}; continue with: {resume_command(self.folder.path)}"


def saved_run(run: Path, path: Path | None = None, *wanted: str) -> SavedRun:
    """`path`: of a checkpoint of the run; None: the newest undamaged one. `wanted`: the sections to take from it besides the
    record and the place in the data; none named: all."""
    folder = RunFolder(run)
    record = folder.run_record()
    sections = ("run", "worker", *wanted) if wanted else ()
    checkpoint = folder.newest_checkpoint(*sections) if path is None else read_checkpoint(path, *sections)
    if checkpoint is None:
        resume = resume_command(run, record.spool is not None)
        ignored = f"; the name of '{folder.lookalikes()[0]}' is not that of a checkpoint" if folder.lookalikes() else ""
        raise RunError(f"run '{run}' has no model yet{ignored}", f"train it first: {resume}")
    with understanding(checkpoint.path):
        cursor = cursor_in(checkpoint.sections["worker"])
        return SavedRun(folder, checkpoint, record.as_of(checkpoint.sections["run"]), cursor)
