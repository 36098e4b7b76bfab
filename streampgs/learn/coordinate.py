"""Coordinate descent: one weight at a time, by the column of its feature (SCD in Shalev-Shwartz & Tewari, Stochastic
Methods for ℓ1-regularized Loss Minimization, §2).

Minimises (1/W) Σ weight·loss + l1·‖w‖₁ + sigma/2·‖w‖², with W the sum of the rows' weights; the intercept is not
regularized. All rows are in memory. Where an epoch ends there is one sweep over their columns, which begins with scores that
are computed from the weights: so the weights alone say how training continues.

With a bound for each column, a sweep is one measurement of all partial derivatives at fixed scores, and then many passes
over the columns that matter: those with a weight, and those that violate the optimality conditions most. The measurement
also gives a dual point, and so a true bound on the distance from the optimum.

With the paper's global bound, a sweep visits each column once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import OptionError
from streampgs.kernels import coordinate_loop as loops
from streampgs.kernels.randomness import key_of, random_words, shuffled
from streampgs.kernels.rows import Columns, Rows
from streampgs.kernels.smooth_losses import SMOOTH_LOSSES
from streampgs.learn.averaging import NoStretches, Tallies
from streampgs.learn.held_rows import held_rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Certified, HoldsOut, Learner, Passes, refuse_divergence
from streampgs.learn.lines import Scale
from streampgs.learn.norms import PNorm
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.losses import LOSSES, Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of

MEASURE_EVERY = 3
"""Epochs, with the global bound."""
_FEWEST_CHOSEN, _INNER_TOLERANCE = 10, 0.1
MOST_PASSES, _FEWEST_ENTRIES, _TABLE_SHARE = 1000, 1 << 24, 8
_CONVERGED = 1e-13
_ROUNDING = 1e-6
_MOST_UNCENTRED = 1e-10
"""The mean slope at the best intercept, at most; a lower bound of the objective may be wrong by as much."""


@dataclass(frozen=True)
class CoordinateOptions:
    l1: float
    beta: str = "column"
    holds_out: bool = False
    """Whether some rows are held out to compare candidates."""
    varies: ClassVar[tuple[str, ...]] = ("l1", "sigma")
    shared: ClassVar[tuple[str, ...]] = ("beta",)

    def __post_init__(self) -> None:
        require(self.l1 >= 0.0 and self.beta in ("column", "global"), f"l1 {self.l1}, beta {self.beta!r:.50}")


class CoordinateCandidates(Candidates):
    """Grids of l1 and sigma; all candidates train to the end."""

    grid: ClassVar[tuple[str, ...]] = ("l1", "sigma")

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        if options.l1 is None:
            raise OptionError(
                f"`--solver {options.solver}` without --l1",
                "give `--l1 1e-3`, or several values to compare; without an l1 penalty use `--solver l-bfgs`",
            )
        _refuse_unbounded_curvature(options.solver, base.loss)
        if 0.0 in values_of(options.l1) and not all(
            sigma != "auto" and sigma > 0.0 for sigma in values_of(options.sigma)
        ):
            raise OptionError(
                f"`--solver {options.solver}` with `--l1 0` and without --sigma, where no distance from the optimum is known",
                "give a --sigma above 0, or a small --l1 like 1e-9; or use `--solver l-bfgs`",
            )
        base = replace(base, intercept=1.0 if options.intercept != 0.0 else 0.0)
        holds_out = self.count(options) * len(options.losses) > 1 and not options.validation
        sigmas = [0.0 if sigma == "auto" else float(sigma) for sigma in values_of(options.sigma)]
        return [
            replace(base, sigma=sigma, own=CoordinateOptions(float(l1), options.beta, holds_out))
            for l1 in values_of(options.l1)
            for sigma in sigmas
        ]

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        _refuse_unbounded_curvature(options.solver, base.loss)
        return [replace(base, intercept=1.0, own=CoordinateOptions(0.0))]


def _refuse_unbounded_curvature(solver: str, loss: str) -> None:
    if loss not in SMOOTH_LOSSES:
        *some, last = SMOOTH_LOSSES
        raise OptionError(
            f"`--solver {solver}` with `--loss {loss}`, whose slope jumps or grows without bound",
            f"use `--loss {', '.join(some)}` or {last}",
        )


class Problem:
    """The rows as all lanes see them."""

    def __init__(self, rows: Rows, dense: bool, seed: int, holds_out: bool, coordinates: int) -> None:
        self.rows, self.dense, self.holds_out = rows, dense, holds_out
        self.columns: Columns = rows.columns(dense)
        self.weights = rows.weights.copy() if rows.weights.size else np.ones(len(rows))
        if holds_out:
            self.weights[held_rows(seed, rows)] = 0.0
        self.total = max(float(self.weights.sum()), 1e-300)
        self.weighted = bool((self.weights != 1.0).any())
        self.squares, self.largest = np.zeros(coordinates), np.zeros(coordinates)
        loops.squares_of(*self._entries, self.weights, not dense, self.squares, self.largest)
        words = random_words(key_of(seed, "problem", int(holds_out)), rows.numbers.astype(np.uint64))
        self.digest = int(words.sum(dtype=np.uint64) >> np.uint64(1))
        """It tells whether other rows belong to the problem."""

    @property
    def _entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]:
        return self.columns.features, self.columns.bounds, self.columns.rows, self.columns.values

    def lane(self, spec: LaneSpec, weights: Vector) -> LaneRows:
        """The rows as a lane with these weights sees them; their slopes are still to be computed."""
        rows, target, regression = self.rows, spec.target, LOSSES[spec.loss].degree > 0
        labels = rows.labels[:, target.column] if rows.labels.ndim == 2 else rows.labels
        known = (rows.offsets + spec.base if rows.offsets.size else np.full(len(rows), spec.base)) / spec.scale
        if target.positive is not None:
            labels = np.where(labels == target.positive, 1.0, -1.0)
        labels = labels / spec.scale - known if regression else np.array(labels, np.float64)
        scores = np.zeros(len(rows)) if regression else known  # large numbers would hide a small gap
        scores += weights[0] * spec.intercept
        loops.add_scores(weights, *self._entries, not self.dense, scores)
        return LaneRows(scores, labels, self.weights, np.empty(len(rows)))

    def parameters(self, spec: LaneSpec) -> Vector:
        """The parameters of the loops, for sums over rows."""
        found = np.zeros(loops.PARAMETERS)
        l1 = self.total * spec.own.l1 / spec.scale ** max(0, LOSSES[spec.loss].degree - 1)
        found[:] = spec.shape, l1, self.total * spec.sigma, 0.0, spec.intercept
        if spec.own.beta == "global":
            largest = float(self.largest.max(initial=0.0))
            found[loops.BOUND] = self.total * SMOOTH_LOSSES[spec.loss].curvature * largest * largest
        return found

    def partials(self, slopes: Vector) -> Vector:
        """The derivatives with respect to all weights."""
        found, columns = np.zeros(len(self.squares)), self.columns
        loops.measure(slopes, columns.bounds, columns.rows, columns.values, columns.features, not self.dense, found)
        return found


class LaneRows(NamedTuple):
    """A number for each row, as the loops take them."""

    scores: Vector
    labels: Vector
    weights: Vector
    slopes: Vector


class Coordinate(Learner, Passes, Certified, HoldsOut):
    """Lanes that differ in l1, sigma, the target and the parameter of the loss."""

    Options: ClassVar[type] = CoordinateOptions
    candidates: ClassVar[Candidates] = CoordinateCandidates()

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        of_lane = Field((LANE,), Merge.REFUSED)
        self.fields = {
            "weights": Field((COORDINATE, LANE), Merge.REFUSED, Role.DUAL),
            "objective": of_lane,
            "bound": of_lane,
            "at_zero": of_lane,
            "sums": Field((loops.SUMS, LANE), Merge.REFUSED),
            "total": Field((), Merge.REFUSED, low=0.0),
            **{name: counter(Merge.REFUSED) for name in ("epoch", "measured", "released", "problem", "entries")},
            "steps": counter(Merge.MEAN),
        }
        self.stretches = NoStretches({})
        self._loops = loops.loops_for(LOSSES[self.spec.loss], self.spec.loss)
        self._table: Rows | None = None
        self._problem: Problem | None = None

    @classmethod
    def widths(cls, norm: PNorm) -> Sequence[int]:
        return range(1, 65)

    def check(self, state: State) -> None:
        require(bool(state["measured"] <= 1 and state["released"] <= 1), "a flag above 1")
        slack = _ROUNDING * np.maximum(np.abs(state["objective"]), state["at_zero"]) + _MOST_UNCENTRED
        require(bool((state["bound"] <= state["objective"] + slack).all()), "an objective below its lower bound")

    def run(self, state: State, lines: Rows, first: int, stop: int, copies: int) -> None:
        """Rows are looked at together, where the epoch ends."""
        self._table = lines.table
        state["steps"] += stop - first

    def reach_epoch(self, state: State, epoch: int) -> bool:
        if epoch <= int(state["epoch"]):
            return False
        state["epoch"][...] = epoch
        if self._table is None:  # there was no row
            return False
        self.sweep(state, self._table)
        refuse_divergence(self, state)
        return True

    def sweep(self, state: State, rows: Rows, order: NDArray[np.int64] | None = None) -> None:
        """One sweep over the columns of these rows, in a random order or in this one."""
        problem = self._problem_of(state, rows)
        if order is None:
            key = key_of(self.spec.seed, "columns", int(state["epoch"]))
            order = shuffled(np.uint64(key), len(problem.columns))
        state["total"][...] = problem.total
        for lane, spec in enumerate(self.specs):
            weights = np.ascontiguousarray(state["weights"][:, lane])
            sweep = Sweep(self._loops, problem, spec, weights, state, lane)
            sweep.begin()
            self.work(sweep, order)
            sweep.end()
            state["weights"][:, lane] = weights

    def _problem_of(self, state: State, rows: Rows) -> Problem:
        holds_out, known, coordinates = self.holds_out(state), self._problem, len(state["weights"])
        if known is None or known.rows is not rows or (known.holds_out, len(known.squares)) != (holds_out, coordinates):
            known = self._problem = Problem(rows, self.spec.layout == "dense", self.spec.seed, holds_out, coordinates)
        if int(state["problem"]) != known.digest:
            state["problem"][...] = known.digest
            state["measured"][...] = 0
            state["bound"][...] = 0.0
        return known

    def work(self, sweep: Sweep, order: NDArray[np.int64]) -> None:
        """What a sweep does after it has found the best intercept."""
        if self.spec.own.beta == "global":
            if int(sweep.state["epoch"]) % MEASURE_EVERY == 0:
                sweep.measure()
            sweep.own[loops.CONSTANT] = 0.0  # the intercept moves at the beginning only
            sweep.visit(order)
            sweep.own[loops.CONSTANT] = sweep.spec.intercept
        else:
            sweep.visit_violations(order, sweep.measure())

    # How good the weights are.

    def certificate(self, state: State, lane: int) -> float | None:
        if not state["measured"]:
            return None
        return max(0.0, float(state["objective"][lane] - state["bound"][lane]))

    def relative_gap(self, state: State, lane: int) -> float | None:
        """The certificate as a share of the loss without features, as it was before the first column."""
        gap, whole = self.certificate(state, lane), float(state["at_zero"][lane])
        return None if gap is None else gap / whole if whole > 0.0 else 0.0

    def tallies(self, state: State, lane: int) -> Tallies:
        """The tallies of the present weights on all rows; they are empty before the first sweep."""
        sums = state["sums"][:, lane]
        loss, correct = float(sums[loops.LOSS_SUM]), float(sums[loops.CORRECT_SUM])
        return Tallies(int(state["steps"]), 0.0, 0.0, loss, correct, float(state["total"]) if sums.any() else 0.0)

    def restart_averages(self, state: State) -> None:
        """The run may continue with other candidates, which are compared again and have other optima."""
        state["released"][...] = 0
        state["problem"][...] = 0

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return np.array(state["weights"][slice(None) if at is None else at, lane])


class GreedyCoordinate(Coordinate):
    """Each sweep measures all partial derivatives, and takes the one step that decreases the objective most (GCD in the same
    paper, §4.1)."""

    def work(self, sweep: Sweep, order: NDArray[np.int64]) -> None:
        sweep.greedy_step(sweep.measure())


class Sweep:
    """A sweep of one lane. All numbers of the loops are sums over rows; those in the state are divided by the total weight."""

    def __init__(
        self, own_loops: loops.Loops, problem: Problem, spec: LaneSpec, weights: Vector, state: State, lane: int
    ) -> None:
        self._loops, self.problem, self.spec, self.weights = own_loops, problem, spec, weights
        self.state, self._lane = state, lane
        self.own, self._rows = problem.parameters(spec), problem.lane(spec, weights)

    def begin(self) -> None:
        """Find the best intercept, so that the slopes add up to 0."""
        rows, own, state, lane = self._rows, self.own, self.state, self._lane
        self._loops.shift(*rows, own[loops.SHAPE], 0.0)
        if own[loops.CONSTANT] != 0.0:
            self.weights[0] += self._loops.centre(*rows, own, self.problem.total) / own[loops.CONSTANT]
        if state["at_zero"][lane] == 0.0:
            state["at_zero"][lane] = self._sums()[loops.LOSS_SUM] / self.problem.total

    def end(self) -> None:
        """Note the objective of the present weights."""
        own, state, lane = self.own, self.state, self._lane
        sums, (total, squares) = self._sums(), loops.penalties(self.weights)
        penalty = own[loops.L1] * total + 0.5 * own[loops.SIGMA] * squares
        state["sums"][:, lane] = sums
        state["objective"][lane] = (sums[loops.LOSS_SUM] + penalty) / self.problem.total

    def _sums(self, scale: float = 0.0) -> Vector:
        found = np.empty(loops.SUMS)
        self._loops.sums(*self._rows, self.own, scale, found)
        return found

    def measure(self) -> Vector:
        """All partial derivatives at the present scores; they also give a lower bound of the optimum."""
        state, lane, partials = self.state, self._lane, self.problem.partials(self._rows.slopes)
        state["entries"] += len(self.problem.columns.values)
        l1, sigma = self.own[loops.L1], self.own[loops.SIGMA]
        largest = loops.dual_sums(self.weights, partials, 0.0, l1, sigma)[2]
        # By which the slopes may be multiplied to be a dual point.
        feasible = 1.0 if largest <= l1 else l1 / largest
        scales = [feasible] if sigma == 0.0 or feasible == 1.0 else [feasible, 1.0]
        found = max(self._dual(partials, scale) for scale in scales) / self.problem.total
        state["bound"][lane] = max(state["bound"][lane], found)
        state["measured"][...] = 1
        return partials

    def _dual(self, partials: Vector, scale: float) -> float:
        """The value of the dual problem at the slopes times `scale`: see docs/papers/solvers/README.md."""
        l1, sigma, constant = self.own[loops.L1], self.own[loops.SIGMA], self.own[loops.CONSTANT]
        sums = self._sums(scale)
        product, beyond, _ = loops.dual_sums(self.weights, partials, scale, l1, sigma)
        slope = sums[loops.SLOPE_SUM]
        if constant and abs(slope) > _MOST_UNCENTRED * self.problem.total:
            return 0.0
        fixed = sums[loops.PRODUCT_SUM] - constant * self.weights[0] * slope - product
        return float(scale * fixed - sums[loops.CONJUGATE_SUM] - (beyond / (2.0 * sigma) if sigma else 0.0))

    def visit_violations(self, order: NDArray[np.int64], partials: Vector) -> None:
        """Many passes over the columns that matter."""
        columns, l1, sigma = self.problem.columns, self.own[loops.L1], self.own[loops.SIGMA]
        found, sizes = np.empty(len(columns)), np.diff(columns.bounds)
        worst, used = loops.find_violations(self.weights, partials, columns.features, l1, sigma, found)
        if worst > _CONVERGED * max(l1, 1e-300):
            chosen = order[_those_that_matter(found, used)[order]]
            budget = max(_FEWEST_ENTRIES, _TABLE_SHARE * len(columns.values))
            passes = budget // max(1, int(sizes[chosen].sum()) + len(self.problem.rows))
            self.visit(chosen, max(1, min(MOST_PASSES, passes)), _INNER_TOLERANCE * worst)

    def visit(self, order: NDArray[np.int64], passes: int = 1, tolerance: float = 0.0) -> None:
        """Passes over some lines, with a step in each of them."""
        problem, columns = self.problem, self.problem.columns
        self.state["entries"] += self._loops.visit(
            order, columns.features, self.weights, *self._rows, problem.squares, problem.largest, self.own,
            columns.bounds, columns.rows, columns.values, not problem.dense, problem.weighted, problem.total, tolerance,
            passes,
        )  # fmt: skip

    def greedy_step(self, partials: Vector) -> None:
        """The one step that decreases the objective most for certain."""
        problem, curvature = self.problem, SMOOTH_LOSSES[self.spec.loss].curvature
        best = loops.greatest_decrease(
            self.weights, partials, problem.squares, problem.columns.features, curvature, self.own
        )
        if best >= 0:
            self.visit(np.array([best]))


def _those_that_matter(violations: Vector, used: int) -> NDArray[np.bool_]:
    """The columns with a weight (marked by -1), and as many more that violate their condition most."""
    count = min(max(_FEWEST_CHOSEN, used), len(violations))
    least = np.partition(violations, len(violations) - count)[len(violations) - count]
    return np.asarray((violations < 0.0) | ((violations >= least) & (violations > 0.0)))
