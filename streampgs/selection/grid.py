"""Which models a run trains: every combination of the options that the user listed. Values that the user left open are
found from the rows of the first window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.placing_loop import squared_norms
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.learner import learner_named
from streampgs.learn.norms import EUCLID, PNorm
from streampgs.losses import LOSSES
from streampgs.options import ModelOptions
from streampgs.reading.window import Window
from streampgs.selection.judge import labels_for
from streampgs.selection.race import Race, heats_for

_SAMPLE_ROWS = 1 << 14  # of the first window


def targets_of(options: ModelOptions) -> list[Target]:
    if options.classes is not None and options.multiclass:
        return [Target(_in_full(label), 0, float(number)) for number, label in enumerate(options.classes)]
    return [Target(name, column) for column, name in enumerate(options.labels)]


def _in_full(label: float | str) -> str:
    """With all digits: names of classes become names of columns, and two must not be the same."""
    if isinstance(label, str):
        return label
    return str(int(label)) if label == int(label) else repr(label)


def candidates_of(
    options: ModelOptions, window: Window, layout: str, rows: int, features: int, targets: int
) -> list[LaneSpec]:
    """One for each combination, in the order of the user's lists."""
    found, learner = [], learner_named(options.solver)
    for loss in options.losses:
        scale = RowScale(options, window, loss, rows, features, targets)
        found += learner.candidates.of(options, scale, _base(options, loss, scale.shape, layout))
    return found


def _base(options: ModelOptions, loss: str, shape: float, layout: str) -> LaneSpec:
    return LaneSpec(
        options.solver,
        loss,
        shape,
        EUCLID,
        0.0,
        Target(""),
        options.seed,
        options.batch,
        options.intercept,
        layout,
        None,
    )


def lanes_of(candidates: Sequence[LaneSpec], targets: Sequence[Target]) -> list[LaneSpec]:
    """Candidate by candidate, a lane for each target."""
    return [replace(candidate, target=target) for candidate in candidates for target in targets]


def with_bases(lanes: Sequence[LaneSpec], window: Window) -> list[LaneSpec]:
    """Lanes that start from the best constant score, where their loss wants that."""
    sample = slice(0, min(window.rows, _SAMPLE_ROWS))
    based = []
    for spec in lanes:
        loss, base = LOSSES[spec.loss], 0.0
        if loss.starts_at_base:
            labels = labels_for(window.labels[sample], spec)
            base = loss.base(labels, window.weights[sample], window.offsets[sample], spec.shape)
        based.append(replace(spec, base=base))
    return based


def warm_up(options: ModelOptions, layout: str) -> None:
    """Load, or compile, the loops of the first step, as far as they are known without any rows."""
    learner, targets = learner_named(options.solver), len(targets_of(options))
    for loss in options.losses:
        for spec in learner.candidates.known_loops(options, _base(options, loss, 0.0, layout)):
            lanes = learner.candidates.count(options, targets) * targets
            learner.warm_up(spec, min(learner.most_lanes(spec.norm), lanes))


class RowScale:
    """How large rows, losses and labels are, from a sample of rows in visiting order, which is random."""

    def __init__(
        self, options: ModelOptions, window: Window, loss: str, rows: int, features: int, targets: int
    ) -> None:
        self._options, self._window = options, window
        self.loss, self.rows, self.features, self.targets = LOSSES[loss], rows, features, targets
        self._sample = slice(0, min(window.rows, _SAMPLE_ROWS))
        self._labels = window.labels[self._sample]
        self.label_unit = self.loss.unit(self._labels)
        self.shape = self.loss.shape(self._labels, options.loss_parameter(loss))

    def mean_squared_norm(self, norm: PNorm) -> float:
        """‖x‖_q², the constant of the intercept included."""
        norms = np.empty(self._sample.stop)
        window = self._window
        squared_norms(window.starts[self._sample], window.stops[self._sample], window.values, norm.q, norms)
        return float(np.mean(norms)) + self._options.intercept**2

    def mean_loss_at_zero(self) -> float:
        """The mean loss of weights that are zero; of several labels the largest."""
        labels = self._labels if self._labels.ndim == 2 else self._labels[:, np.newaxis]
        if self._options.multiclass:
            labels = np.ones_like(labels)  # to each class a row is +1 or -1, and the losses of classes are symmetric
        offsets: Any = self._window.offsets[self._sample, np.newaxis] if self._window.offsets.size else 0.0
        values = self.loss.values(offsets + np.array(self._bases(labels)), labels, self.shape)
        weights: Any = self._window.weights[self._sample, np.newaxis] if self._window.weights.size else 1.0
        return float(np.mean(values * weights, axis=0).max())

    def _bases(self, labels: NDArray[np.float64]) -> list[float]:
        if not self.loss.starts_at_base:
            return [0.0] * labels.shape[1]
        weights, offsets = self._window.weights[self._sample], self._window.offsets[self._sample]
        return [self.loss.base(column, weights, offsets, self.shape) for column in labels.T]


# Entering a race: the first candidates, candidates with another sigma, and lanes of classes that joined later.


def enter_first(race: Race, options: ModelOptions, window: Window, layout: str, rows: int, features: int) -> None:
    """Lanes for each candidate and target. An epoch has `rows` rows."""
    _begin(race, options, window, layout, rows, features, targets_of(options), 0)
    race.lanes.begin(with_bases(lanes_of(race.candidates, race.targets), window))


def enter_other_sigmas(
    race: Race, options: ModelOptions, window: Window, layout: str, rows: int, rows_done: int
) -> LaneSpec:
    """The leading model continues with the sigma that the options have by now; where sigma is to be found, in another
    race of candidates that begin with its weights. Returns the leader before."""
    lanes, leader = race.leading_lanes(), race.lanes.specs[race.leading_lanes().start]
    options = learner_named(leader.learner).candidates.narrowed(options, leader)
    _begin(race, options, window, layout, rows, race.lanes.features, race.targets, rows_done)
    specs = lanes_of(race.candidates, race.targets)
    sources = [lanes.start + lane % len(lanes) for lane in range(len(specs))]
    specs = [replace(spec, base=race.lanes.specs[source].base) for spec, source in zip(specs, sources, strict=True)]
    race.lanes.continue_from(specs, sources)
    race.candidates = list(race.lanes.specs[:: len(lanes)])
    return leader


def _begin(
    race: Race, options: ModelOptions, window: Window, layout: str, rows: int, features: int,
    targets: Sequence[Target], rows_done: int,
) -> None:  # fmt: skip
    candidates = candidates_of(options, window, layout, rows, features, len(targets))
    searching = learner_named(options.solver).candidates.searches(options)
    judges_on = options.multiclass or (len(candidates) > 1 and not searching)
    race.begin(candidates, targets, heats_for(len(candidates), rows, searching, features), judges_on, rows_done)


def take_in_growth(race: Race, options: ModelOptions, layout: str) -> None:
    """Rows are of this layout from now on (sparse, if columns have come that rows seldom have), and there may be new
    classes: their lanes learn from now on, for each candidate that is left."""
    race.lanes.relayout(layout)
    race.candidates = [replace(candidate, layout=layout) for candidate in race.candidates]
    known, targets = len(race.targets), targets_of(options)
    if len(targets) <= known:
        return
    joined = 1 + max(target.joined for target in race.targets)
    race.targets += [replace(target, joined=joined) for target in targets[known:]]
    left = race.progress.left
    specs = lanes_of([race.candidates[number] for number in left], race.targets)
    kept = [
        place * known + number if number < known else None
        for place in range(len(left))
        for number in range(len(race.targets))
    ]
    race.lanes.join(specs, kept)
