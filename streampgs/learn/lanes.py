"""All models of a run, next to each other: in groups that a loop takes together, each group stepping on the same rows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import decode, encode, require
from streampgs.base.errors import Diverged
from streampgs.base.stage import Bundle
from streampgs.learn import state as states
from streampgs.learn.averaging import Tallies
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import (
    Certified,
    ChangesSteps,
    Converges,
    HoldsOut,
    StepChange,
    Stops,
    lane_spec,
    learned,
    learner_named,
)
from streampgs.learn.state import State
from streampgs.losses import Vector

_MOST_LANES = 1 << 20
_MOST_STEPS = 1 << 52  # the sum over all workers must not overflow
_PART = 1 << 18  # coordinates that are hashed together

Places = list[tuple[State, int]]


class Group:
    """Lanes that one call of a learner steps together."""

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        self.learner = learner_named(specs[0].learner)(specs)
        self.state: State = {}
        """Another object after every change that is not a step: copies for other workers are made again."""

    def begin_from(self, places: Places, coordinates: int) -> None:
        """Columns that only fill the loop's width repeat the last lane."""
        filled = places + places[-1:] * (self.learner.width - len(places))
        self.state = states.gather(self.learner.fields, filled, coordinates)

    def has_stopped(self, column: int) -> bool:
        """Whether a lane has diverged and does not learn any more, although its numbers are finite."""
        return isinstance(self.learner, Stops) and bool(self.learner.stopped(self.state)[column])


