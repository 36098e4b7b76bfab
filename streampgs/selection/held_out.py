"""The choice between candidates of solvers of columns. Rows are visited once only, so there are no later rows to judge by:
candidates are judged on validation rows, or by their learner on rows that it holds out."""

from __future__ import annotations

from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lanes import holds_out, relative_gap, release_rows
from streampgs.options import RELATIVE_GAP
from streampgs.reading.window import Window
from streampgs.selection.race import Race


def best_at_optimum(race: Race, window: Window, row: int, rows_done: int, epoch_rows: int) -> LaneSpec | None:
    """Where an epoch of columns begins and all candidates are near their optimum: the best one on the rows that are held
    out. From then on all candidates train on all rows. Validation rows are judged before each sweep."""
    if row > 0 or window.visit is None or len(race.progress.left) == 1:
        return None
    if race.validation is not None:
        race.judge(window, row, rows_done, epoch_rows)
    gap = relative_gap(race.lanes)
    if not window.visit.begins_epoch or not holds_out(race.lanes) or gap is None or gap > RELATIVE_GAP:
        return None
    release_rows(race.lanes)
    return race.leading()
