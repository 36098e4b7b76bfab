"""The search for σ before the first step, on rows of the first window.

A small table is one window: cross-validation trains every candidate on the other folds for half of the epochs of a run, and
judges it on each fold. Of a larger table, candidates are trained on some rows and judged on others. The best σ is
inversely proportional to the number of rows, so the best candidate of a sample is the best one of the table, too.

The search takes about as much work as the training that follows, or less. Of many classes the most frequent ones stand for all,
and candidates that are worse after a part of the epochs are dropped. What they are dropped by is not what the rest is compared
by: few epochs prefer a σ that is a little too large, so many candidates are kept at first.

Judging candidates in their first epoch of training would mislead: they have not met any row before. Then a smaller σ is
better than after some epochs, in which the models have seen each row several times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streampgs.base.errors import Diverged
from streampgs.kernels.placing_loop import mark_features
from streampgs.kernels.randomness import key_of, random_words
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import Passes, step
from streampgs.learn.lines import JudgedOn
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions, default_epochs
from streampgs.reading.window import Window
from streampgs.selection.judge import WORST, Judge, Judgement

MOST_CROSS_VALIDATED = 50_000
"""Rows."""
# Entries times lanes times epochs. The least takes about a tenth of a second; a sample takes at most about a second.
_LEAST_WORK, _MOST_OF_SAMPLE = 1 << 27, 1 << 28
_FEWEST_EPOCHS = 3
# Passes of a solver whose weights change once per epoch: of a candidate, and usually of a run.
_PASSES, _USUAL_PASSES = 30, 100
_FOLDS = 5
MOST_CLASSES, _FEWEST_CLASSES = 4, 2
_TOGETHER = 4
# Candidates are dropped by at least so many judgements, where there are so many epochs and candidates.
_JUDGED_EARLY, _EPOCHS_OF_RUNGS, _CANDIDATES_OF_RUNGS = 1_000, 8, 8
# Of a sample: with fewer rows to train on, noise decides.
_FEWEST_SAMPLED, _MOST_SAMPLED, _MOST_JUDGED = 1 << 9, 1 << 15, 1 << 15
# Twice those that a large table is trained for by default: the choice is also right for many epochs.
_EPOCHS_OF_SAMPLE = 6
# Trained together.
_MOST_LANES, _MOST_BYTES = 64, 48 << 20
_CALL_ROWS = 1 << 16


Told = Callable[[float], None]
"""Called with the share of a search that was done since the last call."""


def untold(share: float) -> None:
    """For callers that show no progress."""


@dataclass(frozen=True)
class CrossValidation:
    """Candidates are lists of lanes, one for each target; all see the same rows in the same order."""

    window: Window
    validation: Rows | None
    """Rows to judge on in place of those of the window."""
    targets: Sequence[Target]
    features: int
    seed: int
    epochs: int = 0
    folds: int = _FOLDS
    """On how many of five folds candidates are judged."""
    early_folds: int = 0
    """On how many of them before bad candidates are dropped; 0: none is dropped early."""
    sampled: int | None = None
    """How many rows candidates are trained on, if the window is not the table; the next ones judge them."""
    has_all_classes: bool = True
    work: float = 1.0
    """Of all candidates, in epochs."""
    told: Told = untold
    lane_bytes: int = 48
    """The memory of a feature in the state of a lane."""

    @property
    def judged(self) -> int:
        """How many rows each candidate is judged on."""
        if self.validation is None and self.sampled is None:
            return sum(len(range(fold, len(self.window), self._divisor)) for fold in range(self.folds))
        return len(self._judging)

    @property
    def _judging(self) -> NDArray[np.int64]:
        """The validation rows, or the rows of the window after the sample."""
        first, last = (
            (self.sampled or 0, self.window.different_rows) if self.validation is None else (0, len(self.validation))
        )
        return np.arange(first, last if self.sampled is None else min(last, first + _MOST_JUDGED))

    @property
    def last_row(self) -> int | None:
        """The row of the window after those that are used; None: all are."""
        if self.sampled is None:
            return None
        return self.sampled if self.validation is not None else int(self._judging[-1:].max(initial=self.sampled)) + 1

    @property
    def _divisor(self) -> int:
        return min(_FOLDS, len(self.window))

    @property
    def at_once(self) -> int:
        """How many candidates are trained together."""
        most = min(_MOST_LANES, _MOST_BYTES // ((self.features + 1) * self.lane_bytes))
        return max(1, most // len(self.targets))

    def judgements(self, candidates: Sequence[Sequence[LaneSpec]]) -> list[Judgement]:
        """Of each candidate: the means over all judged rows."""
        losses, found = {spec.loss for candidate in candidates for spec in candidate}, []
        for first in range(0, len(candidates), self.at_once):
            found += self._judged(candidates[first : first + self.at_once], losses)
        return found

    def _judged(self, candidates: Sequence[Sequence[LaneSpec]], losses: Set[str]) -> list[Judgement]:
        rows = np.arange(self.sampled or len(self.window))
        if self.validation is not None or self.sampled is not None:
            judged = self.window if self.validation is None else self.validation
            return self._trained_and_judged(candidates, losses, rows, 0, judged, self._judging)
        each, sizes = [], []
        for fold in range(min(self.folds, self._divisor)):
            held_out = rows[rows % self._divisor == fold]
            trained = rows[rows % self._divisor != fold]
            each.append(self._trained_and_judged(candidates, losses, trained, fold, self.window, held_out))
            sizes.append(self._weight(held_out))
        return [_mean([of_fold[place] for of_fold in each], sizes) for place in range(len(candidates))]

    def _weight(self, rows: NDArray[np.int64]) -> float:
        return float(self.window.weights[rows].sum()) if self.window.weights.size else float(len(rows))

    def _trained_and_judged(
        self, candidates: Sequence[Sequence[LaneSpec]], losses: Set[str], rows: NDArray[np.int64], fold: int,
        judged: Rows, held_out: NDArray[np.int64],
    ) -> list[Judgement]:  # fmt: skip
        lanes = Lanes([uncertified(spec) for candidate in candidates for spec in candidate], self.features)
        try:
            self._train(lanes, rows, fold)
        except Diverged:
            if len(candidates) == 1:
                return [Judgement(WORST, WORST, None)]
            return [
                judgement
                for candidate in candidates
                for judgement in self._trained_and_judged([candidate], losses, rows, fold, judged, held_out)
            ]
        judge = Judge(lanes, self.targets, judged, held_out, losses)
        found = [judge.judgement(place) for place in range(len(candidates))]
        return found if self.has_all_classes else [judgement._replace(accuracy=None) for judgement in found]

    def scores_by_halves(self, specs: Sequence[LaneSpec]) -> tuple[Vector, Vector]:
        """The scores of the rows by lanes that were trained on the other half, and the labels; a line for each lane."""
        rows = np.arange(len(self.window))
        scores, labels = np.empty((len(specs), len(rows))), np.empty((len(specs), len(rows)))
        for fold, held_out in enumerate(np.array_split(rows, 2)):
            lanes = Lanes([uncertified(spec) for spec in specs], self.features)
            self._train(lanes, np.setdiff1d(rows, held_out), fold)
            judge = Judge(lanes, self.targets, self.window, held_out)
            for lane in range(len(specs)):
                scores[lane, held_out], labels[lane, held_out] = judge.scored(lane)
        return scores, labels

    def _train(self, lanes: Lanes, rows: NDArray[np.int64], fold: int) -> None:
        epochs_a_call = max(1, _CALL_ROWS // max(1, len(rows)))
        for first in range(0, self.epochs, epochs_a_call):
            epochs = range(first, min(self.epochs, first + epochs_a_call))
            counters = np.arange(len(epochs) * len(rows), dtype=np.uint64)
            words = random_words(key_of(self.seed, "fold", fold, first), counters).reshape(len(epochs), len(rows))
            visits = self.window.at(rows[words.argsort(axis=1, kind="stable").ravel()])
            for group in lanes.groups:
                if isinstance(group.learner, Passes):
                    for place, epoch in enumerate(epochs):
                        step(group.learner, group.state, visits, place * len(rows), (place + 1) * len(rows))
                        group.learner.reach_epoch(group.state, epoch + 1)
                else:
                    step(group.learner, group.state, visits, 0, len(visits.starts))
            self.told(len(lanes) / len(self.targets) * len(epochs) / self.work)

    def narrowed(self) -> CrossValidation:
        """The same search with room for those features alone that candidates are trained on: features that appear later have
        larger numbers. All others have no weight."""
        if self.sampled is None or not self.window.indices.size:
            return self
        found = np.zeros(self.features, np.bool_)
        mark_features(self.window.starts[: self.sampled], self.window.stops[: self.sampled], self.window.indices, found)
        return replace(self, features=int(np.flatnonzero(found).max(initial=0)) + 1)

    def planned(
        self, options: ModelOptions, by_passes: bool, ladders: Mapping[JudgedOn, int], most: int | None = None
    ) -> CrossValidation:
        """The same search with as many classes, rows, folds and epochs as its work allows. `ladders`: how many candidates
        there are, by where they are judged. `most`: the work, if it does not depend on that of the training."""
        window, ladder = self.window, ladders["table"]
        of_run = window.entries * len(self.targets) * (_USUAL_PASSES if by_passes else default_epochs(len(window)))
        # Many lanes together take less time than one alone.
        work = most or max(_LEAST_WORK, of_run * max(1, _TOGETHER // len(self.targets)))
        fewest = _PASSES if by_passes else _FEWEST_EPOCHS
        epochs = fewest if by_passes else max(fewest, default_epochs(len(window)) // 2)
        search = replace(self, epochs=epochs)
        if options.multiclass:
            search = search.of_frequent_classes()
        if window.is_whole_table and 2 <= len(window) <= MOST_CROSS_VALIDATED:
            of_epoch = max(1, window.entries * (_FOLDS - 1) // _FOLDS)  # and lane
            for smaller in search._smaller(fewest):
                in_epochs = smaller._epochs_of_all(ladder)
                if in_epochs * len(smaller.targets) * of_epoch <= work:
                    return replace(smaller, work=in_epochs)
        lanes = len(search.targets) * ladders["sample"]
        rows, epochs = sampled_rows(window, lanes, by_passes, min(work, _MOST_OF_SAMPLE))
        return replace(search, sampled=rows, epochs=epochs, work=ladders["sample"] * epochs)

    def _smaller(self, fewest: int) -> Iterator[CrossValidation]:
        """This search, and others that take less and less work: bad candidates are dropped early, then there are fewer folds,
        then fewer classes, then fewer epochs, at least `fewest`."""
        yield self
        rows_of_fold = max(1, len(self.window) // _FOLDS) * len(self.targets)
        early = min(_FOLDS, -(-_JUDGED_EARLY // rows_of_fold))
        for folds in range(_FOLDS, 0, -1):
            yield replace(self, folds=folds, early_folds=min(folds, early))
        search = replace(self, folds=1, early_folds=1)
        if not search.has_all_classes or len(self.targets) == MOST_CLASSES:
            search = replace(search, targets=self.targets[:_FEWEST_CLASSES], has_all_classes=False)
            yield search
        while search.epochs > fewest:
            search = replace(search, epochs=max(fewest, search.epochs * 3 // 4))
            yield search

    def _rungs(self, candidates: int) -> list[tuple[int, int]]:
        """For how many epochs candidates are trained at first, and how many of them are left then."""
        if not self.early_folds or self.epochs < _EPOCHS_OF_RUNGS or candidates < _CANDIDATES_OF_RUNGS:
            return []
        return [(-(-self.epochs // 4), -(-candidates // 2)), (-(-self.epochs // 2), -(-candidates // 4))]

    def _epochs_of_all(self, candidates: int) -> int:
        """The sum over all candidates and folds."""
        total, left, once = 0, candidates, self.validation is not None
        for epochs, kept in self._rungs(candidates):
            total, left = total + left * epochs * (1 if once else self.early_folds), kept
        return total + left * self.epochs * (1 if once else self.folds)

    def finalists(self, candidates: Sequence[Sequence[LaneSpec]], by_loss: bool) -> dict[int, Judgement]:
        """The judgements of the candidates that are compared at the end, by their numbers."""
        left = list(range(len(candidates)))
        for epochs, kept in self._rungs(len(candidates)):
            search = replace(self, epochs=epochs, folds=self.early_folds)
            early = search.judgements([candidates[number] for number in left])
            merits = [one.loss if by_loss else one.merit for one in early]
            left = sorted(left[place] for place in np.argsort(merits, kind="stable")[:kept])
        return dict(zip(left, self.judgements([candidates[number] for number in left]), strict=True))

    def of_frequent_classes(self) -> CrossValidation:
        """The best σ is about the same for all classes."""
        labels = self.window.labels[:_MOST_SAMPLED]
        frequent = sorted(self.targets, key=lambda target: -int(np.count_nonzero(labels == target.positive)))
        chosen = frequent[:MOST_CLASSES]
        return replace(self, targets=chosen, has_all_classes=len(chosen) == len(self.targets))


def uncertified(spec: LaneSpec) -> LaneSpec:
    """The same lane without the numbers for a certificate: a search does not use it."""
    return replace(spec, own=replace(spec.own, certified=False)) if getattr(spec.own, "certified", False) else spec


def sampled_rows(window: Window, lanes: int, by_passes: bool, work: int) -> tuple[int, int]:
    """Of how many rows the sample of a window consists, besides those that judge, and for how many epochs candidates train
    on it. `by_passes`: weights change once per epoch, so the number of epochs does not depend on that of rows."""
    of_row = max(1.0, window.entries / max(1, len(window)) * lanes)
    epochs = _PASSES if by_passes else _EPOCHS_OF_SAMPLE
    most = max(1, window.different_rows * 2 // 3)
    rows = min(_MOST_SAMPLED, most, max(_FEWEST_SAMPLED, int(work / (epochs * of_row))))
    if by_passes:
        return rows, epochs
    return rows, max(epochs, min(default_epochs(rows) // 2, int(work / (rows * of_row))))


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
