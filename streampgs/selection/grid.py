"""Which models a run trains: every combination of the options that the user listed. Values that the user left open are
found from the rows of the first window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from streampgs.data.feature_maps import FrequencyScale, Numbering
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import learner_named, width_for
from streampgs.learn.learner import warm_up as warm_up_learner
from streampgs.learn.lines import JudgedOn, LabelSample, Scale
from streampgs.learn.norms import EUCLID
from streampgs.learn.pgs_options import WHOLE_LADDER
from streampgs.losses import LOSSES, Vector
from streampgs.options.commands import ModelOptions, default_epochs
from streampgs.options.fields import values_of
from streampgs.options.solvers import SOLVERS, learner_for
from streampgs.reading.window import Window
from streampgs.selection.cross_validation import MOST_CROSS_VALIDATED, CrossValidation, Told, uncertified, untold
from streampgs.selection.frequency import best_scale, may_scale, warm_up_scales
from streampgs.selection.judge import Judgement, is_one_of_classes, labels_for, warm_up_judge
from streampgs.selection.race import Race

_WORK_TO_COMPARE = 1 << 25
"""Entries times lanes times epochs, to compare two ways to use the columns: some tenths of a second."""


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
    options: ModelOptions, window: Rows, layout: str, rows: int, features: int, judged_on: JudgedOn = "nothing"
) -> list[LaneSpec]:
    """One for each combination, in the order of the user's lists."""
    found, learner = [], learner_named(learner_for(options))
    for loss in options.losses:
        scale = Scale(options, window, loss, rows, features, judged_on)
        found += learner.candidates.of(options, scale, _plain(options, loss, scale.shape, layout))
    return found


def _plain(options: ModelOptions, loss: str, shape: float, layout: str) -> LaneSpec:
    """Without the numbers that the solver chooses."""
    constant = 0.0 if options.intercept == "auto" else options.intercept
    return LaneSpec(
        learner_for(options), loss, shape, EUCLID, 0.0, Target(""), options.seed, options.batch, constant, layout, None
    )


def lanes_of(candidates: Sequence[LaneSpec], targets: Sequence[Target]) -> list[LaneSpec]:
    """Candidate by candidate, a lane for each target."""
    return [replace(candidate, target=target) for candidate in candidates for target in targets]


def adapted(lanes: Sequence[LaneSpec], window: Rows) -> list[LaneSpec]:
    """The lanes with the unit and the base of their labels."""
    sample, found = LabelSample(window), []
    for spec in lanes:
        loss, labels = LOSSES[spec.loss], labels_for(sample.labels, spec)
        scale, base = sample.scale_and_base(loss, labels, spec.shape, spec.intercept != 0.0)
        found.append(replace(spec, base=base, scale=scale, shape=loss.scaled_shape(spec.shape, scale)))
    return found


def warm_up(options: ModelOptions, layout: str, rows: int) -> None:
    """Load, or compile, the loops of training and judging, as far as they are known without any rows but their number."""
    learner, targets = learner_named(learner_for(options)), len(targets_of(options))
    for loss in options.losses:
        for spec in learner.candidates.known_loops(options, _plain(options, loss, 0.0, layout)):
            most = learner.widths(spec.norm)[-1]
            counts = (min(most, count * targets) for count in _fields(options, rows))
            for lanes in {width_for(learner, spec.norm, count): count for count in counts}.values():
                warm_up_learner(learner, spec, lanes)
            warm_up_judge(spec)
    if may_scale(options, layout):
        warm_up_scales()


def warm_up_again(lanes: Lanes) -> None:
    """The loops of lanes that continue."""
    for group in lanes.groups:
        warm_up_learner(type(group.learner), group.learner.spec, len(group.learner.specs))
        warm_up_judge(group.learner.spec)


def _fields(options: ModelOptions, rows: int) -> set[int]:
    """How many candidates there are at a time, until the best one is left."""
    candidates = learner_named(learner_for(options)).candidates
    count, searches = candidates.count(options), candidates.searches(options)
    if searches and rows <= MOST_CROSS_VALIDATED:
        return {1, max(count, len(WHOLE_LADDER))}
    return {1, count} if searches else {count}


# Entering a race: the first candidates, candidates with another sigma, and lanes of classes that joined later.


