"""Writes the table of docs/solvers.md from what the solvers declare: python scripts/solver_table.py

tests/conformance/test_solver_table.py trains with the options of each cell: where the table says yes, they work, and where it
says no, they are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streampgs.base.errors import OptionError
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import Certified, Learner, learner_named
from streampgs.learn.norms import EUCLID
from streampgs.losses import LOSSES
from streampgs.options.commands import ModelOptions
from streampgs.options.solvers import SOLVERS, Needs, Solver, learner_for

_BEGIN = "<!-- Written by `python scripts/solver_table.py`; do not edit. -->\n"
_REQUIRED: dict[str, dict[str, Any]] = {"kernel": {"kernel": "rbf"}, "entropic": {"ball": 5.0}}
_END = "<!-- End of the table. -->\n"
PAGE = Path(__file__).parents[1] / "docs" / "solvers.md"


@dataclass(frozen=True)
class Column:
    """A solver, with the options that it cannot do without."""

    title: str
    options: dict[str, Any]

    @property
    def solver(self) -> Solver:
        return SOLVERS[self.options["solver"]]

    @property
    def needs(self) -> Needs:
        return self.solver.needs

    @property
    def learner(self) -> type[Learner]:
        return learner_named(learner_for(ModelOptions(**self.options)))

    def spec(self, loss: str = "logistic") -> LaneSpec:
        """Of a model before its first step."""
        options = ModelOptions(**self.options)
        plain = LaneSpec(learner_for(options), loss, 0.0, EUCLID, 1.0, Target("label"), 0, 1, 0.1, "sparse", None)
        return self.learner.candidates.known_loops(options, plain)[0]


def columns() -> list[Column]:
    found = []
    for name, solver in SOLVERS.items():
        needed: dict[str, Any] = {"l1": 1e-3} if "l1" in solver.options and not solver.with_l1 else {}
        needed |= _REQUIRED.get(name, {})
        found.append(Column(f"`{name}`", {"solver": name, **needed}))
        if solver.with_l1:
            found.append(Column(f"`{name}` with `--l1`", {"solver": name, "l1": 1e-3}))
    return found


@dataclass(frozen=True)
class Capability:
    title: str
    has: Callable[[Column], bool]
    options: Mapping[str, Any] = field(default_factory=dict)
    """With which training works, or is refused; empty if the test needs more than options."""
    growth: bool = False
    """Whether they are options of a resume."""


def takes_loss(column: Column, loss: str) -> bool:
    if column.needs.smooth and not LOSSES[loss].smooth:
        return False
    try:
        Lanes([column.spec(loss)])
    except OptionError:
        return False
    return True


def _has_steps(column: Column) -> bool:
    return column.solver.steps_on_rows


def _takes(option: str) -> Callable[[Column], bool]:
    return lambda column: option in column.solver.options


CAPABILITIES = (
    Capability("`--sigma`: weight of the regularizer", _takes("sigma"), {"sigma": 1e-2}),
    Capability("`--l1`: weights that are exactly zero", _takes("l1"), {"l1": 1e-2}),
    Capability("`--step`: steps of a fixed size", _takes("step"), {"step": 0.1}),
    Capability("lists of values, which train next to each other", lambda column: True),
    Capability("losses with kinks: `hinge`, `absolute`, `quantile`", lambda c: takes_loss(c, "hinge"), {"loss": "hinge"}),
    Capability("`--threads`", lambda column: not column.needs.columns, {"threads": 2}),
    Capability("`--batch`", _has_steps, {"batch": 4}),
    Capability("`--kernel`", lambda column: not column.needs.columns, {"kernel": "rbf"}),
    Capability("`--target-gap`: a bound on the distance from the optimum", lambda c: issubclass(c.learner, Certified),
        {"target_gap": 1e6}),
    Capability("streams", lambda column: _has_steps(column) and not column.needs.in_memory),
    Capability("more than two classes, several labels", lambda column: True),
    Capability("pauses at any row, without a trace", lambda column: True),
    Capability("tables that grow", lambda column: True),
    Capability("`--replay`: old rows next to new ones, in updates", _has_steps, {"replay": 1.0}, growth=True),
    Capability("`--passes`: how often an update visits new rows", lambda column: True, {"passes": 2}, growth=True),
    Capability("continues without deleted shards", lambda column: True),
    Capability("tables that are larger than `--memory`", lambda column: not column.needs.in_memory),
)  # fmt: skip


def table() -> str:
    solvers = columns()
    lines = [
        "| | " + " | ".join(column.title for column in solvers) + " |",
        "|---|" + "---|" * len(solvers),
        *(_line(capability.title, [_yes(capability.has(c)) for c in solvers]) for capability in CAPABILITIES),
        _line("losses", [_losses(column) for column in solvers]),
        _line("bytes per feature, one model", [str(bytes_per_feature(column)) for column in solvers]),
    ]
    return "\n".join(lines) + "\n"


def _line(title: str, cells: list[str]) -> str:
    return f"| {title} | " + " | ".join(cells) + " |"


def _yes(has: bool) -> str:
    return "yes" if has else "no"


def _losses(column: Column) -> str:
    left_out = [f"`{loss}`" for loss in LOSSES if not takes_loss(column, loss)]
    return "all but " + ", ".join(left_out) if left_out else "all"


def bytes_per_feature(column: Column) -> int:
    return Lanes([column.spec()]).bytes_per_feature()


def written(page: str) -> str:
    """The page with the table as it is now."""
    before, rest = page.split(_BEGIN)
    return before + _BEGIN + table() + _END + rest.split(_END)[1]


if __name__ == "__main__":
    if sys.argv[1:]:
        raise SystemExit("usage: python scripts/solver_table.py")
    PAGE.write_text(written(PAGE.read_text()))
