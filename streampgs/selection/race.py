"""Which of a run's candidates is the best.

Where a value is to be found, candidates are judged before the first step (cross_validation.py), and one is left. Several
values that the user listed train to the end. Whenever the rows have grown by an eighth, they are judged on the next rows, or on
validation rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import Count, Positive, decode, encode, require
from streampgs.base.stage import Bundle
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import lane_spec, learner_named
from streampgs.losses import LOSSES
from streampgs.reading.window import Window
from streampgs.selection.judge import (
    WORST,
    Judge,
    Judgement,
    Weighted,
    centre,
    centring_rows,
    judged_rows,
    rows_to_judge,
)

_FEWEST_ROWS = 512
_MARK_GROWTH = 8  # marks come whenever the rows have grown by this fraction
_KEPT_MARKS = 16
# Classifiers that differ in σ alone and are within this share of the best merit are equally good at this point; the
# largest σ among them is preferred: it will still be good after more rows, and smaller ones have yet to take effect.
# Regressions have no such share: outliers may be most of a loss, and even a bad candidate would be within it.
_TIE = 0.0015


@dataclass(frozen=True)
class Mark:
    """The judgement of each candidate that was left."""

    rows: int
    judged: Positive
    """Rows that were judged: fewer than usual where a window ends."""
    losses: list[float]
    merits: list[float]
    """What candidates are compared by; the smaller, the better."""
    accuracies: list[float | None]

    def of(self, places: Sequence[int]) -> Mark:
        """The part of the mark about some of the candidates."""
        losses, merits, accuracies = self.losses, self.merits, self.accuracies
        return Mark(self.rows, self.judged, [losses[p] for p in places], [merits[p] for p in places],
                    [accuracies[p] for p in places])  # fmt: skip

    def joined(self, other: Mark) -> Mark:
        """The mark of the rows of both, of the same weights."""
        judged = self.judged + other.judged

        def mean(own: float, another: float) -> float:
            return (self.judged * own + other.judged * another) / judged

        losses = list(map(mean, self.losses, other.losses))
        merits = list(map(mean, self.merits, other.merits))
        pairs = zip(self.accuracies, other.accuracies, strict=True)
        accuracies = [None if one is None or another is None else mean(one, another) for one, another in pairs]
        return Mark(other.rows, judged, losses, merits, accuracies)


@dataclass(frozen=True)
class Dropped:
    """When a candidate was dropped, and its last merit."""

    rows: int
    merit: float | None
    """None: it was dropped before candidates were compared in full."""


@dataclass
class Progress:
    """Everything of a race that changes."""

    left: list[Count]
    """The numbers of the candidates that are left."""
    began: Count = 0
    """After so many rows."""
    next_mark: int | None = None
    marks: list[Mark] = field(default_factory=list)
    """The newest last."""
    dropped: dict[str, Dropped] = field(default_factory=dict)
    """By the number of the candidate."""


class Race:
    """The lanes are those of the candidates that are left: candidate by candidate, a lane for each target."""

    name = "race"

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.candidates: list[LaneSpec] = []
        self.targets: list[Target] = []
        self.judges_on = False
        """Whether candidates are judged while they train."""
        self.read_validation: Callable[[], Rows | None] = lambda: None
        self.progress = Progress([])
        self.returned: Weighted | None = None
        """The model that is judged instead of the last candidate that is left."""

    def begin(self, candidates: Sequence[LaneSpec], targets: Sequence[Target], judges_on: bool, rows: int = 0) -> None:
        """The first mark comes some time after `rows` rows."""
        self.candidates, self.targets, self.judges_on = list(candidates), list(targets), judges_on
        self.progress = Progress(list(range(len(candidates))), rows)
        self._set_next_mark(rows)

    def end(self, rows: int) -> None:
        """Keep only the leader."""
        now = self.progress
        if len(now.left) > 1:
            self._drop([self.leader()], now.marks[-1].merits if now.marks else [WORST] * len(now.left), rows)
        self._set_next_mark(rows)

    def _drop(self, kept: Sequence[int], merits: Sequence[float], rows: int) -> None:
        """Keep only the candidates at these places."""
        now, count = self.progress, len(self.targets)
        others = ((place, number) for place, number in enumerate(now.left) if place not in kept)
        now.dropped |= {str(number): Dropped(rows, merits[place]) for place, number in others}
        now.left, now.marks = [now.left[place] for place in kept], [mark.of(kept) for mark in now.marks[-1:]]
        self.lanes.keep([place * count + target for place in kept for target in range(count)])

    def settle(self, finalists: Mapping[int, Judgement], judged: int, by_loss: bool) -> int:
        """Keep only the best candidate, by judgements of some of them that were made before its first step. Returns its number.
        `by_loss`: the loss decides."""
        now, numbers = self.progress, sorted(finalists)
        mark = Mark(now.began, judged, *(list(column) for column in zip(*(finalists[n] for n in numbers), strict=True)))
        merits = mark.losses if by_loss else mark.merits
        known = dict(zip(numbers, merits, strict=True))
        now.dropped = {str(n): Dropped(now.began, known.get(n)) for n in range(len(self.candidates))}
        now.left = numbers
        place = self._preferred(merits)
        now.marks, now.left = [mark.of([place])], [numbers[place]]
        del now.dropped[str(numbers[place])]
        self._set_next_mark(now.began)
        return numbers[place]

    @property
    def validation(self) -> Rows | None:
        """Rows to judge on in place of those of a window."""
        return self.read_validation()

    # When.

    @property
    def next_mark(self) -> int | None:
        return self.progress.next_mark

    def judge_only_to_choose(self) -> None:
        """Nobody wants to know how good a candidate is that has no rival."""
        if len(self.progress.left) == 1:
            self.judges_on, self.progress.next_mark = False, None

    def _set_next_mark(self, rows: int) -> None:
        self.progress.next_mark = rows + max(_FEWEST_ROWS, rows // _MARK_GROWTH) if self.judges_on else None

    # Judging.

    def judge(self, window: Window, row: int, rows_done: int, epoch_rows: int) -> None:
        """Judge on the rows of the window from `row` on, or on validation rows."""
        judged, first = (window, row) if self.validation is None else (self.validation, 0)
        rows = rows_to_judge(judged, first, judged_rows(epoch_rows))
        self.progress.marks = [*self.progress.marks, self.mark(judged, rows, rows_done)][-_KEPT_MARKS:]
        self._set_next_mark(rows_done)

    def _judge(self, window: Rows, rows: NDArray[np.int64]) -> Judge:
        judged = self.returned if self.returned is not None and len(self.progress.left) == 1 else self.lanes
        return Judge(judged, self.targets, window, rows)

    def _means(self) -> list[float]:
        """The merit of each candidate that is left, over the later half of the marks."""
        marks = self.progress.marks
        later = marks[len(marks) // 2 :]
        weights = [mark.judged for mark in later]
        merits = np.average([mark.merits for mark in later], axis=0, weights=weights)
        merits[list(self.lanes.diverged_places())] = WORST
        return [float(merit) for merit in merits]

    def _preferred(self, merits: Sequence[float]) -> int:
        """The place of the best of those left."""
        return _preferred([self.candidates[number] for number in self.progress.left], merits)

    def mark(self, window: Rows, rows: NDArray[np.int64], rows_done: int) -> Mark:
        """The judgement of the candidates that are left, on these rows."""
        judge = self._judge(window, rows)
        results = [judge.judgement(place) for place in range(len(self.progress.left))]
        return Mark(rows_done, len(rows), *(list(column) for column in zip(*results, strict=True)))

    # The leader.

    def leader(self) -> int:
        """The place, among those left, of the best so far."""
        if len(self.progress.left) == 1:
            return 0
        if not self.progress.marks:
            return _before_marks(self.lanes, len(self.progress.left))
        return self._preferred(self._means())

    def leading(self) -> LaneSpec:
        return self.candidates[self.progress.left[self.leader()]]

    def leading_lanes(self) -> range:
        """The leader's lanes, one for each target."""
        count = len(self.targets)
        return range(self.leader() * count, (self.leader() + 1) * count)

    def centre(self, window: Window) -> None:
        """Let the leader's constants move freely: the regularizer holds the intercept back, and averages of the scores of
        a rare class are too low. Uses the rows of the window, trained on or not."""
        rows = np.arange(min(window.different_rows, centring_rows(window)))
        all_rows = window.has_whole_epochs and len(rows) == window.different_rows
        centre(self.lanes, self.leading_lanes(), window, rows, all_rows)

    def look(self) -> tuple[float, float | None]:
        """Loss and accuracy of the leader on all validation rows; the race does not use them."""
        assert self.validation is not None
        judgement = self._judge(self.validation, np.arange(len(self.validation))).judgement(self.leader())
        return judgement.loss, judgement.accuracy

    def latest(self) -> tuple[float, float | None] | None:
        """Loss and accuracy of the leader when it was last judged."""
        if not self.progress.marks:
            return None
        mark, place = self.progress.marks[-1], self.leader()
        return mark.losses[place], mark.accuracies[place]

    # The section of the checkpoint.

    def state(self) -> Bundle:
        return Bundle(
            {
                "candidates": [encode(candidate) for candidate in self.candidates],
                "targets": [encode(target) for target in self.targets],
                "judges_on": self.judges_on,
                "progress": encode(self.progress),
            }
        )

    def restore(self, bundle: Bundle) -> None:
        """After the lanes, which it must fit."""
        values = bundle.values
        require(type(values["judges_on"]) is bool, f"judges_on {values['judges_on']!r:.50}")
        candidates = [lane_spec(record) for record in values["candidates"]]
        targets = [decode(Target, record) for record in values["targets"]]
        now, count = decode(Progress, values["progress"]), len(candidates)
        _check(now, count)
        require(
            len(self.lanes) == len(now.left) * len(targets), f"{len(self.lanes)} lanes of {len(now.left)} candidates"
        )
        self.candidates, self.targets, self.judges_on, self.progress = candidates, targets, values["judges_on"], now