def enter_first(
    race: Race,
    options: ModelOptions,
    window: Window,
    layout: str,
    rows: int,
    features: int,
    check: Callable[[Sequence[LaneSpec], int], object] | None = None,
    told: Told = untold,
    expected_features: int = 0,
    numbering: Numbering | None = None,
) -> FrequencyScale | None:
    """Lanes for each candidate and target, which train on rows with the returned scales of features. An epoch has `rows` rows.
    `check`: called with the lanes that are in memory together and their features, before they are. `told`: with each share of
    a search that has been done. `expected_features`: how many there may be later. `numbering`: gave the features of the window
    their numbers."""
    targets = targets_of(options)

    def candidates_for(sample: int, judged_on: JudgedOn) -> list[LaneSpec]:
        of_sample = _as_for(sample, rows, options)
        return candidates_of(of_sample, window, layout, sample, features, judged_on)

    search = _search(race, options, window, features, targets, candidates_for, told)
    candidates = candidates_for(rows, _judged_on(search))
    specs = lanes_of(candidates, targets)
    if check is not None:
        check(specs if search is None else specs[: len(targets)], max(features, expected_features))
        if search is not None:
            check(lanes_of(candidates[: search.at_once], search.targets), search.features)
    _begin(race, options, candidates, targets, 0)
    specs, scale = adapted(specs, window), None
    if search is not None:
        tried = adapted(lanes_of(candidates_for(search.sampled or rows, _judged_on(search)), search.targets), window)
        best = _best_of(race, search, tried)
        specs = specs[best * len(targets) : (best + 1) * len(targets)]
        if may_scale(options, layout):
            count = len(search.targets)
            scale = best_scale(
                search, tried[best * count : (best + 1) * count], numbering, _compared_by_loss(search, tried)
            )
    race.lanes.begin(specs)
    return scale


def enter_other_sigmas(
    race: Race, options: ModelOptions, window: Window, layout: str, rows: int, rows_done: int, told: Told = untold
) -> LaneSpec:
    """The leading model continues with the sigma that the options have by now; where sigma is to be found, the best one is
    searched for again, by candidates that begin with its weights. Returns the leader before."""
    lanes, leader = race.leading_lanes(), race.lanes.specs[race.leading_lanes().start]
    options = learner_named(leader.learner).candidates.narrowed(options, leader)
    targets, features = race.targets, race.lanes.features
    before = race.lanes.specs[lanes.start : lanes.stop]

    def candidates_for(sample: int, judged_on: JudgedOn) -> list[LaneSpec]:
        of_sample = _as_for(sample, rows, options)
        found = candidates_of(of_sample, window, layout, sample, features, judged_on)
        return [replace(candidate, intercept=leader.intercept) for candidate in found]

    def in_known_units(candidates: Sequence[LaneSpec], targets: Sequence[Target]) -> list[LaneSpec]:
        pairs = [(spec, before[race.targets.index(spec.target)]) for spec in lanes_of(candidates, targets)]
        return [replace(spec, base=known.base, scale=known.scale, shape=known.shape) for spec, known in pairs]

    search = _search(race, options, window, features, targets, candidates_for, told)
    candidates = candidates_for(rows, _judged_on(search))
    _begin(race, options, candidates, targets, rows_done)
    specs = in_known_units(candidates, targets)
    if search is not None:
        tried = candidates_for(search.sampled or rows, _judged_on(search))
        best = _best_of(race, search, in_known_units(tried, search.targets))
        specs = specs[best * len(targets) : (best + 1) * len(targets)]
    race.lanes.continue_from(specs, [lanes.start + lane % len(lanes) for lane in range(len(specs))])
    for place, number in enumerate(race.progress.left):
        race.candidates[number] = replace(race.lanes.specs[place * len(lanes)], target=Target(""))
    return leader


def searched(options: ModelOptions, window: Window, layout: str) -> tuple[float, float]:
    """The loss of the best candidate, on rows of the window that it was not trained on, and its sigma for all of them."""
    rows, targets, features = len(window), targets_of(options), window.features

    def candidates_for(sample: int, judged_on: JudgedOn) -> list[LaneSpec]:
        return candidates_of(_as_for(sample, rows, options), window, layout, sample, features, judged_on)

    search = _search(Race(Lanes()), options, window, features, targets, candidates_for, untold, _WORK_TO_COMPARE)
    assert search is not None, "the value of sigma is not known"
    tried = candidates_for(search.sampled or rows, _judged_on(search))
    lanes = adapted(lanes_of(tried, search.targets), window)
    by_loss = _compared_by_loss(search, lanes)
    found = {at: one.loss if by_loss else one.merit for at, one in _finalists(search, lanes).items()}
    best = min(found, key=lambda at: found[at])
    return found[best], tried[best].sigma * (search.sampled or rows) / rows


