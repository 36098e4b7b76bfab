"""The pictures of docs/papers/pgs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.papers.finished import Cell
from scripts.papers.pgs.plan import LOGISTIC, Plan
from scripts.papers.pgs.summary import (
    FIGURE,
    NEVER,
    SECONDS,
    VISITS,
    Spread,
    files_reached,
    reached,
    those,
    toy_iterations,
)

_NAMES = {VISITS: "row visits", SECONDS: "seconds (CPU, one thread)"}


def draw(cells: list[Cell], plan: Plan, folder: Path) -> None:
    """The pictures for which there are cells."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name, picture in (
        ("inverse", _inverse),
        ("climbs", _climbs),
        ("files", _files),
        ("steps", _steps),
        ("toys", _toys),
    ):
        figure = picture(pyplot, cells, plan)
        if figure is not None:
            figure.savefig(folder / f"{name}.png", dpi=100)
            pyplot.close(figure)


def _line(place: Any, cells: list[Cell], spread: Callable[[Cell], Spread], **style: Any) -> bool:
    """The medians, with the quartiles as a band; where the median is `never`, there is no point."""
    found = [(cell["rows"], each) for cell in cells if (each := spread(cell)).median != NEVER]
    if not found:
        return False
    rows = [number for number, _ in found]
    (drawn,) = place.plot(rows, [each.median for _, each in found], marker=".", **style)
    high = [each.median if each.high == NEVER else each.high for _, each in found]
    place.fill_between(rows, [each.low for _, each in found], high, alpha=0.15, color=drawn.get_color(), linewidth=0)
    return True


def _name_line(place: Any, name: str) -> None:
    """At the end of the newest line: a legend would hide other lines."""
    line = place.lines[-1]
    end = line.get_xdata()[-1], line.get_ydata()[-1]
    place.annotate(name, end, (4, 0), textcoords="offset points", color=line.get_color(), fontsize=7, va="center")


def _short(number: float, _: Any = None) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def _finish(place: Any, title: str, y: str, x: str = "rows of the table") -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    place.set(xscale="log", yscale="log", title=title, ylabel=y, xlabel=x)
    for axis in (place.xaxis, place.yaxis):
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,)))
        axis.set_major_formatter(_short)
        axis.set_minor_formatter(NullFormatter())
    place.grid(alpha=0.3, which="both")
    if place.get_legend_handles_labels()[1]:
        place.legend(fontsize=8)


def _inverse(pyplot: Any, cells: list[Cell], plan: Plan) -> Any:
    """Seconds and row visits to fixed accuracies, of PGS and of L-BFGS."""
    ours = those(cells, experiment="climb", table="synthetic", method=LOGISTIC.name)
    limits = plan.limits.as_list()
    batch = those(cells, experiment="batch", table="synthetic", method=LOGISTIC.name, limits=limits)
    if not ours:
        return None
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.5, 4.0), layout="constrained")
    for place, what in ((left, VISITS), (right, SECONDS)):
        for number, target in enumerate(plan.targets["synthetic"][2:]):
            style = {"color": f"C{number}", "label": f"accuracy {target:g}"}
            _line(place, ours, lambda cell, target=target, what=what: reached(cell, target, what), **style)
            if what == SECONDS:
                style = {"color": f"C{number}", "linestyle": "--"}
                _line(place, batch, lambda cell, target=target: reached(cell, target, SECONDS), **style)
    if batch:
        right.plot([], [], color="gray", linestyle="--", label="the same with L-BFGS")
    _finish(left, "Rows visited until an accuracy", _NAMES[VISITS])
    _finish(right, "Seconds until an accuracy", _NAMES[SECONDS])
    for place in (left, right):
        if place.get_legend() is not None:
            place.get_legend().remove()
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
    return figure


