"""Which solvers are there, and which options belong to which? One line each.

The classes are imported when they are used, as they compile loops.
"""

from __future__ import annotations

from typing import NamedTuple


class Solver(NamedTuple):
    path: str
    """module:class of the learner"""
    options: tuple[str, ...]
    """Fields of ModelOptions that it takes and other solvers may not."""


SOLVERS = {
    "pgs": Solver("streampgs.learn.pgs:Pgs", ("p", "sigma", "ball", "t0", "returns")),
    "truncated-gradient": Solver("streampgs.learn.truncated:TruncatedGradient", ("l1", "step")),
}
