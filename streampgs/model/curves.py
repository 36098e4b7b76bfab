"""The curves of a model: what each value of a number adds to the score, as numbers and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streampgs.base.errors import OptionError
from streampgs.encoding.kinds import of_family
from streampgs.encoding.kinds.curve import Curve
from streampgs.encoding.scales import LARGEST_NUMBER
from streampgs.losses import Vector
from streampgs.model.model import Model
from streampgs.model.pictures import figure_for

_MOST_DRAWN, _COLUMNS = 12, 3


def curves_of(model: Model) -> list[dict[str, Any]]:
    """For each target and column with a curve the effects at its knots: what they add to the score, compared with the mean of
    the knots. The curves with the largest range are first."""
    if model.encoding is None or model.kernel is not None:
        return []
    found = []
    for target, weights in zip(model.targets, np.atleast_2d(model.coef_), strict=True):
        for name, knots, effects in _curves(model, weights):
            effects = effects - effects.mean()
            points = [[float(knot), float(effect)] for knot, effect in zip(knots, effects, strict=True)]
            found.append({"target": target, "column": name, "range": float(np.ptp(effects)), "points": points})
    return sorted(found, key=lambda curve: -curve["range"])


def _curves(model: Model, weights: Vector) -> Iterator[tuple[str, Vector, Vector]]:
    assert model.encoding is not None
    for generation in reversed(model.encoding.generations):
        columns = {column.name: column for column in generation.columns}
        for curve, _ in of_family(generation.columns, Curve):
            number, knots = columns[curve.parts[0]], np.asarray(curve.knots[0])
            first, straight = (generation.first_feature + generation.first_of[one.name] for one in (curve, number))
            centre, scale = (number.centre[0], number.scale[0]) if number.scale else (0.0, 1.0)
            line = np.clip((knots - centre) * scale, -LARGEST_NUMBER, LARGEST_NUMBER) if number.scale else knots
            yield number.name, knots, weights[first : first + len(knots)] + weights[straight] * line


def draw_curves(curves: Sequence[dict[str, Any]], file: Path) -> None:
    """A picture for each curve, the largest ones first; of several targets, each in a colour."""
    if not curves:
        raise OptionError("--curves for a model without curves", "train with `--numbers curves`")
    figure = figure_for("--curves", file, 1.0)
    names = list(dict.fromkeys(curve["column"] for curve in curves))[:_MOST_DRAWN]
    lines = math.ceil(len(names) / _COLUMNS)
    figure.set_size_inches(9.0, 0.5 + 2.3 * lines)
    panels = figure.subplots(lines, min(_COLUMNS, len(names)), squeeze=False, sharey=True).ravel()
    targets = list(dict.fromkeys(curve["target"] for curve in curves))
    for name, axes in zip(names, panels, strict=False):
        for curve in curves:
            if curve["column"] == name:
                knots, effects = zip(*curve["points"], strict=True)
                colour = f"C{targets.index(curve['target']) % 10}"
                axes.plot(knots, effects, marker=".", color=colour, label=curve["target"])
        axes.axhline(0.0, color="0.8", linewidth=1.0, zorder=0)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=8)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    if len(targets) > 1:
        panels[0].legend(fontsize=7)
    figure.supylabel("added to the score", fontsize=9)
    figure.savefig(file, dpi=150)
