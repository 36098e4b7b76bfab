"""The state of a learner: named arrays with declared axes, and everything that follows from the declaration.

A learner declares its fields once. Growing, keeping and cloning lanes, merging workers, validating, saving and the
memory that a feature takes are functions of the declaration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require

Array = NDArray[Any]
State = dict[str, Array]
Sizes = Mapping[str, int]

COORDINATE, LANE = "coordinate", "lane"
"""Axes. Coordinate 0 is the intercept's; feature j is coordinate j + 1. The lane axis is always the last."""


class Merge(Enum):
    """How the copies of several workers become one state. In a round each worker counts every change, and its clock, as
    often as there are workers."""

    MEAN = "the mean; the mean of N-fold changes is the sum of all changes"
    SUM = "the sum; the first worker continues, the others begin at zero"
    SAME = "no step changes it, so the workers share one array"
    DERIVED = "computed again from the other fields"
    REFUSED = "cannot be merged: the learner runs with one worker"


class Role(Enum):
    """What growth rules and restarts may change."""

    DUAL = "the vector that was learned"
    AVERAGE = "sums for averages and certificates: a restart empties it"


class Pack(NamedTuple):
    """Several fields in one array, laid out for the compiled loops."""

    name: str
    views: Callable[[Sizes], State]
    """Allocate zeros: the whole array under the pack's name, and the fields as views of it."""


def pack_of_rows(name: str, **rows: int) -> Pack:
    """Numbers of each lane in one array, each field in the row that is given."""

    def views(sizes: Sizes) -> State:
        whole = np.zeros((len(rows), sizes[LANE]))
        return {name: whole, **{field: whole[row] for field, row in rows.items()}}

    return Pack(name, views)


def pack_by_lane(name: str, *fields: str) -> Pack:
    """Fields in one array; each lane's numbers are neighbours."""

    def views(sizes: Sizes) -> State:
        whole = np.zeros((len(fields), sizes[LANE], sizes[COORDINATE]))
        return {name: whole, **{field: whole[place].T for place, field in enumerate(fields)}}

    return Pack(name, views)


class Field(NamedTuple):
    """One array of a learner's state."""

    axes: tuple[str | int, ...]
    merge: Merge
    role: Role | None = None
    fill: float = 0.0
    """The value for coordinates never seen."""
    dtype: type = np.float64
    low: float = -math.inf
    """State that is read back must not be below."""
    pack: Pack | None = None

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[axis] if isinstance(axis, str) else axis for axis in self.axes)


Fields = Mapping[str, Field]
Each = Callable[[Callable[[int], None], int], None]
"""each(job, count): run job(0) … job(count - 1), at the same time where that is possible."""


def sizes_of(coordinates: int, lanes: int) -> Sizes:
    return {COORDINATE: coordinates, LANE: lanes}


def counter(merge: Merge = Merge.SAME, role: Role | None = None, low: int = 0) -> Field:
    """A single whole number that starts at its lower bound."""
    return Field((), merge, role, fill=low, dtype=np.int64, low=low)


def fresh(fields: Fields, sizes: Sizes) -> State:
    """The state before the first step."""
    state: State = {}
    for part in _allocated(fields, sizes):
        state |= part
    return state


def _allocated(fields: Fields, sizes: Sizes) -> Iterator[State]:
    """Array by array; the fields of a pack together."""
    for names in _arrays(fields):
        field = fields[names[0]]
        part = field.pack.views(sizes) if field.pack else {names[0]: np.zeros(field.shape(sizes), field.dtype)}
        for name in names:
            if fields[name].fill:
                part[name][...] = fields[name].fill
        yield part


def _arrays(fields: Fields) -> list[list[str]]:
    """The names of the fields that share each array."""
    found: dict[str, list[str]] = {}
    for name, field in fields.items():
        found.setdefault(field.pack.name if field.pack else name, []).append(name)
    return list(found.values())


def arrays_of_lanes(fields: Fields) -> list[str]:
    """The arrays with numbers of each lane that do not grow with the features; fields of a pack are one array."""
    few = [(name, field) for name, field in fields.items() if LANE in field.axes and COORDINATE not in field.axes]
    return list(dict.fromkeys(field.pack.name if field.pack else name for name, field in few))


