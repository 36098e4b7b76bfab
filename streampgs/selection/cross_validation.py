"""The search for σ on a small table: cross-validation on all of its rows, which are in one window.

A race judges candidates while they train, on rows they have not met yet. A small table has too few such rows, and too few
steps, to tell candidates apart. Here every candidate is trained on the other folds for half of the epochs of a run, and
judged on each fold by the loss that the user asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streampgs.errors import Diverged
from streampgs.kernels.randomness import key_of, random_words
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.lines import OnlyRows
from streampgs.options import default_epochs
from streampgs.reading.window import Window
from streampgs.selection.judge import WORST, Judge, Judgement

MOST_CROSS_VALIDATED = 50_000
"""Rows."""
# Entries times lanes times epochs: about a second of work, with all folds. Where the fewest epochs are more, it is left to
# a race.
_USUAL_WORK, _MOST_WORK = 1 << 28, 1 << 31
_FEWEST_EPOCHS, _PASSES = 3, 30
_FOLDS = 5
# Trained together.
_MOST_LANES, _MOST_BYTES = 64, 48 << 20
_CALL_ROWS = 1 << 16


class _Visits(OnlyRows):
    """Rows of a window in an order of their own."""

    def __init__(self, window: Window, rows: NDArray[np.int64]) -> None:
        self._window, self._rows = window, rows
        self.indices, self.values = window.indices, window.values
        self.starts, self.stops, self.labels = window.starts[rows], window.stops[rows], window.labels[rows]
        self.weights = window.weights[rows] if window.weights.size else window.weights
        self.offsets = window.offsets[rows] if window.offsets.size else window.offsets

    @property
    def numbers(self) -> NDArray[np.int64]:
        return np.asarray(self._window.numbers[self._rows])


@dataclass(frozen=True)
class CrossValidation:
    """Candidates are lists of lanes, one for each target; all see the same folds in the same order."""

    window: Window
    validation: Window | None
    """Rows to judge on in place of folds."""
    targets: Sequence[Target]
    features: int
    epochs: int
    seed: int
    lane_bytes: int = 48
    """The memory of a feature in the state of a lane; about the same for most solvers."""

    @property
    def judged(self) -> int:
        """How many rows each candidate is judged on."""
        return (self.validation or self.window).rows

    @property
    def at_once(self) -> int:
        """How many candidates are trained together."""
        most = min(_MOST_LANES, _MOST_BYTES // ((self.features + 1) * self.lane_bytes))
        return max(1, most // len(self.targets))

    def judgements(self, candidates: Sequence[Sequence[LaneSpec]]) -> list[Judgement]:
        """Of each candidate: the means over all judged rows."""
        found: list[Judgement] = []
        for first in range(0, len(candidates), self.at_once):
            found += self._judged(candidates[first : first + self.at_once])
        return found

    def _judged(self, candidates: Sequence[Sequence[LaneSpec]]) -> list[Judgement]:
        rows = np.arange(self.window.rows)
        if self.validation is not None:
            held_out = np.arange(self.validation.rows)
            return self._trained_and_judged(candidates, rows, 0, self.validation, held_out)
        folds = min(_FOLDS, self.window.rows)
        each, sizes = [], []
        for fold in range(folds):
            held_out = rows[rows % folds == fold]
            each.append(self._trained_and_judged(candidates, rows[rows % folds != fold], fold, self.window, held_out))
            sizes.append(self._weight(held_out))
        return [_mean([of_fold[place] for of_fold in each], sizes) for place in range(len(candidates))]

    def _weight(self, rows: NDArray[np.int64]) -> float:
        return float(self.window.weights[rows].sum()) if self.window.weights.size else float(len(rows))

    def _trained_and_judged(
        self, candidates: Sequence[Sequence[LaneSpec]], rows: NDArray[np.int64], fold: int, judged: Window,
        held_out: NDArray[np.int64],
    ) -> list[Judgement]:  # fmt: skip
        lanes = Lanes([spec for candidate in candidates for spec in candidate], self.features)
        try:
            self._train(lanes, rows, fold)
        except Diverged:
            if len(candidates) == 1:
                return [Judgement(WORST, WORST, None)]
            return [
                judgement
                for candidate in candidates
                for judgement in self._trained_and_judged([candidate], rows, fold, judged, held_out)
            ]
        judge = Judge(lanes, self.targets, judged, held_out)
        return [judge.judgement(place) for place in range(len(candidates))]

    def _train(self, lanes: Lanes, rows: NDArray[np.int64], fold: int) -> None:
        epochs_a_call = max(1, _CALL_ROWS // max(1, len(rows)))
        for first in range(0, self.epochs, epochs_a_call):
            epochs = range(first, min(self.epochs, first + epochs_a_call))
            counters = np.arange(len(epochs) * len(rows), dtype=np.uint64)
            words = random_words(key_of(self.seed, "fold", fold, first), counters).reshape(len(epochs), len(rows))
            visits = _Visits(self.window, rows[words.argsort(axis=1, kind="stable").ravel()])
            for group in lanes.groups:
                if group.learner.needs.passes:
                    for place, epoch in enumerate(epochs):
                        group.learner.step(group.state, visits, place * len(rows), (place + 1) * len(rows))
                        group.learner.reach_epoch(group.state, epoch + 1)
                else:
                    group.learner.step(group.state, visits, 0, len(visits.starts))


def epochs_for(
    window: Window, lanes: int, by_passes: bool = False, touched: float = 0.0, entry_cost: float = 1.0
) -> int | None:
    """How many epochs each fold is trained for; None where cross-validation would take too long, or there is no table to
    divide. Half of the epochs of a run are enough to tell candidates apart. `by_passes`: weights change once per epoch,
    so the number of epochs does not depend on that of rows. `touched`: weights that each row touches besides those of its
    own features. `entry_cost`: of one of these, as a multiple of the usual cost."""
    work, fewest = max(1, int(window.entries + touched * window.rows) * lanes), _PASSES if by_passes else _FEWEST_EPOCHS
    if not (window.is_whole_table and 2 <= window.rows <= MOST_CROSS_VALIDATED and work * fewest <= _MOST_WORK):
        return None
    work = int(entry_cost * work)
    return fewest if by_passes else max(fewest, min(default_epochs(window.rows) // 2, _USUAL_WORK // work))


def _mean(judgements: Sequence[Judgement], weights: Sequence[float]) -> Judgement:
    weights = weights if sum(weights) > 0.0 else [1.0] * len(weights)
    # Products with the loss of a model that has diverged must not overflow. This is exact.
    _, exponent = math.frexp(max(weights))
    weights = [math.ldexp(weight, -exponent) for weight in weights]
    loss, merit = (
        float(np.average([getattr(one, name) for one in judgements], weights=weights)) for name in ("loss", "merit")
    )
    known = [one.accuracy for one in judgements if one.accuracy is not None]
    return Judgement(loss, merit, float(np.average(known, weights=weights)) if len(known) == len(weights) else None)