def _check(now: Progress, count: int) -> None:
    """Raise ValueError for what no race of so many candidates can have left."""
    require(0 < len(set(now.left)) == len(now.left) and set(now.left) <= set(range(count)), f"candidates {now.left}")
    require(set(map(int, now.dropped)) <= set(range(count)), f"dropped candidates {sorted(now.dropped)}")
    for mark in now.marks:
        same = len(mark.losses) == len(mark.merits) == len(mark.accuracies) == len(now.left)
        require(same, "a mark of other candidates")


def _preferred(left: Sequence[LaneSpec], merits: Sequence[float]) -> int:
    best = min(range(len(merits)), key=lambda place: (merits[place], place))
    tie = _TIE if LOSSES[left[best].loss].classifies else 0.0
    tied = [
        place
        for place, merit in enumerate(merits)
        if merit <= merits[best] * (1.0 + tie) and _but_sigma(left[place]) == _but_sigma(left[best])
    ]
    return max([best, *tied], key=lambda place: left[place].sigma)


def _before_marks(lanes: Lanes, candidates: int) -> int:
    """The one in the middle of those that have not diverged."""
    diverged = lanes.diverged_places()
    learn = [place for place in range(candidates) if place not in diverged] or [0]
    return learn[len(learn) // 2]


def _but_sigma(candidate: LaneSpec) -> tuple[object, ...]:
    others = (getattr(candidate.own, name) for name in learner_named(candidate.learner).candidates.others)
    return candidate.loss, candidate.norm, candidate.shape, *others
