"""All models of a run, side by side: in groups that the loops can take together, each group stepping on the same rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.learn.averaging import Tallies
from streampgs.learn.pgs import Pgs, PgsSettings, Rows, Vector, bytes_per_feature, most_lanes


class Lanes:
    """A lane has a number, in the order in which the settings were given; which group it is in is nobody's business."""

    def __init__(self, settings: Sequence[PgsSettings]) -> None:
        self._join([Pgs(*group) for group in _grouped(settings)], settings)

    def _join(self, groups: list[Pgs], settings: Sequence[PgsSettings]) -> None:
        self.groups = groups
        self.settings = tuple(settings)
        self._places = _places(settings)

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def steps(self) -> int:
        return self.groups[0].steps

    @property
    def features(self) -> int:
        return self.groups[0].features

    @property
    def nbytes(self) -> int:
        return sum(group.nbytes for group in self.groups)

    def grow(self, features: int) -> None:
        for group in self.groups:
            group.grow(features)

    def advance(self, rows: Rows, first: int, stop: int, end: int | None = None) -> int:
        """As of a group: all reach the row that the first one does, whose last round may take it further."""
        for group in self.groups:
            stop = group.advance(rows, first, stop, end)
        return stop

    def weights(self, lane: int, coordinates: NDArray[np.int64] | None = None) -> Vector:
        group, column = self._places[lane]
        return self.groups[group].weights(column, coordinates)

    def gap(self, lane: int) -> float:
        group, column = self._places[lane]
        return self.groups[group].gap(column)

    def tallies(self, lane: int) -> Tallies:
        group, column = self._places[lane]
        return self.groups[group].tallies(column)

    def dual_sha256(self) -> str:
        """Of λ of all lanes, one after the other."""
        digest = hashlib.sha256()
        for group, column in self._places:
            for part in self.groups[group].dual_bytes(column):
                digest.update(part)
        return digest.hexdigest()

    def with_lanes(self, kept: Sequence[int]) -> Lanes:
        """The lanes of these numbers only, as they are to the last bit."""
        fewer = Lanes([self.settings[lane] for lane in kept])
        fewer.grow(self.features)
        for lane, (group, column) in zip(kept, fewer._places, strict=True):
            own_group, own_column = self._places[lane]
            fewer.groups[group].take_over(column, self.groups[own_group], own_column)
        return fewer

    def joined_by(self, settings: Sequence[PgsSettings], kept: Sequence[int | None]) -> Lanes:
        """These lanes, in their groups as they are, beside new ones: of each of the settings which lane goes on, or None.
        The new ones' settings tell that they joined later, and so keep them out of the others' groups."""
        groups = []
        for numbers in _order(settings):
            lane = kept[numbers[0]]
            groups.append(Pgs(*[settings[n] for n in numbers]) if lane is None else self.groups[self._places[lane][0]])
            groups[-1].grow(self.features)
        lanes = Lanes.__new__(Lanes)
        lanes._join(groups, settings)
        return lanes

    def with_layout(self, layout: str) -> Lanes:
        """The same lanes for rows that are laid out in this way."""
        if all(lane.layout == layout for lane in self.settings):
            return self
        return Lanes.from_record([replace(lane, layout=layout) for lane in self.settings], *self.to_record())

    def begin_averages_anew(self) -> None:
        for group in self.groups:
            group.begin_averages_anew()

    def started_from(self, settings: Sequence[PgsSettings], lanes: Sequence[int]) -> Lanes:
        """Models of other σ, each with the duals, the weights and at the step of one of these lanes. What the regularizer
        weighed until now it weighs on: (t + t0)σ, by which λ is divided, goes on from where it is, and grows by the new σ
        a step."""
        others = Lanes([self._continued(one, lane) for one, lane in zip(settings, lanes, strict=True)])
        others.grow(self.features)
        for group, numbers in zip(others.groups, _order(others.settings), strict=True):
            places = [self._places[lanes[number]] for number in numbers]
            group.start_from([(self.groups[own], column) for own, column in places])
        return others

    def _continued(self, settings: PgsSettings, lane: int) -> PgsSettings:
        before, steps = self.settings[lane], self.groups[self._places[lane][0]].steps
        return replace(settings, t0=(steps + before.t0) * before.sigma / settings.sigma - steps)

    def to_record(self) -> tuple[dict[str, Vector], list[dict[str, Any]]]:
        """The vectors are views: to be written before the next step."""
        vectors, numbers = {}, []
        for number, group in enumerate(self.groups):
            own, counts = group.to_record()
            vectors.update({_name_in_group(name, number): vector for name, vector in own.items()})
            numbers.append(counts)
        return vectors, numbers

    @staticmethod
    def from_record(
        settings: Sequence[PgsSettings], vectors: dict[str, Vector], numbers: list[dict[str, Any]]
    ) -> Lanes:
        groups = []
        for number, (group, counts) in enumerate(zip(_grouped(settings), numbers, strict=True)):
            suffix = _name_in_group("", number)
            own = {name.removesuffix(suffix): vector for name, vector in vectors.items() if _group_of(name) == number}
            groups.append(Pgs.from_record(group, own, counts))
        lanes = Lanes.__new__(Lanes)
        lanes._join(groups, settings)
        return lanes


def _name_in_group(name: str, group: int) -> str:
    return f"{name}@{group}" if group else name


def _group_of(name: str) -> int:
    return int(name.partition("@")[2] or 0)


def _order(settings: Sequence[PgsSettings]) -> list[list[int]]:
    """The numbers of the lanes of each group: lanes of one kind together, as many as the widest loop takes."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number, lane in enumerate(settings):
        kinds.setdefault(lane.kind, []).append(number)
    groups = []
    for numbers in kinds.values():
        most = most_lanes(settings[numbers[0]].p)
        groups += [numbers[first : first + most] for first in range(0, len(numbers), most)]
    return groups


def _grouped(settings: Sequence[PgsSettings]) -> list[list[PgsSettings]]:
    return [[settings[number] for number in group] for group in _order(settings)]


def _places(settings: Sequence[PgsSettings]) -> list[tuple[int, int]]:
    """The group and the column of each lane."""
    places = {}
    for group, numbers in enumerate(_order(settings)):
        for column, number in enumerate(numbers):
            places[number] = (group, column)
    return [places[number] for number in range(len(settings))]


def state_bytes_per_feature(settings: Sequence[PgsSettings]) -> int:
    """What one feature takes in the state of all lanes."""
    return sum(
        bytes_per_feature(group[0].p, group[0].returns, len(group), group[0].workers) for group in _grouped(settings)
    )
