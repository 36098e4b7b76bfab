"""Which of a run's candidates is the best: judged by the weights that would be returned, on rows not trained on yet.

At certain numbers of rows, fixed beforehand, all candidates are judged on the next rows (or on validation rows). Where σ
is to be found, the field is narrowed twice: to the better half early in the first epoch, to the winner in its middle.

Two measures that come for nothing would mislead. The losses that the steps have met on their way speak of the last
iterate, whose best σ is several times larger than that of the average which is returned. And a mean hinge loss may fall
while accuracy falls with it, as σ shrinks all scores. So classifiers are compared by the logistic loss of their scores at
the best scale: it ranks candidates as their accuracy after some epochs does, with far less noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.checks import require, typed
from streampgs.kernels.judge_loop import loss_sum_for, scaled_logistic_loss
from streampgs.kernels.placing_loop import mark_features, score_rows
from streampgs.learn.lanes import Lanes
from streampgs.learn.pgs import PgsSettings
from streampgs.losses import LOSSES
from streampgs.reading.window import Window
from streampgs.run.validate import check_settings
from streampgs.selection.grid import Target, lanes_of

_FIRST_HEAT_ROWS = 1 << 17
# With more, lanes wait for memory rather than for each other, and a long last heat would cost more than it finds out.
_FEATURES_IN_CACHE = 1 << 18
_FIRST_HEAT_MARKS, _LAST_HEAT_MARKS = 4, 8
_JUDGED_SHARE = 32  # of the rows of a heat, one in so many is looked at beforehand at a mark
_FEWEST_JUDGED, _MOST_JUDGED = 512, 1 << 15
_MARK_GROWTH = 8  # after the heats, marks come whenever the rows have grown by this fraction
_KEPT_MARKS = 16
_MOST_MARKS = 1000  # more than any heat has
# Of candidates that differ in σ alone, all within this share of the best merit are as good at this point; the largest σ
# among them is preferred: it will still be good after more rows, and smaller ones have yet to be felt.
_TIE = 0.0015


@dataclass(frozen=True)
class Heat:
    """Candidates are judged until so many rows, then so many are left."""

    stop_rows: int
    marks: int
    survivors: int


@dataclass
class Mark:
    """A judgement, of each candidate that was left."""

    rows: int
    judged: int
    """Rows that were looked at: fewer than usual where a window ends."""
    losses: list[float]
    merits: list[float]
    """What candidates are compared by; the smaller, the better."""
    accuracies: list[float | None]


@dataclass
class Standing:
    """All that a contest has of state; it survives in checkpoints."""

    left: list[int]
    """The numbers of the candidates that are left."""
    heats: list[dict[str, int]]
    heat: int = 0
    heat_began: int = 0
    next_mark: int | None = None
    marks: list[dict[str, Any]] = field(default_factory=list)
    """Of the present heat, the newest last; the first is what was known of the survivors of the heat before."""
    dropped: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Candidate number → when it was dropped, and its last judgement."""


