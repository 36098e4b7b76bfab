"""The figures of the paper, drawn from curves."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.papers.l1.curves import Curve

_STYLES = {
    "SCD": ("C0", "-"),
    "GCD": ("C1", "-"),
    "SMIDAS": ("C2", "-"),
    "TRUNCGRAD": ("C3", "-"),
    "dual averaging": ("C4", "-"),
    "coordinate": ("C5", "-"),
}


def plot(curves: Sequence[Curve], optimum: float, title: str, path: Path) -> None:
    """Objective and density against entries that were read, and against seconds."""
    try:
        import matplotlib
    except ImportError:
        print("no pictures: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogFormatter, ScalarFormatter
    from PIL import Image

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), sharey="row", sharex="col")
    for column, (name, unit) in enumerate(
        (("accesses", "entries of the table read"), ("seconds", "seconds of one core"))
    ):
        for curve in curves:
            colour, line = _style(curve)
            x = getattr(curve, name)
            axes[0][column].plot(x, curve.objectives, colour, ls=line, lw=1.4, label=label_of(curve))
            axes[1][column].plot(x, [max(1, count) for count in curve.densities], colour, ls=line, lw=1.4)
        axes[0][column].axhline(optimum, color="black", lw=0.8, ls=":", label="optimum")
        axes[1][column].set_xlabel(unit)
        for row in (0, 1):
            axes[row][column].set_xscale("log")
            axes[row][column].grid(alpha=0.3)
    if optimum < 0.1:
        axes[0][0].set_yscale("log")
    axes[0][0].set_ylim(*_range(curves, optimum))
    axes[1][0].set_yscale("log")
    axes[1][0].yaxis.set_major_formatter(ScalarFormatter())
    axes[1][0].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes[0][0].set_ylabel("objective")
    axes[1][0].set_ylabel("weights that are not zero")
    figure.suptitle(title)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    pyplot.close(figure)
    # With fewer colours, those of thin lines in the legend become others.
    Image.open(drawn).convert("RGB").quantize(256).save(path, optimize=True)


def label_of(curve: Curve) -> str:
    return curve.solver if curve.number is None else f"{curve.solver}, {curve.number:g}"


def _style(curve: Curve) -> tuple[str, Any]:
    """A solver has a colour; dashed: with the step size of the paper's Table 1."""
    name, _, kind = curve.solver.partition(" (")
    colour, line = _STYLES.get(name, ("C7", "-"))
    return colour, "--" if kind.startswith("paper") else line


def _range(curves: Sequence[Curve], optimum: float) -> tuple[float, float]:
    first = max(min(max(curve.objectives) for curve in curves), 0.7)
    if optimum < 0.1:
        return optimum / 1.5, 2.0
    return optimum - 0.05 * (first - optimum), first + 0.1 * (first - optimum)