def scores_by_halves(options: ModelOptions, window: Window, layout: str, sigma: float) -> tuple[Vector, Vector]:
    """The scores of the rows, by models that were trained on the other half, and the labels: a line for each target, in the
    unit of scaled labels. `sigma`: for all rows."""
    targets, half, features = targets_of(options), max(1, len(window) // 2), window.features
    options = replace(options, sigma=sigma * len(window) / half)
    search = CrossValidation(window, None, targets, features, options.seed, default_epochs(half))
    if options.multiclass:
        search = search.of_frequent_classes()
    specs = lanes_of(candidates_of(options, window, layout, half, features), search.targets)
    return search.scores_by_halves(adapted(specs, window))


def _begin(
    race: Race, options: ModelOptions, candidates: Sequence[LaneSpec], targets: Sequence[Target], rows_done: int
) -> None:
    searching = learner_named(learner_for(options)).candidates.searches(options)
    race.begin(candidates, targets, options.multiclass or (len(candidates) > 1 and not searching), rows_done)


def _search(
    race: Race, options: ModelOptions, window: Window, features: int, targets: Sequence[Target],
    candidates_for: Callable[[int, JudgedOn], list[LaneSpec]], told: Told, work: int | None = None,
) -> CrossValidation | None:  # fmt: skip
    """None where nothing is searched for. `work`: what it may cost; None: about as much as the training."""
    candidates, needs = learner_named(learner_for(options)).candidates, SOLVERS[options.solver].needs
    if not candidates.searches(options):
        return None
    features = max(features, window.features)
    search = CrossValidation(window, race.validation, targets, features, options.seed, told=told)
    ladders: dict[JudgedOn, int] = {on: len(candidates_for(len(window), on)) for on in ("table", "sample")}
    search = search.planned(options, needs.passes, ladders, work)
    of_feature = _lane_bytes(options)
    search = replace(search, lane_bytes=max(1, of_feature))
    return search.narrowed() if of_feature else search


def _as_for(sample: int, rows: int, options: ModelOptions) -> ModelOptions:
    """The options of a table of `rows` rows for a sample of it: the best σ is inversely proportional to the rows."""
    if options.sigma == "auto" or sample == rows:
        return options
    return replace(options, sigma=tuple(float(sigma) * rows / sample for sigma in values_of(options.sigma)))


def _judged_on(search: CrossValidation | None) -> JudgedOn:
    if search is None:
        return "nothing"
    return "table" if search.sampled is None else "sample"


def _lane_bytes(options: ModelOptions) -> int:
    """The memory of a feature in the state of a lane."""
    candidates = learner_named(learner_for(options)).candidates
    specs = candidates.known_loops(options, _plain(options, options.losses[0], 0.0, "sparse"))
    return max(Lanes([uncertified(spec)]).bytes_per_feature() for spec in specs)


def _best_of(race: Race, search: CrossValidation, tried: Sequence[LaneSpec]) -> int:
    """The number of the best candidate; the race is over."""
    by_loss = _compared_by_loss(search, tried)
    return race.settle(_finalists(search, tried), search.judged, by_loss)


def _finalists(search: CrossValidation, tried: Sequence[LaneSpec]) -> dict[int, Judgement]:
    count = len(search.targets)
    candidates = [tried[first : first + count] for first in range(0, len(tried), count)]
    return search.finalists(candidates, _compared_by_loss(search, tried))


def _compared_by_loss(search: CrossValidation, tried: Sequence[LaneSpec]) -> bool:
    # Candidates have made so many epochs over a small table that the loss itself tells which scale of the scores is right.
    return search.sampled is None and is_one_of_classes(spec.loss for spec in tried)


def take_in_growth(race: Race, options: ModelOptions, layout: str) -> list[int | None] | None:
    """Rows are of this layout from now on (sparse, if columns have come that rows seldom have), and there may be new
    classes: their lanes learn from now on, for each candidate that is left. Then: for each lane the one that it continues,
    or None."""
    race.lanes.relayout(layout)
    race.candidates = [replace(candidate, layout=layout) for candidate in race.candidates]
    known, targets = len(race.targets), targets_of(options)
    if len(targets) <= known:
        return None
    joined = 1 + max(target.joined for target in race.targets)
    race.targets += [replace(target, joined=joined) for target in targets[known:]]
    left = race.progress.left
    rarest = min(spec.base for spec in race.lanes.specs)  # a new class is rare at first
    new = [replace(spec, base=rarest) for spec in lanes_of([race.candidates[number] for number in left], race.targets)]
    kept = [
        place * known + number if number < known else None
        for place in range(len(left))
        for number in range(len(race.targets))
    ]
    specs = [spec if lane is None else race.lanes.specs[lane] for spec, lane in zip(new, kept, strict=True)]
    race.lanes.join(specs, kept)
    return kept