def heats_for(candidates: int, rows: int, searching: bool, features: int = 0) -> list[Heat]:
    """How a field is narrowed, given the rows of an epoch and, where they are many, the features."""
    if candidates == 1 or not searching:
        return []
    last = Heat(max(1, rows // (2 if features <= _FEATURES_IN_CACHE else 4)), _LAST_HEAT_MARKS, 1)
    survivors = max(2, min(4, candidates // 2))
    if candidates <= survivors:
        return [last]
    return [Heat(max(1, min(_FIRST_HEAT_ROWS, rows // 8)), _FIRST_HEAT_MARKS, survivors), last]


class Contest:
    def __init__(
        self,
        candidates: Sequence[PgsSettings],
        targets: Sequence[Target],
        heats: Sequence[Heat],
        judges_on: bool,
        validation: Window | None,
        rows: int = 0,
    ) -> None:
        """`judges_on`: marks go on after the heats, because somebody wants to know. The heats begin after `rows` rows."""
        self.candidates = list(candidates)
        self.targets = list(targets)
        self.judges_on = judges_on
        self.validation = validation
        later = [asdict(replace(heat, stop_rows=heat.stop_rows + rows)) for heat in heats]
        self.standing = Standing(list(range(len(candidates))), later, heat_began=rows)
        self._set_next_mark(rows)

    # When.

    @property
    def next_mark(self) -> int | None:
        return self.standing.next_mark

    @property
    def is_searching(self) -> bool:
        """Whether candidates are still to be dropped."""
        return self._heat() is not None

    def _heat(self) -> Heat | None:
        s = self.standing
        return Heat(**s.heats[s.heat]) if s.heat < len(s.heats) else None

    def _set_next_mark(self, rows: int) -> None:
        s, heat = self.standing, self._heat()
        if heat is not None:
            span = heat.stop_rows - s.heat_began
            marks = (s.heat_began + max(1, span * k // heat.marks) for k in range(1, heat.marks + 1))
            s.next_mark = next((mark for mark in marks if mark > rows), max(rows, heat.stop_rows))
        else:
            s.next_mark = rows + max(_FEWEST_JUDGED, rows // _MARK_GROWTH) if self.judges_on else None

    # What.

    def judge(self, lanes: Lanes, window: Window, row: int, rows_done: int, epoch_rows: int) -> list[int] | None:
        """Judge on the rows of the window from `row` on, or on the validation rows. The numbers of the lanes to go on
        with, if others are dropped."""
        s, heat = self.standing, self._heat()
        span = heat.stop_rows - s.heat_began if heat is not None else epoch_rows
        wanted = min(_MOST_JUDGED, max(span // _JUDGED_SHARE, min(_FEWEST_JUDGED, max(32, span // 4))))
        if self.validation is None:
            judged, rows = window, _unseen(window, row, wanted)
        else:
            judged, rows = self.validation, np.arange(min(self.validation.rows, wanted))
        touched = _touched(judged, rows, lanes)
        results = [self._judged(lanes, place, judged, rows, touched) for place in range(len(s.left))]
        mark = Mark(rows_done, len(rows), *(list(column) for column in zip(*results, strict=True)))
        s.marks = [*s.marks, asdict(mark)][-_KEPT_MARKS:]
        kept = None
        if heat is not None and rows_done >= heat.stop_rows:
            kept = self._narrow(heat, rows_done)
        self._set_next_mark(rows_done)
        if kept is None:
            return None
        count = len(self.targets)
        return [place * count + target for place in kept for target in range(count)]

    def _judged(
        self, lanes: Lanes, place: int, window: Window, rows: NDArray[np.int64], touched: NDArray[np.int64]
    ) -> tuple[float, float, float | None]:
        """Loss, merit and accuracy, on average over rows and targets, of the candidate at that place among those left."""
        count = len(self.targets)
        labels, starts, stops = window.labels[rows], window.starts[rows], window.stops[rows]
        weights = window.weights[rows] if window.weights.size else np.ones(len(rows))
        total = max(float(weights.sum()), 1e-300) * count
        classifies = LOSSES[self.candidates[0].loss].classifies
        scores = np.empty((count, len(rows)))
        vector = np.zeros(lanes.features + 1)
        loss = merit = correct = 0.0
        for number in range(count):
            settings = lanes.settings[place * count + number]
            vector[touched] = lanes.weights(place * count + number, touched)
            score_rows(
                vector[1:], float(vector[0]) * settings.intercept, starts, stops, window.indices, window.values,
                 settings.layout == "sparse", scores[number],
            )  # fmt: skip
            meant = meant_labels(labels, settings)
            own = loss_sum_for(LOSSES[settings.loss])(scores[number], meant, weights, settings.shape)
            loss += own
            merit += scaled_logistic_loss(scores[number], meant, weights) if classifies else own
            correct += float(weights[(scores[number] > 0.0) == (meant > 0.0)].sum())
        if self.targets[0].positive is not None:
            correct = count * float(weights[scores.argmax(axis=0) == labels].sum())
        return loss / total, merit / total, correct / total if classifies else None

    def _merits(self) -> list[float]:
        """Of each candidate that is left, over the later half of the marks."""
        marks = self.standing.marks
        later = marks[len(marks) // 2 :]
        judged = [mark["judged"] for mark in later]
        merits = np.array([mark["merits"] for mark in later])
        return [float(np.average(merits[:, place], weights=judged)) for place in range(len(self.standing.left))]

    def _narrow(self, heat: Heat, rows: int) -> list[int]:
        """The places, among those left, of the survivors."""
        s, merits = self.standing, self._merits()
        order = sorted(range(len(merits)), key=lambda place: (_finite_or_worst(merits[place]), place))
        kept = sorted(order[: heat.survivors]) if heat.survivors > 1 else [self._preferred(merits)]
        for place, candidate in enumerate(s.left):
            if place not in kept:
                s.dropped[str(candidate)] = {"rows": rows, "merit": merits[place]}
        s.left = [s.left[place] for place in kept]
        s.heat, s.heat_began, s.marks = s.heat + 1, rows, [_of_places(s.marks[-1], kept)]
        return kept

    def _preferred(self, merits: list[float]) -> int:
        best = min(range(len(merits)), key=lambda place: (_finite_or_worst(merits[place]), place))
        chosen = self.candidates[self.standing.left[best]]
        alike = [
            place
            for place, merit in enumerate(merits)
            if merit <= merits[best] * (1.0 + _TIE)
            and _but_sigma(self.candidates[self.standing.left[place]]) == _but_sigma(chosen)
        ]
        return max([best, *alike], key=lambda place: self.candidates[self.standing.left[place]].sigma)

    def look(self, lanes: Lanes) -> tuple[float, float | None]:
        """Loss and accuracy of the leader on all validation rows; nothing comes of it for the contest."""
        assert self.validation is not None
        rows = np.arange(self.validation.rows)
        touched = _touched(self.validation, rows, lanes)
        loss, _, accuracy = self._judged(lanes, self.leader(), self.validation, rows, touched)
        return loss, accuracy

    def leader(self) -> int:
        """The place, among those left, of the best so far."""
        if len(self.standing.left) == 1 or not self.standing.marks:
            return len(self.standing.left) // 2
        return self._preferred(self._merits())

    def latest(self) -> tuple[float, float | None] | None:
        """Loss and accuracy of the leader when it was last judged."""
        if not self.standing.marks:
            return None
        mark, place = self.standing.marks[-1], self.leader()
        return mark["losses"][place], mark["accuracies"][place]

    def take_in(self, targets: Sequence[Target], lanes: Lanes) -> Lanes:
        """The lanes beside new ones, for those of the targets that are new: they learn from now on, for each candidate
        that is left."""
        known, lot = len(self.targets), 1 + max(target.joined for target in self.targets)
        if len(targets) <= known:
            return lanes
        self.targets += [replace(target, joined=lot) for target in targets[known:]]
        settings = lanes_of([self.candidates[number] for number in self.standing.left], self.targets)
        kept: list[int | None] = [
            place * known + number if number < known else None
            for place in range(len(self.standing.left))
            for number in range(len(self.targets))
        ]
        return lanes.joined_by(settings, kept)

    # The state, for a checkpoint.

    def to_json(self) -> dict[str, Any]:
        return {
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "targets": [asdict(target) for target in self.targets],
            "judges_on": self.judges_on,
            "standing": asdict(self.standing),
        }

    @staticmethod
    def from_json(record: dict[str, Any], validation: Window | None = None) -> Contest:
        contest = Contest(
            [PgsSettings.from_json(candidate) for candidate in record["candidates"]],
            [Target(**target) for target in record["targets"]],
            [],
            record["judges_on"],
            validation,
        )
        contest.standing = Standing(**record["standing"])
        return contest

    def check(self, lanes: Lanes) -> None:
        """What was read back can be gone on with."""
        s = typed(self.standing)
        check_settings(self.candidates)
        for target in self.targets:
            typed(target)
        count = len(self.candidates)
        require(0 < len(set(s.left)) == len(s.left) and set(s.left) <= set(range(count)), f"candidates {s.left!r:.100}")
        require(len(lanes) == len(s.left) * len(self.targets), f"{len(lanes)} models for {len(s.left)} candidates")
        require(0 <= s.heat <= len(s.heats) and s.heat_began >= 0, f"heat {s.heat}")
        for heat in s.heats:
            h = typed(Heat(**heat))
            require(0 < h.marks <= _MOST_MARKS and h.survivors > 0 and h.stop_rows > 0, f"a heat of {heat}")
        for mark in s.marks:
            m = typed(Mark(**mark))
            require(len(m.losses) == len(m.merits) == len(m.accuracies) == len(s.left), "a mark of other candidates")
            require(m.judged > 0, "a mark of no rows")


def _unseen(window: Window, first: int, wanted: int) -> NDArray[np.int64]:
    """The next rows of the window, so many at most; those that were trained on before tell nothing new."""
    rows = np.arange(first, window.rows)
    unseen = rows if window.seen is None else rows[~window.seen[first:]]
    return (unseen if len(unseen) else rows)[:wanted]


def _touched(window: Window, rows: NDArray[np.int64], lanes: Lanes) -> NDArray[np.int64]:
    """The coordinates that scores of these rows depend on: to get at the weights of all features would cost more than
    the scores, where there are very many."""
    if lanes.settings[0].layout != "sparse":
        return np.arange(lanes.features + 1)
    found = np.zeros(lanes.features + 1, np.bool_)
    found[0] = True
    mark_features(window.starts[rows], window.stops[rows], window.indices, found[1:])
    return np.flatnonzero(found)


def _of_places(mark: dict[str, Any], places: list[int]) -> dict[str, Any]:
    """What a mark says of some of the candidates."""
    return {
        name: [value[place] for place in places] if isinstance(value, list) else value for name, value in mark.items()
    }


def meant_labels(labels: NDArray[np.float64], settings: PgsSettings) -> NDArray[np.float64]:
    """The labels as a lane sees them."""
    if settings.positive is not None:
        return np.where(labels == settings.positive, 1.0, -1.0)
    return np.ascontiguousarray(labels if labels.ndim == 1 else labels[:, settings.column])


def _but_sigma(candidate: PgsSettings) -> tuple[object, ...]:
    return candidate.loss, candidate.p, candidate.shape


def _finite_or_worst(value: float) -> float:
    return value if math.isfinite(value) else math.inf
