"""Figures 1 to 8 of Shalev-Shwartz and Tewari, Stochastic Methods for ℓ1-regularized Loss Minimization: objective and density
of SCD, GCD, SMIDAS and truncated gradient on DUKE, ARCENE, MAGIC04S and MAGIC04D, for l1 = 1e-6 and 1e-2; and also
composite dual averaging, and the coordinate solver as it is used by default.

    python -m scripts.papers.l1 [--out docs/papers/l1] [--problems duke,arcene,magic04s,magic04d] [--l1 1e-6,1e-2]
    python -m scripts.papers.l1 --quick

Solvers with a step size are drawn twice: with that of the paper's Table 1 (dashed), and with the best of a ladder of step
sizes, which all train in one pass. An access is an entry of the table that is read: a dense table has its zeros, too.
Rows and columns are drawn uniformly with replacement, as in the paper. The curves of a finished figure are a line of
OUT/curves.jsonl; the same command continues after an interruption, and draws finished figures again. --quick takes less than two
minutes of processor time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from scripts import real_data
from scripts.machine import machine_line
from scripts.papers.finished import Finished
from scripts.papers.l1.curves import Curve, curves
from scripts.papers.l1.figures import plot
from scripts.papers.l1.methods import METHODS, TABLE_1
from scripts.papers.l1.problems import PROBLEMS, Problem, problem_named

_SEARCH = 2.0
"""The time in which the step size is chosen, for all of the ladder together, as a multiple of that of a curve."""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--l1", default="1e-6,1e-2")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--accesses", type=float, default=2e9, help="of a curve, at most")
    parser.add_argument("--seconds", type=float, default=6.0, help="of a curve, at most")
    parser.add_argument("--source", type=Path, default=real_data.SOURCE, help="folder of the published files")
    parser.add_argument("--out", type=Path, default=Path("bench-out/l1"))
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.seconds, chosen.accesses = min(chosen.seconds, 0.6), min(chosen.accesses, 7e7)
    return chosen


def main() -> None:
    chosen = parsed()
    chosen.out.mkdir(parents=True, exist_ok=True)
    print(machine_line(), flush=True)
    finished = Finished(chosen.out / "curves.jsonl", ("problem", "l1"))
    for name in chosen.problems.split(","):
        problem = problem_named(name, chosen.source)
        print(
            f"\n{name}: {problem.rows:,} rows, {problem.features:,} features, {problem.entries:,} entries", flush=True
        )
        for l1 in map(float, chosen.l1.split(",")):
            figure = {"problem": name, "l1": l1}
            if figure not in finished:
                curves_of_figure = [asdict(curve) for curve in measured(problem, l1, chosen)]
                finished.add(figure | {"optimum": problem.optimum(l1), "curves": curves_of_figure})
            (known,) = finished.like([figure])
            found, optimum = [Curve(**fields) for fields in known["curves"]], known["optimum"]
            print("\n".join(table(found, optimum)), flush=True)
            plot(found, optimum, f"{name}, l1 = {l1:g}", chosen.out / f"{name}-{l1:.0e}.png")


def measured(problem: Problem, l1: float, chosen: argparse.Namespace) -> list[Curve]:
    found = []
    for name in chosen.methods.split(","):
        method = METHODS[name]
        curves(method, problem, l1, [1e-3] if method.numbers else [], problem.entries, 0.0)  # compiles its loops
        wanted: list[tuple[str, Sequence[float]]] = [(name, [])]
        if method.numbers is not None:
            ladder = method.numbers(problem, l1)
            tried = curves(method, problem, l1, ladder, chosen.accesses, _SEARCH * chosen.seconds)
            best = min(tried, key=lambda curve: curve.last)
            wanted = [(name, [best.number or 0.0])]
            printed = TABLE_1.get((problem.name, l1), {}).get(name)
            if printed is not None:
                wanted.append((f"{name} (paper)", [printed]))
        for title, numbers in wanted:
            (curve,) = curves(method, problem, l1, numbers, chosen.accesses, chosen.seconds)
            curve.solver = title
            found.append(curve)
    return found


def table(found: Sequence[Curve], optimum: float) -> list[str]:
    """The end of each curve, and when it came near the optimum."""
    lines = [
        f"\nl1 = {found[0].l1:g}, optimum {optimum:.6g}\n",
        "| solver | step or sigma | objective | not zero | entries read | seconds | entries read until 1 % above the optimum |",
        "|---|---|---|---|---|---|---|",
    ]
    for curve in found:
        near = next((read for read, value in zip(curve.accesses, curve.objectives, strict=True)
                     if value <= 1.01 * optimum), None)  # fmt: skip
        number = "" if curve.number is None else f"{curve.number:g}"
        lines.append(
            f"| {curve.solver} | {number} | {curve.last:.6g} | {curve.densities[-1]:,} | {curve.accesses[-1]:.2g} | "
            f"{curve.seconds[-1]:.2f} | {'not reached' if near is None else f'{near:.2g}'} |"
        )
    return lines


if __name__ == "__main__":
    main()
