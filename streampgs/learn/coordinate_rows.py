"""The rows that coordinate descent keeps: their scores, labels, weights and slopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import RunError
from streampgs.kernels import coordinate_loop as loops
from streampgs.kernels.randomness import key_of, random_words
from streampgs.kernels.smooth_losses import SMOOTH_LOSSES
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lines import Lines, labels_of
from streampgs.learn.state import State
from streampgs.losses import LOSSES, Vector

_ROWS_AT_ONCE = 1 << 16
_ROUNDING = 1e-6
MOST_UNCENTRED = 1e-10
"""The mean slope at the best intercept, at most; a lower bound of the objective may be wrong by as much."""
Rows = tuple[Vector, ...]
"""Scores, labels, weights and slopes of all rows, for one lane."""


def parameters_of(specs: Sequence[LaneSpec], state: State) -> Vector:
    """The parameters of the loops, for lanes of one group."""
    found, total = np.zeros((loops.PARAMETERS, len(specs))), float(state["total"])
    for lane, spec in enumerate(specs):
        unit = spec.scale ** max(0, LOSSES[spec.loss].degree - 1)
        l1, sigma = total * spec.own.l1 / unit, total * spec.sigma
        found[:, lane] = spec.shape, l1, sigma, 0.0, spec.intercept
    if specs[0].own.beta == "global":
        largest = float(state["largest"].max(initial=0.0))
        found[loops.BOUND] = total * SMOOTH_LOSSES[specs[0].loss].curvature * largest * largest
    return found


def rows_of_lanes(state: State) -> Iterator[Rows]:
    """The rows for each lane in turn, next to each other in memory. Changes are written back."""
    rows, width = int(state["rows"]), state["scores"].shape[1]
    weights = state["row_weights"][:rows]
    every = [state[name][:rows] for name in ("scores", "labels", "slopes")]
    if width == 1:
        scores, labels, slopes = (array[:, 0] for array in every)
        yield scores, labels, weights, slopes
        return
    own = scores, labels, slopes = tuple(np.empty(rows) for _ in every)
    for lane in range(width):
        for array, of_all in zip(own, every, strict=True):
            array[:] = of_all[:, lane]
        yield scores, labels, weights, slopes
        state["scores"][:rows, lane], state["slopes"][:rows, lane] = scores, slopes


def refuse_other_rows(lines: Lines, rows: int, features: int, sparse: bool) -> None:
    """Places beyond the arrays of rows and features would be read and written elsewhere in memory."""
    if lines.columns.max(initial=-1) >= features:
        raise RunError(
            f"the model has {features:,} features, and there is a column of feature {lines.columns.max():,}",
            "start another run: the columns in the cache belong to other rows",
        )
    some = lines.stops > lines.starts
    last = (
        lines.indices[lines.stops[some] - 1].max(initial=0)
        if sparse
        else (lines.stops - lines.starts).max(initial=1) - 1
    )
    if last >= max(1, rows):
        raise RunError(
            f"the model has {rows:,} rows, and there are columns of at least {last + 1:,}",
            "start another run: the columns in the cache belong to other rows",
        )


def place_rows(specs: Sequence[LaneSpec], state: State, lines: Lines, first: int, stop: int, held_out: int) -> None:
    """Append rows; their slopes are still to be computed. One in `held_out` rows is held out, none if it is 0."""
    at = int(state["rows"])
    rows = at + stop - first
    state["rows"][...] = rows
    weights = lines.weights[first:stop] if lines.weights.size else np.ones(stop - first)
    if held_out:
        weights = np.where(_are_held_out(specs[0].seed, at, rows, held_out), -weights, weights)
    state["row_weights"][at:rows] = weights
    state["weighted"][...] |= bool((weights != 1.0).any())
    labels, offsets = labels_of(lines)[first:stop], lines.offsets[first:stop] if lines.offsets.size else 0.0
    for lane, spec in enumerate(specs):
        own, known = _labels_for(labels, spec), (offsets + spec.base) / spec.scale
        if LOSSES[spec.loss].degree:  # it depends on the difference only, and large numbers would hide a small gap
            own, known = (labels[:, spec.target.column] - offsets - spec.base) / spec.scale, 0.0
        state["labels"][at:rows, lane] = own
        state["scores"][at:rows, lane] = known + state["weights"][0, lane] * spec.intercept
    loops.append_rows(
        state["weights"], lines.starts, lines.stops, lines.indices, lines.values, state["row_weights"],
        specs[0].layout == "sparse", first, stop, at, state["scores"], state["squares"], state["largest"], state["total"],
    )  # fmt: skip


def _are_held_out(seed: int, first: int, stop: int, share: int) -> NDArray[np.bool_]:
    words = random_words(key_of(seed, "held out"), np.arange(first, stop, dtype=np.uint64))
    return np.asarray(words % np.uint64(share) == 0)


def check_rows(specs: Sequence[LaneSpec], state: State, held_out: int) -> None:
    """Raise ValueError for rows that no training can have left. Scores and slopes cannot be checked without the rows. One in
    `held_out` rows is held out, none if it is 0."""
    rows, total = int(state["rows"]), 0.0
    for name in ("weighted", "measured", "released"):
        require(bool(state[name] <= 1), f"array '{name}' above 1")
    for first in range(0, rows, _ROWS_AT_ONCE):
        stop = min(rows, first + _ROWS_AT_ONCE)
        weights = state["row_weights"][first:stop]
        held = _are_held_out(specs[0].seed, first, stop, held_out) if held_out else np.zeros(len(weights), np.bool_)
        require(not bool((weights[held] > 0.0).any() or (weights[~held] < 0.0).any()), "other rows that are held out")
        require(bool(state["weighted"]) or bool((weights == 1.0).all()), "weights of rows that have none")
        total += float(np.maximum(weights, 0.0).sum())
        if LOSSES[specs[0].loss].classifies:
            require(bool((np.abs(state["labels"][first:stop]) == 1.0).all()), "labels other than -1 and 1")
    require(
        abs(total - float(state["total"])) <= _ROUNDING * total, f"rows that weigh {total:g}, not {state['total']:g}"
    )
    if state["measured"]:
        slack = _ROUNDING * np.maximum(np.abs(state["objective"]), state["at_zero"]) + MOST_UNCENTRED
        require(bool((state["bound"] <= state["objective"] + slack).all()), "an objective below its lower bound")


def _labels_for(labels: NDArray[np.float64], spec: LaneSpec) -> NDArray[np.float64]:
    own = labels[:, spec.target.column]
    return own if spec.target.positive is None else np.where(own == spec.target.positive, 1.0, -1.0)
