"""Entering a race: the first candidates, candidates with another sigma, and lanes of classes that joined later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.learner import learner_named
from streampgs.options import ModelOptions
from streampgs.reading.window import Window
from streampgs.selection.grid import candidates_of, lanes_of, targets_of, with_bases
from streampgs.selection.race import Race, heats_for


def enter_first(race: Race, options: ModelOptions, window: Window, layout: str, rows: int, features: int) -> None:
    """Lanes for each candidate and target; values that the user left open are found from the rows of the first window.
    An epoch has `rows` rows."""
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
