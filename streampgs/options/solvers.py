"""Which solvers are there, and which options belong to which? One line below per solver, and a dataclass of their options.

Nothing here imports Numba: the classes compile loops and are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from streampgs.base.errors import OptionError
from streampgs.losses import LOSSES
from streampgs.options.fields import COMMON, MODEL, Choice, Listed, Number, option

SMALLEST_P = 1.001
MOST_SHRINK_EVERY = MOST_SUPPORTS = 1 << 16
SIGMA = Listed(of=Number("S", 0.0, above=True, words=("auto",)), alone=("auto",))
_P = Number("P", SMALLEST_P, 2.0, words=("auto",),
    remedy="2 is the Euclidean norm; values near 1, like 1.1, give sparse models; 'auto' tries some")  # fmt: skip
_BALL = Number("B", 0.0, above=True, words=("auto", "none"), remedy="give a radius, 'auto' or 'none'")
_STEEP = ", ".join(name for name, loss in LOSSES.items() if not loss.lipschitz)


@dataclass(frozen=True)
class Needs:
    """Requirements of a solver on its loss, its source and its engine."""

    in_memory: bool = False
    """All rows of the table must fit into memory."""
    columns: bool = False
    """It sweeps over the columns of the table, and finds the constant of the model itself. Its loss is that of the present
    weights on the rows of training."""
    passes: bool = False
    """Its weights change at the end of each pass over all rows, and not before. New rows belong to its next epoch, without
    an update, and it cannot train on a stream."""
    smooth: bool = False
    """A loss with a continuous slope."""
    feature_count: bool = False
    """Its steps depend on the number of features."""


class Solver(NamedTuple):
    path: str
    """module:class of the learner"""
    options: tuple[str, ...]
    """The options that it takes and some other solvers do not: names of fields of SolverOptions."""
    needs: Needs = Needs()
    """The learner has the same."""
    with_l1: str = ""
    """Likewise, of the learner that takes its place if --l1 is given"""
    refuse: Callable[[Any], None] = lambda options: None
    """Raises OptionError for options that it takes, but not together."""

    @property
    def steps_on_rows(self) -> bool:
        """Whether each row can be a step of its own."""
        return not self.needs.passes


def _refuse_with_l1(options: Any) -> None:
    if options.l1 is None:
        return
    no_zeros = "leave --l1 out: `--p 1.1` alone makes most weights small"
    if options.p != 2.0:
        raise OptionError(
            "--l1 with a --p other than 2: a step would have to change all weights, not only those of its rows",
            f"leave --p out, or {no_zeros}",
        )
    if options.ball not in (None, "none"):
        raise OptionError(
            "--l1 with --ball: every step would have to compute the norm of all weights",
            "leave --ball out; a larger --l1 or --sigma keeps weights small, too",
        )
    if options.returns == "random":
        raise OptionError("--l1 with `--return random`", "leave --return out, or use last or average")


_COORDINATE = "sigma", "l1", "beta"
_OF_PASSES = Needs(passes=True, smooth=True)
_OF_COLUMNS = Needs(passes=True, smooth=True, in_memory=True, columns=True)


def _refuse_without_ball(options: Any) -> None:
    if options.ball in (None, "none", "auto"):
        raise OptionError(
            f"`--solver {options.solver}` without a number for --ball",
            "give the largest sum of all |w|, like `--ball 10`, or several values to compare",
        )


SOLVERS = {
    "pgs": Solver(
        "streampgs.learn.pgs:Pgs",
        ("sigma", "p", "t0", "returns", "ball", "l1"),
        with_l1="streampgs.learn.composite:Composite",
        refuse=_refuse_with_l1,
    ),
    "coordinate": Solver("streampgs.learn.coordinate:Coordinate", _COORDINATE, _OF_COLUMNS),
    "l-bfgs": Solver("streampgs.learn.passes:Lbfgs", ("sigma",), _OF_PASSES),
    "kernel": Solver("streampgs.learn.kernel:KernelSolver", ("sigma", "supports"), Needs(in_memory=True)),
    "entropic": Solver(
        "streampgs.learn.entropic:Entropic",
        ("sigma", "ball"),
        Needs(feature_count=True),
        refuse=_refuse_without_ball,
    ),
    "truncated-gradient": Solver("streampgs.learn.fixed_steps:TruncatedGradient", ("l1", "step")),
    "smidas": Solver("streampgs.learn.fixed_steps:Smidas", ("l1", "step", "shrink_every"), Needs(feature_count=True)),
    "ogd": Solver("streampgs.learn.pgs:Ogd", ("sigma", "ball")),
    "sgd": Solver("streampgs.learn.fixed_steps:Sgd", ("sigma", "step")),
    "gradient-descent": Solver("streampgs.learn.passes:GradientDescent", ("sigma", "step"), _OF_PASSES),
    "greedy-coordinate": Solver("streampgs.learn.coordinate:GreedyCoordinate", _COORDINATE, _OF_COLUMNS),
}


@dataclass(frozen=True)
class SolverOptions:
    """Which solver, and the options that some of them take."""

    # fmt: off
    solver: str = option("pgs", Choice(names=SOLVERS), MODEL,
        "How the model is trained; docs/solvers.md says which solver to choose.")
    sigma: float | Literal["auto"] | tuple[float, ...] = option("auto", SIGMA, COMMON,
        "Weight of the regularizer. auto: found from the rows (docs/sigma.md); 0 for coordinate and greedy-coordinate.")
    p: float | Literal["auto"] | tuple[float, ...] = option(2.0, Listed(of=_P, alone=("auto",)), MODEL,
        "For --solver pgs: norm of the regularizer, in (1, 2]. Near 1 the largest weights are on few features. "
        "auto: the best of 2, 1.8, 1.5, 1.2 and one near 1.")
    t0: float | Literal["auto"] = option("auto", Number("T0", 0.0, above=True, words=("auto",)), MODEL,
        "For --solver pgs: offset of the step count; larger means smaller first steps. The paper uses 1. "
        "auto: from the norms of the rows.")
    returns: str = option("suffix", Choice(names=("suffix", "average", "last", "random")), MODEL,
        "For --solver pgs: the weights to return, which are the average of the later steps (suffix), of all steps (average), "
        "the last ones (last), or "
        "those of a random step as in the paper (random).", flag="--return")
    ball: float | Literal["auto", "none"] | tuple[float, ...] | None = option(None, Listed(of=_BALL, alone=("auto",)),
        MODEL, "For --solver pgs and ogd: keep the p-norm of the weights below B; the default is nearly always "
        "right. For entropic, which needs it: keep the sum of all |w| below B.",
        shown=f"auto for losses that need it ({_STEEP}), else none")
    l1: float | tuple[float, ...] | None = option(None,
        Listed(of=Number("X", 0.0, remedy="1e-5 is a start; larger values set more weights to zero")), COMMON,
        "Weight of the sum of all |w|, for models with few nonzero weights. Larger values set more weights exactly to zero. "
        "With several values the best model is returned. For --solver pgs, coordinate, greedy-coordinate, truncated-gradient "
        "and smidas.")
    step: float | Literal["auto"] | tuple[float, ...] = option("auto",
        Listed(of=Number("ETA", 0.0, above=True, words=("auto",)), alone=("auto",)), MODEL,
        "For --solver truncated-gradient, smidas, sgd and gradient-descent: size of the steps. auto: from the norms of the rows.")
    supports: int = option(4096,
        Number("N", 1, MOST_SUPPORTS, whole=True, remedy="4096 is a start; more are slower and more accurate"), MODEL,
        "For --solver kernel: number of different rows that the model keeps and compares others with, at most.")
    shrink_every: int | Literal["auto"] = option("auto",
        Number("K", 1, MOST_SHRINK_EVERY, whole=True, words=("auto",), remedy="1 shrinks the weights in every step"), MODEL,
        "For --solver smidas: shrink the weights every K steps, by as much as in K steps. auto: 1 where rows are "
        "dense; where they are sparse, so that shrinking takes as long as the steps.")
    beta: str = option("column", Choice(names=("column", "global")), MODEL,
        "For --solver coordinate and greedy-coordinate: bound of the second derivative, which limits the steps. column: one "
        "for each column. global: the largest one for all columns, as in the paper, which is slower.")
    # fmt: on


LEARNERS = {name: solver.path for name, solver in SOLVERS.items()} | {
    f"{name}-l1": solver.with_l1 for name, solver in SOLVERS.items() if solver.with_l1
}
"""module:class of each learner, by the name that a run records"""


def learner_for(options: Any) -> str:
    """The learner that these options need."""
    changed = bool(SOLVERS[options.solver].with_l1) and options.l1 is not None
    return f"{options.solver}-l1" if changed else str(options.solver)


def solver_of(learner: str) -> str:
    return learner if learner in SOLVERS else learner.removesuffix("-l1")


def solvers_with(option: str) -> str:
    """The solvers that take this option, as a text."""
    *others, last = (name for name, solver in SOLVERS.items() if option in solver.options)
    return f"{', '.join(others)} or {last}" if others else last
