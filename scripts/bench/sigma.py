"""How the accuracy depends on σ and on the first step, by exhaustive search, and which σ `--sigma auto` chooses.

Trains a lane for each σ of a wide grid in the same passes over rows in memory, and evaluates the averaged weights on test
rows after fractions of an epoch. Then trains a run from the shards with `--sigma auto`. Prints a Markdown table for each
data set and loss.

    python -m scripts.bench.sigma DATA:TEST [DATA:TEST …] [--losses logistic,hinge] [--first-steps 1]
        [--returns suffix] [--plot sigma.png]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scripts.bench.bare_loop import lanes_for
from scripts.machine import machine_line
from streampgs.data.budget import group_sizes
from streampgs.engine.engine import Engine
from streampgs.kernels.placing_loop import score_rows, squared_norms
from streampgs.learn.lanes import Lanes
from streampgs.losses import LOSSES
from streampgs.model.evaluation import evaluate
from streampgs.model.model import Model
from streampgs.options.commands import Limits, ModelOptions
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Schedule, Sizes
from streampgs.reading.loader import WindowFiller
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window, WindowMemory
from streampgs.run import start as trainer
from streampgs.run.commands import TrainCall
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import Columns

STEPS = [10.0 ** (k / 2.0) for k in range(-4, 6)]
FRACTIONS = (0.125, 0.25, 0.5, 1.0, 2.0, 3.0)


@dataclass
class Curve:
    step: float
    sigma: float
    accuracies: list[float]


def rows_in_memory(data: str) -> Window:
    """All rows, in a random order."""
    catalog = build_catalog([data], Columns())
    groups = group_sizes(catalog)
    schedule = Schedule(0, groups, Sizes(1 << 40, 1 << 21))
    filler = WindowFiller(catalog, schedule.slice_rows, RowRules(Columns(), True, False, None), None)
    cursor = Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))
    window = filler.fill(schedule.window(cursor), WindowMemory())
    filler.close()
    return window


def accuracy(weights: NDArray[np.float64], intercept: float, rows: Window, sparse: bool) -> float:
    scores = np.empty(len(rows))
    score_rows(weights[1:], weights[0] * intercept, rows.starts, rows.stops, rows.indices, rows.values, sparse, scores)
    return float(((scores > 0.0) == (rows.labels > 0.0)).mean())


def searched(train: Window, test: Window, loss: str, layout: str, first_step: float, returns: str) -> list[Curve]:
    norms = np.empty(min(len(train), 1 << 14))
    squared_norms(train.starts[: norms.size], train.stops[: norms.size], train.values, 2.0, norms)
    scale = float(norms.mean()) + 0.01
    unit = LOSSES[loss].curvature * scale / len(train)
    grid = [step * unit for step in STEPS]
    usual = lanes_for(ModelOptions(loss=loss, sigma=tuple(grid), ball="none", returns=returns), train, layout).specs
    lanes = Lanes([replace(spec, own=replace(spec.own, t0=spec.own.t0 / first_step)) for spec in usual])
    lanes.grow(max(train.features, test.features))
    engine = Engine(lanes)
    curves = [Curve(step, sigma, []) for step, sigma in zip(STEPS, grid, strict=True)]
    done = 0
    for fraction in FRACTIONS:
        while done < int(fraction * len(train)):
            first = done % len(train)
            stop = min(len(train), first + int(fraction * len(train)) - done)
            done += engine.advance(train, first, stop) - first
        for lane, curve in enumerate(curves):
            curve.accuracies.append(accuracy(lanes.weights(lane), 0.1, test, layout == "sparse"))
    return curves


def chosen(data: str, test: str, loss: str) -> tuple[float, float]:
    """σ and test accuracy of a run of three epochs with `--sigma auto`."""
    with tempfile.TemporaryDirectory() as folder:
        report = trainer.train(
            [data], Path(folder) / "run", TrainCall(ModelOptions(loss=loss), limits=Limits(epochs=3))
        )
        assert report.chosen is not None
        return report.chosen["sigma"], evaluate(Model.load(Path(folder) / "run"), [test])["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="training shards and test shards, separated by a colon")
    parser.add_argument("--losses", default="logistic,hinge")
    parser.add_argument("--first-steps", default="1", help="multiples of the usual first step")
    parser.add_argument("--returns", default="suffix", choices=("suffix", "average", "last"))
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    print(machine_line())
    plotted = []
    for pair in arguments.data:
        data, _, test = pair.partition(":")
        train_rows, test_rows = rows_in_memory(data), rows_in_memory(test)
        layout = build_catalog([data], Columns()).kind
        for loss in arguments.losses.split(","):
            for first_step in map(float, arguments.first_steps.split(",")):
                curves = searched(train_rows, test_rows, loss, layout, first_step, arguments.returns)
                what = f"first step {first_step:g} times the usual, return {arguments.returns}"
                print(f"\n{Path(data).name}, {loss}, {what}, {len(train_rows):,} rows\n")
                print("| σ·rows/(curvature·mean ‖x‖²) | σ | " + " | ".join(f"{f:g}" for f in FRACTIONS) + " |")
                print("|" + "---|" * (len(FRACTIONS) + 2))
                for curve in curves:
                    print(
                        f"| {curve.step:.3g} | {curve.sigma:.3g} | "
                        + " | ".join(f"{a:.4f}" for a in curve.accuracies)
                        + " |"
                    )
                plotted.append((f"{Path(data).name}, {loss}", curves))
            sigma, found = chosen(data, test, loss)
            best = max(curve.accuracies[-1] for curve in curves)
            print(f"\n--sigma auto: {sigma:.3g}, accuracy {found:.4f}; the best of the grid {best:.4f}", flush=True)
    if arguments.plot:
        plot(plotted, arguments.plot)


def plot(found: list[tuple[str, list[Curve]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, curves in found:
        best = max(curve.accuracies[-1] for curve in curves)
        axes.semilogx(
            [curve.step for curve in curves], [curve.accuracies[-1] - best for curve in curves], marker=".", label=name
        )
    axes.set_ylim(-0.02, 0.001)
    axes.set_xlabel("σ · rows / (curvature · mean ‖x‖²)")
    axes.set_ylabel("test accuracy after 3 epochs, minus the best")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
