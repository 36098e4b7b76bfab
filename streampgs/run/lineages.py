"""How a model continues when its table grows.

There are several lineages, because no single rule is best for all tables (docs/growth.md):

- `long`, the lanes that the run began with: they train on the new rows once, and on drawn old rows next to them;
- `recent`, a copy of them that trains on the new rows alone in all passes, with averages of the present update;
- `fresh`, which begins from zero with each update, and knows nothing but its rows;
- `first`, the model from before the first update. It is not trained: where updates do harm, it is the best one.

Before new rows are trained on, the lineages are judged by them. The model that a run returns is the mixture that would
have predicted the judged rows best. In the first update there is nothing to judge yet: a quarter of its rows is held out
until the lineages have learned from the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from streampgs.base.checks import Count, decode, encode, require
from streampgs.base.stage import Bundle, Stage
from streampgs.engine.engine import Engine
from streampgs.kernels.placing_loop import squared_norms
from streampgs.kernels.randomness import key_of, random_fractions
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import StepChange, learner_named
from streampgs.learn.lines import SAMPLE_ROWS
from streampgs.order.layout import HELD_OUT
from streampgs.order.schedule import UpdatePass
from streampgs.reading.window import Window
from streampgs.run.checkpoint import Checkpoint
from streampgs.selection.frozen import Frozen
from streampgs.selection.judge import centre, centring_rows
from streampgs.selection.mixture import Judgement, Mixture, rows_to_judge
from streampgs.selection.race import Race
from streampgs.selection.returned import Returned, losses_of, scores_of

LINEAGES = ("long", "recent", "fresh", "first")
TRAINED = 3
"""So many of them are trained."""
_FROZEN_BYTES = 16
"""Memory for a feature in the models from before the first update and from before the present one."""
_CHOSEN_BYTES = 96
"""Memory for a row of a window, for choosing the rows of each lineage."""


@dataclass(frozen=True)
class Part:
    """The rows of a window that a lineage trains on, in their order."""

    lines: Rows
    places: NDArray[np.int64] | None
    """Their numbers in the window; None: all rows."""

    def before(self, row: int) -> int:
        """How many of them come before a row of the window."""
        return row if self.places is None else int(np.searchsorted(self.places, row))


def part_of(window: Rows, chosen: NDArray[np.bool_]) -> Part:
    places = np.flatnonzero(chosen)
    return Part(window if len(places) == len(window) else window.at(places), places)


def rows_of_pass(window: Rows, update: UpdatePass, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of a window the long lineage trains on in this pass, and which ones the others."""
    numbers = window.numbers
    is_new = numbers >= update.first_new_row
    held_out = np.zeros(len(numbers), np.bool_)
    if update.holds_out:
        held_out = is_new & _drawn(seed, "held out", update, numbers, HELD_OUT)
    old = ~is_new
    if update.old_share < 1.0:
        old &= _drawn(seed, f"old rows of pass {update.number}", update, numbers, update.old_share)
    is_last = update.number == update.passes
    new = held_out if is_last else is_new & ~held_out
    return old | new if is_last or update.number == 0 else old, new


def mean_squared_norm(window: Rows, chosen: NDArray[np.bool_], spec: LaneSpec) -> float | None:
    """‖x‖² as steps see it, of the first of these rows; None without any."""
    rows = np.flatnonzero(chosen)[:SAMPLE_ROWS]
    norms = np.empty(len(rows))
    squared_norms(window.starts[rows], window.stops[rows], window.values, spec.norm.q, norms)
    return float(np.mean(norms)) + spec.intercept**2 if len(rows) else None


class PartsOfWindow:
    """The part of each lineage in a window."""

    def __init__(self, parts: Sequence[Part], used: NDArray[np.int64] | None) -> None:
        """`used`: the rows that are in any part; None: all."""
        self.parts, self._used = parts, used

    def advance(self, engines: Sequence[Engine], reached: list[int], until: int, end: int) -> None:
        """Train on the rows of the window up to `until`. A step or a round may end later; `reached` says where."""
        for number, (engine, part) in enumerate(zip(engines, self.parts, strict=True)):
            target = part.before(until)
            if reached[number] < target:
                reached[number] = engine.advance(part.lines, reached[number], target, part.before(end))

    def used(self, row: int, until: int) -> int:
        """How many of these rows of the window are trained on."""
        return until - row if self._used is None else int(np.diff(np.searchsorted(self._used, [row, until]))[0])


