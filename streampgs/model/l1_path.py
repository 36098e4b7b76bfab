"""The path of a run with several values of l1: how weights and quality change with it, as numbers and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.errors import OptionError
from streampgs.learn.lane_spec import LaneSpec
from streampgs.model.model import Model
from streampgs.model.pictures import figure_for
from streampgs.options.solvers import SOLVERS, solver_of
from streampgs.run.quality import progressive_of
from streampgs.selection.race import Race
from streampgs.selection.returned import nonzeros_and_zeros

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMED = 8  # features that have a colour and a name
_DRAWN = 60  # the others are grey


def path_of(race: Race) -> list[dict[str, Any]]:
    """For each l1, in descending order: loss and accuracy, and how many weights are not zero. Where other numbers vary, too,
    those of the best model. `judged_on` names the rows on which loss and accuracy were measured."""
    if "l1" not in race.candidates[0].choices:
        return []
    places = _places(race)
    return [_point(race, place) for place in places] if len(places) > 1 else []


def _places(race: Race) -> list[int]:
    """The candidates of the path, by their places among those left, the largest l1 first."""
    left = [race.candidates[number] for number in race.progress.left]
    alike = [place for place, one in enumerate(left) if _others(one) == _others(race.leading())]
    return sorted(alike, key=lambda place: -left[place].own.l1)


def _others(candidate: LaneSpec) -> tuple[object, ...]:
    own = {name: number for name, number in candidate.choices.items() if name != "l1"}
    return (candidate.loss, *own.items())


WHEN = {
    "judged": "at the last comparison",
    "training": "on the rows of training",
    "progressive": "before training on each row",
}
"""Which loss and accuracy a path shows, by `judged_on`."""


def _point(race: Race, place: int) -> dict[str, Any]:
    marks, lanes = race.progress.marks, _lanes(race, place)
    progressive, correct = progressive_of(race.lanes, lanes)
    solver = SOLVERS[solver_of(race.lanes.specs[lanes[0]].learner)]
    kind = "training" if solver.needs.columns else "progressive"
    nonzeros, zeros = nonzeros_and_zeros(race.lanes, lanes)
    return {
        "l1": race.candidates[race.progress.left[place]].own.l1,
        "judged_on": "judged" if marks else kind,
        "loss": marks[-1].losses[place] if marks else progressive,
        "accuracy": marks[-1].accuracies[place] if marks else correct,
        "nonzeros": nonzeros,
        "zeros": zeros,
        "leads": place == race.leader(),
    }


def _lanes(race: Race, place: int) -> range:
    count = len(race.targets)
    return range(place * count, (place + 1) * count)


def draw_path(race: Race, model: Model, file: Path) -> None:
    """Weights above, quality and the number of weights below, against l1."""
    points = path_of(race)
    if not points:
        raise OptionError(
            "--path for a run without several values of --l1",
            "train with several, like `--l1 1e-2,1e-3,1e-4`; solvers with steps need a --step, or they keep only the best l1",
        )
    if len(race.targets) > 1:
        raise OptionError(
            f"--path for a model of {len(race.targets)} classes or labels",
            "leave --path out: the table of the path has them all",
        )
    figure = figure_for("--path", file, 7.0)
    weights = np.array([race.lanes.predictor(_lanes(race, place)[0])[0] for place in _places(race)])
    l1 = [point["l1"] for point in points]
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    # Logarithmic, with room for 0.
    above.set_xscale("symlog", linthresh=min((value for value in l1 if value > 0.0), default=1.0))
    _draw_weights(above, l1, weights, model)
    _draw_quality(below, l1, points)
    for best in (point["l1"] for point in points if point["leads"]):
        above.axvline(best, color="0.6", linestyle="--", linewidth=1.0)
        below.axvline(best, color="0.6", linestyle="--", linewidth=1.0)
    figure.savefig(file, dpi=150)


def _draw_weights(axes: Axes, l1: Sequence[float], weights: NDArray[np.float64], model: Model) -> None:
    largest = np.argsort(-np.abs(weights).max(axis=0), kind="stable")[:_DRAWN]
    for rank, place in enumerate(map(int, largest)):
        how = {"marker": ".", "label": model.name_of(place)} if rank < _NAMED else {"color": "0.8", "zorder": 1}
        axes.plot(l1, weights[:, place] * model.sign_of(place), **how)
    axes.set(ylabel="weight", title=f"Weights against l1: the {len(largest):,} largest of {weights.shape[1]:,}")
    axes.legend(fontsize=8, title="largest weights")


def _draw_quality(axes: Axes, l1: Sequence[float], points: Sequence[dict[str, Any]]) -> None:
    name = "loss" if any(point["accuracy"] is None for point in points) else "accuracy"
    counts = axes.twinx()
    label = f"{name} {WHEN[points[0]['judged_on']]}"
    lines = axes.plot(l1, [point[name] for point in points], marker="o", color="C0", label=label)
    nonzeros = [point["nonzeros"] for point in points]
    lines += counts.plot(l1, nonzeros, marker="s", color="C1", label="weights that are not zero")
    axes.set(ylabel=name, xlabel="l1 (dashed: the best model)")
    counts.set(ylabel="weights that are not zero", yscale="symlog", ylim=(0.0, None))
    axes.legend(handles=lines, fontsize=8)