def grow(fields: Fields, state: State, sizes: Sizes) -> State:
    """The state with more coordinates. Takes the old one apart, so that only one array exists twice at a time."""
    grown: State = {}
    for names in _arrays(fields):
        pack = fields[names[0]].pack
        packs = [pack.name] if pack else []
        if not any(COORDINATE in fields[name].axes for name in names):
            grown |= {name: state[name] for name in (*packs, *names)}
            continue
        (part,) = _allocated({name: fields[name] for name in names}, sizes)
        for name in names:
            old = state.pop(name)
            part[name][tuple(slice(0, size) for size in old.shape)] = old
        for name in packs:
            del state[name]
        del old
        grown |= part
    return grown


def gather(fields: Fields, places: Sequence[tuple[State, int]], coordinates: int) -> State:
    """A state whose lanes are these columns of other states; one may come several times."""
    gathered = fresh(fields, sizes_of(coordinates, len(places)))
    for name, field in fields.items():
        if LANE in field.axes:
            for into, (state, column) in enumerate(places):
                gathered[name][..., into] = state[name][..., column]
        else:
            gathered[name][...] = places[0][0][name]
    return gathered


def arrays_to_save(fields: Fields, state: State, lanes: int) -> State:
    """Views of what a checkpoint needs: without the lanes that only fill a group to the width of its loop, and with
    at least one axis."""
    return {
        name: np.atleast_1d(state[name][..., :lanes] if LANE in field.axes else state[name])
        for name, field in fields.items()
    }


def from_saved(fields: Fields, arrays: Mapping[str, Array], sizes: Sizes) -> State:
    """The arrays that `arrays_to_save` gave; raises ValueError for arrays that no training can have left."""
    state = dict(arrays)
    for name, field in fields.items():
        if not field.axes and arrays[name].shape == (1,):
            state[name] = arrays[name].reshape(())
    require(set(arrays) == set(fields), f"arrays {sorted(arrays)} instead of {sorted(fields)}")
    check(fields, state, sizes)
    return state


def check(fields: Fields, arrays: Mapping[str, Any], sizes: Sizes) -> None:
    """Raise ValueError for arrays that no training can have left."""
    for name, field in fields.items():
        array, shape = arrays[name], field.shape(sizes)
        require(
            isinstance(array, np.ndarray) and array.dtype == np.dtype(field.dtype), f"array '{name}' of another type"
        )
        require(array.shape == shape, f"array '{name}' of shape {array.shape} instead of {shape}")
        require(bool(np.isfinite(array).all()), f"array '{name}' with a number that is not finite")
        require(field.low == -math.inf or bool((array >= field.low).all()), f"array '{name}' below {field.low:g}")


def copies_of(fields: Fields, sizes: Sizes, count: int) -> list[State]:
    """Room for the copies of other workers, which `spread` fills. They share the arrays that no step changes."""
    own = {name: field for name, field in fields.items() if field.merge is not Merge.SAME}
    return [fresh(own, sizes) for _ in range(count)]


def spread(fields: Fields, state: State, copies: Sequence[State]) -> None:
    """Let the copies continue from the state."""
    for copy in copies:
        for name, field in fields.items():
            if field.merge is Merge.SAME:
                copy[name] = state[name]
            else:
                copy[name][...] = 0 if field.merge is Merge.SUM else state[name]


def merge(fields: Fields, state: State, copies: Sequence[State]) -> None:
    """Put what the copies learned into the state, in the order of the workers. Derived fields are left to the learner."""
    for name, field in fields.items():
        if field.merge not in (Merge.MEAN, Merge.SUM):
            continue
        for copy in copies:
            state[name] += copy[name]
        if field.merge is Merge.MEAN and field.dtype is np.int64:
            state[name] //= len(copies) + 1
        elif field.merge is Merge.MEAN:
            state[name] *= 1.0 / (len(copies) + 1)


def empty_averages(fields: Fields, state: State) -> None:
    for name, field in fields.items():
        if field.role is Role.AVERAGE:
            state[name][...] = field.fill


def bytes_per_feature(fields: Fields, lanes: int, workers: int = 1) -> int:
    """What one feature takes in the state, the copies of other workers included."""
    total = 0
    for field in fields.values():
        if COORDINATE in field.axes:
            count = 1 if field.merge is Merge.SAME else workers
            total += count * np.dtype(field.dtype).itemsize * math.prod(field.shape(sizes_of(1, lanes)))
    return total