def _drawn(seed: int, purpose: str, update: UpdatePass, numbers: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    key = key_of(seed, purpose, update.epoch, update.first_part)
    return np.asarray(random_fractions(key, numbers.astype(np.uint64)) < share)


@dataclass
class Progress:
    """Where the lineages are."""

    update: tuple[Count, Count] | None = None
    """The present update: its epoch and its first part."""
    begun_pass: Count = 0
    """The last pass that has begun."""
    is_judged: bool = False
    """Whether the rows of the present update, or of the last one, were judged."""
    averaged_epoch: Count = 0
    """The last epoch at whose beginning averages were faded."""
    first_length: float | None = None
    """The mean ‖x‖² of the rows before the first update."""
    length: Annotated[float, Meta(ge=1.0)] = 1.0
    """The mean ‖x‖² of the newest rows, as a multiple of `first_length`."""
    reached: list[Count] = field(default_factory=lambda: [0] * TRAINED)
    """How many of its rows of the present window each lineage has trained on."""

    def measure(self, old: float | None, new: float | None) -> None:
        """The mean ‖x‖² of old and new rows, if there are any. Rows without features tell nothing."""
        if new:
            self.first_length = self.first_length or old or new
            self.length = max(1.0, new / self.first_length)


class Lineages:
    """Its own section holds where the present update is. Of the long lineage, the lanes are those of the race."""

    name = "lineages"

    def __init__(self, race: Race, seed: int, workers: int) -> None:
        self.race, self._seed, self._workers = race, seed, workers
        self.recent, self.fresh = Lanes(name="recent"), Lanes(name="fresh")
        self.first, self._before = Frozen("first", race.lanes), Frozen("before", race.lanes)
        self.renew_engines()
        self.mixture = Mixture(len(LINEAGES))
        self.returned = race.returned = Returned((*self.trained, self.first), self.mixture, self._before)
        self.sigma_rows: int | None = None
        """For how many rows sigma was found; None: it is not to be found."""
        self.judgement: Judgement | None = None
        """The judgement in the last update whose rows were judged."""
        self._now = Progress()
        self._rows: PartsOfWindow | None = None
        """The parts of the present window, once there was an update."""

    def renew_engines(self) -> None:
        """The threads of the present engines end."""
        self.engines = [Engine(lanes, self._workers) for lanes in self.trained]

    @property
    def begun(self) -> bool:
        return len(self.recent) > 0

    @property
    def in_update(self) -> bool:
        return self._now.update is not None

    @property
    def trained(self) -> Sequence[Lanes]:
        return self.race.lanes, self.recent, self.fresh

    def stages(self) -> list[Stage]:
        return self._own_stages() if self.begun else [self.mixture]

    def _own_stages(self) -> list[Stage]:
        return [self.recent, self.fresh, self.first, self._before, self.mixture, self]

    def restore_all(self, checkpoint: Checkpoint) -> None:
        """With the lanes of the race and the race itself."""
        first: list[Stage] = [self.race.lanes, self.race]
        for stage in first + (self._own_stages() if self.name in checkpoint.sections else [self.mixture]):
            checkpoint.restore(stage)

    # Changes of the data and of the options.

    def grow(self, features: int) -> None:
        if self.begun:
            for lanes in self.recent, self.fresh:
                lanes.grow(features)
            self._grow_frozen()

    def take_in(self, layout: str, kept: Sequence[int | None] | None) -> None:
        """Rows have another layout; and there are new targets if `kept` says which lanes of the long lineage continued."""
        if kept is not None:
            self.mixture.grow(len(self.race.targets))
        if not self.begun:
            return
        for lanes in self.recent, self.fresh:
            lanes.relayout(layout)
            if kept is not None:
                lanes.join(self.race.lanes.specs, kept)
        self._grow_frozen()

    def _grow_frozen(self) -> None:
        for models in self.first, self._before:
            models.grow()

    def forget(self) -> None:
        """Sigma has changed: only the long lineage is left."""
        for lanes in self.recent, self.fresh:
            lanes.begin(())
        for models in self.first, self._before:
            models.clear()
        self.mixture.reset()
        self._now = Progress(averaged_epoch=self._now.averaged_epoch)

    # A window.

    def prepare(self, window: Window, update: UpdatePass | None, row: int, rows_done: int) -> Judgement | None:
        """Before the first step on a window, or on the rest of it from `row` on. The judgement, if there is a new one."""
        if row == 0:
            self._now.reached = [0] * TRAINED
        self._rows, judged = None, None
        if update is not None and (self.in_update or row == 0):
            long, new = rows_of_pass(window, update, self._seed)
            judged = self._begin_pass(update, window, new, rows_done) if row == 0 else None
            others = [part_of(window, new)] * (TRAINED - 1)
            self._rows = PartsOfWindow([part_of(window, long), *others], np.flatnonzero(long | new))
        elif self.begun:
            self._begin_epoch(window)
            self._rows = PartsOfWindow([Part(window, None)] * TRAINED, None)
        return judged

    def _begin_epoch(self, window: Window) -> None:
        """In every epoch after an update the earlier steps count half in the average of the long lineage."""
        assert window.span is not None
        epoch = window.span.start.epoch
        if window.span.start.begins_epoch and epoch > self._now.averaged_epoch:
            self.race.lanes.fade_averages(self.race.lanes.steps)
            self._now.averaged_epoch = epoch

    def _begin_pass(
        self, update: UpdatePass, window: Rows, is_new: NDArray[np.bool_], rows_done: int
    ) -> Judgement | None:
        judged = None
        if self._now.update != (update.epoch, update.first_part):
            self.reach(None)
            self.race.end(rows_done)
            self._before.keep(self.returned, self.returned.constants)
            self._now.is_judged = False
            if self.begun:
                judged = self._judged(window, np.flatnonzero(is_new), update, rows_done)
            self._begin(update, window, is_new)
        if update.number > self._now.begun_pass and update.number == update.passes - 1:
            self.fresh.restart_averages()
        self._now.begun_pass = max(self._now.begun_pass, update.number)
        if update.number == update.passes and not self._now.is_judged:
            judged = self._judged(window, np.flatnonzero(is_new), update, rows_done)
        return judged

    def _judged(self, window: Rows, rows: NDArray[np.int64], update: UpdatePass, rows_done: int) -> Judgement | None:
        """By averages of rows that do not include these."""
        rows = rows[: rows_to_judge(len(self.race.targets), len(LINEAGES))]
        if not len(rows):
            return None
        scored, losses = scores_of((*self.trained, self.first), self.returned, window, rows), losses_of(self.returned)
        one_of_classes = self.race.targets[0].positive is not None
        self.judgement = self.mixture.judge(scored, losses, update.rows, one_of_classes, rows_done)
        self._now.is_judged = True
        return self.judgement

    def _begin(self, update: UpdatePass, window: Rows, is_new: NDArray[np.bool_]) -> None:
        """After the averages of the last update were used to judge its rows."""
        long = self.race.lanes
        if not self.begun:
            self.first.keep(self._before, self._before.constants)
            self.recent.begin_as(long)
            self.fresh.features = long.features
        long.fade_averages(update.long_rows // long.specs[0].batch)
        self.recent.keep_averages_whole()
        self.recent.restart_averages()
        self._change_steps(update.old_rows + update.rows, window, is_new)
        continuation = learner_named(long.specs[0].learner).continuation
        self.fresh.begin([continuation.from_zero(spec, self._now.length) for spec in long.specs])
        self.fresh.constants = list(long.constants)
        self._now.update, self._now.begun_pass = (update.epoch, update.first_part), 0

    def _change_steps(self, rows: int, window: Rows, is_new: NDArray[np.bool_]) -> None:
        """The best sigma shrinks as rows arrive. If the new rows are longer, because a number leaves its range, steps of the
        same size would overshoot."""
        long, now = self.race.lanes, self._now
        before, factor = now.length, 1.0
        if self.sigma_rows is not None and rows > self.sigma_rows:
            factor, self.sigma_rows = self.sigma_rows / rows, rows
        now.measure(mean_squared_norm(window, ~is_new, long.specs[0]), mean_squared_norm(window, is_new, long.specs[0]))
        for lanes in long, self.recent:
            lanes.change_steps(StepChange(factor, before, now.length))
        self.race.candidates[self.race.progress.left[0]] = replace(long.specs[0], target=Target(""))

    def reach(self, update: UpdatePass | None) -> None:
        """The cursor is in this pass of an update, or in none: the update may be over."""
        if self.in_update and (update is None or (update.epoch, update.first_part) != self._now.update):
            self._now.update = None
            self._before.clear()

    def advance(self, window: Rows, row: int, until: int, end: int) -> tuple[int, int]:
        """Train on the rows from `row` to `until`; returns the row that was reached, and how many were trained on."""
        if self._rows is None:
            reached = self.engines[0].advance(window, row, until, end)
            return reached, reached - row
        self._rows.advance(self.engines, self._now.reached, until, end)
        return until, self._rows.used(row, until)

    def centre(self, window: Window) -> None:
        """Let the constants of all lineages move freely, in an epoch."""
        rows = np.arange(min(window.different_rows, centring_rows(window)))
        for lanes in self.trained:
            centre(lanes, range(len(lanes)), window, rows, False)

    # The section of the checkpoint.

    def state(self) -> Bundle:
        judgement = None if self.judgement is None else encode(self.judgement)
        return Bundle({"progress": encode(self._now), "judgement": judgement})

    def restore(self, bundle: Bundle) -> None:
        """After all others."""
        values = bundle.values
        self._now = decode(Progress, values["progress"])
        self.judgement = None if values["judgement"] is None else decode(Judgement, values["judgement"])
        require(len(self._now.reached) == TRAINED, f"rows of {len(self._now.reached)} lineages")
        require((self._now.update is None) == (not len(self._before)), "a kept model outside an update")
        require(len(self.first) > 0, "no model from before the first update")
        _check_alike(self.trained)


def _check_alike(lineages: Sequence[Lanes]) -> None:
    long, *others = lineages
    for lanes in others:
        same = len(lanes) == len(long) and lanes.features == long.features
        require(same, f"{len(lanes)} lanes of {lanes.features} features next to {len(long)} of {long.features}")


def digest_of(lineages: Lineages) -> str:
    """The SHA-256 of everything that was learned."""
    digests = [lanes.digest() for lanes in lineages.trained if len(lanes)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def summary_of(lineages: Lineages, since: int = 0) -> dict[str, Any] | None:
    """How the returned model is mixed, and how its parts were judged after so many rows; None before the first update."""
    if not lineages.begun:
        return None
    judged = lineages.judgement
    is_new = judged is not None and judged.after_rows >= since
    of_mixture = ("shares", "shrink")
    return {
        "going_on": lineages.in_update,
        "shares": dict(zip(LINEAGES, lineages.mixture.shares, strict=True)),
        "shrink": lineages.mixture.shrink,
        "judged": {k: v for k, v in encode(judged).items() if k not in of_mixture} if is_new else None,
    }


def bytes_besides(lineages: Lineages, window: Rows, update: UpdatePass | None, workers: int) -> tuple[int, int]:
    """The bytes of a feature, and of a window, that will be in memory besides the long lineage and the window."""
    if update is None and not lineages.begun:
        return 0, 0
    long = lineages.trained[0]
    of_feature = (TRAINED - 1) * long.bytes_per_feature(workers) + _FROZEN_BYTES * len(long)
    return of_feature, 0 if update is None else len(window) * _CHOSEN_BYTES


def bytes_of_others(lineages: Lineages) -> int:
    """The size of the arrays that grow with the features, without those of the long lineage."""
    frozen = lineages.first.nbytes * (1 + lineages.in_update)
    return frozen + sum(lanes.nbytes for lanes in lineages.trained[1:] if len(lanes))
