"""Which models a run trains: every combination of the options that the user listed. Values that the user left open are
found from the rows of the first window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.learner import learner_named
from streampgs.learn.lines import SAMPLE_ROWS, Scale
from streampgs.learn.norms import EUCLID
from streampgs.losses import LOSSES
from streampgs.options import ModelOptions
from streampgs.reading.window import Window
from streampgs.selection.judge import labels_for
from streampgs.selection.race import Race, heats_for


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
        scale = Scale(options, window, loss, rows, features, targets)
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
    sample = slice(SAMPLE_ROWS)
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
