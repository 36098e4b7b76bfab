"""Scales of features by their frequency: the model stays linear, rows keep their mean norm, and the scales are saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streampgs.data.feature_maps import FrequencyScale, MapStage, Numbering, frequency_scale
from streampgs.kernels.rows import Rows

FEATURES, ROWS = 300, 500


def power_law(seed: int = 0) -> Rows:
    """Feature k is in a share of about 1/(k + 1) of the rows."""
    draw = np.random.default_rng(seed)
    there = draw.random((ROWS, FEATURES)) < 1.0 / np.arange(1, FEATURES + 1)
    indices = np.nonzero(there)[1].astype(np.uint32)
    stops = np.cumsum(there.sum(axis=1)).astype(np.int64)
    values = draw.normal(size=len(indices)).astype(np.float32)
    return Rows(stops - there.sum(axis=1), stops, indices, values, features=FEATURES)


def scores(rows: Rows, weights: Any) -> Any:
    products = np.append(rows.values * weights[rows.indices], 0.0)
    return np.array([products[start:stop].sum() for start, stop in zip(rows.starts, rows.stops, strict=True)])


@pytest.mark.parametrize("power", [0.125, 0.5])
def test_scales_follow_the_formula_and_keep_the_mean_norm(power: float) -> None:
    rows = power_law()
    scale = frequency_scale(rows, power, None)
    counts = np.bincount(rows.indices, minlength=FEATURES)[: len(scale.scales)]
    expected = ((counts + 1) / (ROWS + 1)) ** -power
    assert scale.scales / scale.scales[0] == pytest.approx(expected / expected[0], rel=1e-6)
    assert scale.unseen / scale.scales[0] == pytest.approx((ROWS + 1) ** power / expected[0], rel=1e-6)
    assert np.square(scale.scaled(rows).values).sum() == pytest.approx(np.square(rows.values).sum(), rel=1e-5)


def test_a_model_of_scaled_rows_is_a_linear_model_of_the_rows() -> None:
    scale, rows = frequency_scale(power_law(), 0.25, None), power_law(1)
    weights = np.random.default_rng(2).normal(size=FEATURES)
    assert scores(scale.mapped(rows), weights) == pytest.approx(scores(rows, scale.folded(weights)), rel=1e-5)


@pytest.mark.parametrize("numbered", [False, True])
def test_scales_are_saved_and_restored(numbered: bool) -> None:
    rows, numbering = power_law(), Numbering(FEATURES) if numbered else None
    stage = MapStage()
    stage.map = frequency_scale(rows if numbering is None else numbering.taken(rows), 0.25, numbering)
    again = MapStage()
    again.restore(stage.state())
    assert isinstance(again.map, FrequencyScale)
    later = power_law(3)
    first, second = stage.map.taken(later), again.map.taken(later)
    assert first.values.tobytes() == second.values.tobytes()
    assert first.indices.tobytes() == second.indices.tobytes()
    weights = np.random.default_rng(2).normal(size=stage.map.width)
    spread = stage.spread(weights)
    assert spread.tobytes() == again.spread(weights).tobytes()
    assert scores(later, spread) == pytest.approx(scores(first, weights), rel=1e-4)


@pytest.mark.parametrize(
    "damage",
    [
        {"scales": np.array([1.0, -1.0], np.float32)},
        {"scales": np.array([1.0])},
        {"scales": np.full(9, np.nan, np.float32)},
    ],
    ids=["negative", "type", "nan"],
)
def test_damaged_scales_are_refused(damage: dict[str, Any]) -> None:
    stage = MapStage()
    stage.map = frequency_scale(power_law(), 0.25, None)
    bundle = stage.state()
    bundle.arrays.update(damage)
    with pytest.raises(ValueError, match="scale"):
        MapStage().restore(bundle)