def _climbs(pyplot: Any, cells: list[Cell], plan: Plan) -> Any:
    """Row visits by method and table: Figures 6 to 8."""
    here = those(cells, experiment="climb")
    # One point is no curve.
    pairs = [
        pair
        for pair in dict.fromkeys((cell["table"], cell["method"]) for cell in here)
        if len(those(here, table=pair[0], method=pair[1])) > 1
    ]
    if not pairs:
        return None
    columns = next((each for each in (3, 4, 2) if len(pairs) % each == 0), min(3, len(pairs)))  # no empty place
    figure, axes = pyplot.subplots(
        -(-len(pairs) // columns),
        columns,
        figsize=(3.6 * columns, 3.3 * -(-len(pairs) // columns)),
        squeeze=False,
        layout="constrained",
    )
    for place in axes.flat[len(pairs) :]:
        place.axis("off")
    for place, (table, method) in zip(axes.flat, pairs, strict=False):
        for target in plan.targets[table]:
            chosen = those(here, table=table, method=method)
            if _line(place, chosen, lambda cell, target=target: reached(cell, target, VISITS)):
                _name_line(place, f"{target:g}")
        place.margins(x=0.15)
        _finish(place, f"{table}\n{method}", _NAMES[VISITS])
        place.title.set_fontsize(9)
    return figure


def _files(pyplot: Any, cells: list[Cell], plan: Plan) -> Any:
    here = those(cells, experiment="files")
    if not here:
        return None
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    for place, what in ((left, VISITS), (right, SECONDS)):
        for method in dict.fromkeys(cell["method"] for cell in here):
            chosen = those(here, method=method)
            _line(place, chosen, lambda cell, what=what: files_reached(cell, what), label=f"accuracy {method}")
    _finish(left, "streampgs train: rows visited", _NAMES[VISITS])
    _finish(right, "streampgs train: the whole call", "seconds (CPU, all threads)")
    right.set_ylim(0.1, 10.0)
    return figure


def _steps(pyplot: Any, cells: list[Cell], plan: Plan) -> Any:
    """Accuracy against seconds: k, and the cost of a step."""
    here = [
        cell
        for experiment in ("climb", "printed")
        for cell in those(cells, experiment=experiment, table="synthetic", rows=plan.rows_of_the_paper)
        if "logistic" in cell["method"] and "as printed" in cell["method"]
    ]
    if len(here) < 2:
        return None
    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 3.8), sharey=True, layout="constrained")
    for place, norm in zip(axes, ("p = 2", "p = 1.8"), strict=True):
        for cell in here:
            method = cell["method"].removeprefix("logistic, ").removesuffix(", as printed")
            if method.startswith(f"{norm},"):
                slow = cell["experiment"] == "printed"
                cost = "O(n)" if slow else "O(nonzeros)"
                run = [look for look in cell["runs"][0] if look[SECONDS] > 0.0]
                place.plot(
                    [look[SECONDS] for look in run], [look[FIGURE] for look in run],
                    linestyle="--" if slow else "-", label=f"{method.partition(', ')[2]}, step {cost}",
                )  # fmt: skip
        place.set(xscale="log", xlabel=_NAMES[SECONDS], title=norm, ylim=(0.7, None))
        place.grid(alpha=0.3, which="both")
        if place.get_legend_handles_labels()[1]:
            place.legend(fontsize=8)
    axes[0].set_ylabel("accuracy on test rows")
    return figure


def _toys(pyplot: Any, cells: list[Cell], plan: Plan) -> Any:
    """Figure 9."""
    here = those(cells, experiment="toy")
    if not here:
        return None
    figure, place = pyplot.subplots(figsize=(5.6, 3.8), layout="constrained")
    for number, table in enumerate(dict.fromkeys(cell["table"] for cell in here)):
        for method in dict.fromkeys(cell["method"] for cell in here):
            paper = method.endswith("as printed")
            style = {"color": f"C{number}", "linestyle": "--" if paper else "-"}
            label = f"{table}, {'t0 = 1, last iterate' if paper else 'average'}"
            _line(place, those(here, table=table, method=method), toy_iterations, label=label, **style)
    _finish(place, "Gaussian sets: iterations until ‖w* − w‖ ≤ .05", "iterations")
    return figure
