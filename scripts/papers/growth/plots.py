"""The plots of docs/papers/growth/README.md."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from scripts.papers.finished import Cell
from scripts.papers.growth.appends import SAME
from scripts.papers.growth.verdicts import ACCURACY, LOSS, figure

_MOMENTS = ("before", "resumed", "more", "fresh")
_LABELS = ("before", "resume", "--epochs +1", "new run")


def plot_appends(cells: list[Cell], path: Path) -> None:
    """Mean loss and accuracy under one law, relative to the new run, by growth and epochs before."""
    pyplot = _pyplot()
    shares = sorted({cell["share"] for cell in cells if cell["kind"] == SAME})
    epochs = sorted({cell["epochs"] for cell in cells if cell["kind"] == SAME})
    figure_, axes = pyplot.subplots(
        2, len(epochs), figsize=(3.2 * len(epochs), 6), sharex=True, sharey="row", squeeze=False
    )
    for row, (which, unit) in enumerate(((LOSS, "log loss − new run's"), (ACCURACY, "accuracy − new run's"))):
        for place, number in zip(axes[row], epochs, strict=True):
            for moment, label in zip(_MOMENTS, _LABELS, strict=True):
                values = [_difference(cells, share, number, moment, which) for share in shares]
                place.plot(range(len(shares)), values, marker="o", label=label)
            place.set_xticks(range(len(shares)), [f"+{share:.0%}" for share in shares])
            place.grid(alpha=0.3)
            if row == 0:
                place.set_title(f"{number} epoch{'s' * (number > 1)} before the append")
        axes[row][0].set_ylabel(unit)
    axes[0][0].legend(fontsize=8)
    figure_.tight_layout()
    figure_.savefig(path, dpi=110)


def _difference(cells: list[Cell], share: float, epochs: int, moment: str, which: int) -> float:
    chosen = [c for c in cells if (c["kind"], c["share"], c["epochs"]) == (SAME, share, epochs)]
    return statistics.fmean(figure(c, moment, which) - figure(c, "fresh", which) for c in chosen)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