class Lanes:
    """A lane has a number, in the order of the specs; its group is an implementation detail."""

    def __init__(self, specs: Sequence[LaneSpec] = (), features: int = 0, name: str = "lanes") -> None:
        self.name = name
        self.specs: tuple[LaneSpec, ...] = ()
        self.groups: list[Group] = []
        self.features = features
        self.constants: list[float] = []
        """Added to the scores that each lane's weights give, in the unit of scaled labels."""
        self._places: list[tuple[int, int]] = []
        self.begin(specs)

    def begin(self, specs: Sequence[LaneSpec]) -> None:
        """Lanes of these specs before their first step."""
        self._set(specs, [self._new_group(specs, numbers) for numbers in _grouped(specs)])

    def _new_group(self, specs: Sequence[LaneSpec], numbers: Sequence[int]) -> Group:
        group = Group([specs[number] for number in numbers])
        group.state = group.learner.init(self.features + 1)
        return group

    def _set(self, specs: Sequence[LaneSpec], groups: list[Group], constants: Sequence[float] = ()) -> None:
        self.specs, self.groups = tuple(specs), groups
        self.constants = list(constants) or [0.0] * len(specs)
        places = {}
        for group, numbers in enumerate(_grouped(specs)):
            places.update({number: (group, column) for column, number in enumerate(numbers)})
        self._places = [places[number] for number in range(len(specs))]

    def __len__(self) -> int:
        return len(self.specs)

    @property
    def steps(self) -> int:
        """Of the lanes that the run started with."""
        return int(self.groups[0].state["steps"]) if self.groups else 0

    # Changes between steps.

    def grow(self, features: int) -> None:
        """Make room for more features; the lanes have not seen them, so nothing else changes."""
        if features <= self.features:
            return
        for group in self.groups:
            sizes = states.sizes_of(features + 1, group.learner.width)
            group.state = states.grow(group.learner.fields, group.state, sizes)
        self.features = features

    def keep(self, lanes: Sequence[int]) -> None:
        """Drop all lanes but these, which stay the same to the last bit."""
        self._gather_from(self, [self.specs[lane] for lane in lanes], lanes)

    def _gather_from(
        self, other: Lanes, specs: Sequence[LaneSpec], lanes: Sequence[int], constants: Sequence[float] = ()
    ) -> None:
        """Lanes of these specs, each with the state of one of the other lanes, which may be these."""
        groups = []
        for numbers in _grouped(specs):
            groups.append(Group([specs[number] for number in numbers]))
            groups[-1].begin_from([other._state_of(lanes[number]) for number in numbers], self.features + 1)
        self._set(specs, groups, constants)

    def place(self, lane: int) -> tuple[Group, int]:
        """Its group, and its column there."""
        group, column = self._places[lane]
        return self.groups[group], column

    def _state_of(self, lane: int) -> tuple[State, int]:
        group, column = self.place(lane)
        return group.state, column

    def join(self, specs: Sequence[LaneSpec], kept: Sequence[int | None]) -> None:
        """Add lanes that begin now; `kept`: for each spec the present lane that continues, or None. The new lanes' targets
        have joined later, and so are in groups of their own."""
        groups = []
        for numbers in _grouped(specs):
            lane = kept[numbers[0]]
            groups.append(self._new_group(specs, numbers) if lane is None else self.groups[self._places[lane][0]])
        self._set(specs, groups, [0.0 if lane is None else self.constants[lane] for lane in kept])

    def relayout(self, layout: str) -> None:
        """Continue with rows of this layout."""
        self._respecify([replace(spec, layout=layout) for spec in self.specs])

    def _respecify(self, specs: Sequence[LaneSpec]) -> None:
        """The same lanes, with specs that need the same state."""
        if tuple(specs) != self.specs:
            self._gather_from(self, specs, range(len(self)), self.constants)

    def begin_as(self, other: Lanes) -> None:
        """With copies of the lanes of others."""
        self.features = other.features
        self._gather_from(other, other.specs, range(len(other)), other.constants)

    def continue_from(self, specs: Sequence[LaneSpec], lanes: Sequence[int]) -> None:
        """Replace the lanes by others, each with the weights and at the step of one of the present lanes; averages and
        certificates begin again."""
        continued = []
        for spec, lane in zip(specs, lanes, strict=True):
            steps = int(self._state_of(lane)[0]["steps"])
            before = self.specs[lane]
            continued.append(learner_named(spec.learner).continuation.continued(spec, before, steps))
        self._gather_from(self, continued, lanes)
        self.restart_averages()

    def restart_averages(self) -> None:
        for group in self.groups:
            group.state = dict(group.state)
            group.learner.restart_averages(group.state)

    def fade_averages(self, steps: int) -> None:
        """The steps so far count less in the averages from now on, because so many follow; averages are kept whole."""
        for group in self.groups:
            group.state = dict(group.state)
            group.learner.fade_averages(group.state, steps)
        self.keep_averages_whole()

    def change_steps(self, change: StepChange) -> None:
        """Continue with other steps; the weights do not change."""
        steps = [int(self._state_of(lane)[0]["steps"]) for lane in range(len(self))]
        for group in self.groups:
            group.state = dict(group.state)
            if isinstance(group.learner, ChangesSteps):
                group.learner.change_steps(group.state, change)
        pairs = zip(self.specs, steps, strict=True)
        self._respecify([learner_named(s.learner).continuation.with_steps(s, change, taken) for s, taken in pairs])

    def keep_averages_whole(self) -> None:
        """From now on averages are of all steps since they were restarted or faded."""
        self._respecify([learner_named(spec.learner).continuation.whole(spec) for spec in self.specs])

    # Results.

    def weights(self, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """All weights, the intercept's coordinate first, or those of some coordinates. NaN if the lane has diverged."""
        group, column = self.place(lane)
        found = group.learner.weights(group.state, column, at)
        return np.full(len(found), math.nan) if group.has_stopped(column) else found

    def predictor(self, lane: int) -> tuple[Vector, float]:
        """The weights of the features and the constant that predict in the unit of the labels."""
        weights, spec = self.weights(lane), self.specs[lane]
        weights = weights if spec.scale == 1.0 else weights * spec.scale
        constant = float(weights[0]) * spec.intercept + spec.base + self.constants[lane] * spec.scale
        return weights[1:], constant

    def certificate(self, lane: int) -> float | None:
        """In the unit of the labels; None if there is none, or none yet."""
        group, column = self.place(lane)
        found = group.learner.certificate(group.state, column) if isinstance(group.learner, Certified) else None
        return self.specs[lane].in_label_units(found) if found is not None and math.isfinite(found) else None

    def tallies(self, lane: int) -> Tallies:
        group, column = self.place(lane)
        return group.learner.tallies(group.state, column)

    def digest(self) -> str:
        """The SHA-256 of what all lanes learned, one after the other."""
        digest = hashlib.sha256()
        for group, column in map(self.place, range(len(self))):
            vector = learned(group.learner, group.state, column)
            for first in range(0, len(vector), _PART):
                digest.update(vector[first : first + _PART].tobytes())
        return digest.hexdigest()

    def relative_gap(self) -> float | None:
        """The largest of all lanes; None if one is not known."""
        gaps = [
            group.learner.relative_gap(group.state, lane) if isinstance(group.learner, Certified) else None
            for group in self.groups
            for lane in range(len(group.learner.specs))
        ]
        known = [gap for gap in gaps if gap is not None]
        return max(known) if known and len(known) == len(gaps) else None

    def have_converged(self) -> bool:
        """Whether more epochs over the same rows would hardly change any lane."""
        return all(isinstance(g.learner, Converges) and g.learner.has_converged(g.state) for g in self.groups)

    def diverged_places(self) -> set[int]:
        """The places of the candidates with a lane that has diverged."""
        places = enumerate(map(self.place, range(len(self))))
        return {lane // self._targets for lane, (group, column) in places if group.has_stopped(column)}

    @property
    def _targets(self) -> int:
        return len({spec.target for spec in self.specs}) or 1

    def refuse_stopped(self) -> None:
        """If all candidates have diverged."""
        if len(self) and len(self.diverged_places()) * self._targets == len(self):
            raise Diverged(
                f"the numbers left the range of training before step {self.steps:,}",
                self.groups[0].learner.remedy_of_divergence,
            )

    # Rows that are held out to compare candidates.

    def hold_out(self) -> bool:
        """Whether rows are held out now."""
        return any(isinstance(g.learner, HoldsOut) and g.learner.holds_out(g.state) for g in self.groups)

    def release_rows(self) -> None:
        """Train on the rows that were held out, too."""
        for group in self.groups:
            if isinstance(group.learner, HoldsOut):
                group.learner.release_rows(group.state)

    # Memory.

    @property
    def nbytes(self) -> int:
        """The size of the arrays that grow with the features."""
        return (self.features + 1) * self.bytes_per_feature()

    def bytes_per_feature(self, workers: int = 1) -> int:
        """What one feature takes in the state of all lanes."""
        return sum(states.bytes_per_feature(g.learner.fields, g.learner.width, workers) for g in self.groups)

    # The section of the checkpoint.

    def state(self) -> Bundle:
        arrays = {}
        for number, group in enumerate(self.groups):
            own = states.arrays_to_save(group.learner.fields, group.state, len(group.learner.specs))
            arrays.update({f"{number}.{name}": array for name, array in own.items()})
        return Bundle(
            {"specs": [encode(spec) for spec in self.specs], "features": self.features, "constants": self.constants},
            arrays,
        )

    def restore(self, bundle: Bundle) -> None:
        specs, features = [lane_spec(record) for record in bundle.values["specs"]], bundle.values["features"]
        require(0 < len(specs) <= _MOST_LANES, f"{len(specs)} models")
        require(type(features) is int and features >= 0, f"{features!r:.50} features")
        groups = _restored(specs, features, bundle.arrays)
        self.features = features
        constants = decode(list[float], bundle.values["constants"])
        require(len(constants) == len(specs), f"{len(constants)} constants of {len(specs)} models")
        require(all(map(math.isfinite, constants)), "constants that are not finite")
        self._set(specs, groups, constants)


def _restored(specs: Sequence[LaneSpec], features: int, arrays: Mapping[str, NDArray[Any]]) -> list[Group]:
    """The groups of these lanes, from the arrays of a checkpoint."""
    groups: list[Group] = []
    taken: set[str] = set()
    for number, lanes in enumerate(_grouped(specs)):
        group = Group([specs[lane] for lane in lanes])
        own = {name: f"{number}.{name}" for name in group.learner.fields}
        require(set(own.values()) <= arrays.keys(), f"arrays of {len(groups)} groups only")
        saved = {name: arrays[full] for name, full in own.items()}
        state = states.from_saved(group.learner.fields, saved, states.sizes_of(features + 1, len(lanes)))
        require(int(state["steps"]) <= _MOST_STEPS, f"{state['steps']} steps")
        if len(lanes) == group.learner.width and not any(field.pack for field in group.learner.fields.values()):
            group.state = state  # large states are not copied
        else:
            group.begin_from([(state, column) for column in range(len(lanes))], features + 1)
        group.learner.check(group.state)
        groups.append(group)
        taken |= set(own.values())
    require(taken == arrays.keys(), f"arrays of no model: {sorted(arrays.keys() - taken)}")
    return groups


def _grouped(specs: Sequence[LaneSpec]) -> list[list[int]]:
    """The numbers of the lanes of each group: lanes with everything in common, as many as the widest loop takes."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, spec in enumerate(specs):
        alike.setdefault(spec.group, []).append(number)
    groups = []
    for numbers in alike.values():
        most = learner_named(specs[numbers[0]].learner).widths(specs[numbers[0]].norm)[-1]
        groups += [numbers[first : first + most] for first in range(0, len(numbers), most)]
    return groups
