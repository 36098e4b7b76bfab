"""The choice between candidates that cannot be judged on later rows, because every epoch has the same rows. They are judged
on validation rows, or on rows that their learner holds out until all of them are near their optimum."""

from __future__ import annotations

import numpy as np

from streampgs.kernels.rows import Rows
from streampgs.learn.held_rows import BYTES_OF_ROW, held_rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.options.commands import RELATIVE_GAP
from streampgs.reading.window import Window
from streampgs.selection.race import Race

_MOST_EPOCHS = 50
"""For solvers of whole passes: half of the epochs that they have by default."""


def judge_after_sweep(race: Race, rows_done: int) -> None:
    """On validation rows. Only the last judgement counts: weights that are far from their optimum do not tell which optimum
    is the best."""
    if race.validation is not None and race.judges_on:
        race.progress.marks = [race.mark(race.validation, np.arange(len(race.validation)), rows_done)]


def best_when_converged(race: Race, window: Window, row: int, rows_done: int, epoch_rows: int) -> LaneSpec | None:
    """At the first row of a window, or of an epoch in it, judge the candidates on its rows that are held out. Where an epoch
    begins and all candidates are near their optimum, or have had the time: the best one. From then on all train on all
    rows."""
    if row % window.different_rows or not race.lanes.hold_out():
        return None
    begins_epoch = row > 0 or window.span is None or window.span.start.begins_epoch
    had_time = rows_done - race.progress.began >= _MOST_EPOCHS * epoch_rows
    if begins_epoch and race.progress.marks and (had_time or _are_near_optimum(race)):
        race.lanes.release_rows()
        return race.leading()
    rows = row + np.flatnonzero(held_rows(race.lanes.specs[0].seed, window)[row : window.end_of_epoch(row)])
    if len(rows):
        mark, marks = race.mark(window, rows, rows_done), race.progress.marks
        race.progress.marks = [mark if begins_epoch or not marks else marks[-1].joined(mark)]  # one for each epoch
    return None


def _are_near_optimum(race: Race) -> bool:
    gap = race.lanes.relative_gap()
    return race.lanes.have_converged() or (gap is not None and gap <= RELATIVE_GAP)


def bytes_of_held_rows(race: Race, window: Rows) -> int:
    """Memory for the moment in which these rows are found."""
    return BYTES_OF_ROW * len(window) if race.lanes.hold_out() else 0
