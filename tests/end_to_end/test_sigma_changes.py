"""σ may change when a run is resumed: the weights stay, the history records it, and pauses make no difference."""

from __future__ import annotations

import hashlib
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import streampgs
from streampgs.learn.lanes import Lanes
from streampgs.run.saved import saved_run
from tests.end_to_end.conftest import ROWS, Tables

SMALL = {"memory": "60MB", "window": "200kB"}


def lanes_of(run: Path) -> Lanes:
    return saved_run(run).race.lanes


def iterates(lanes: Lanes) -> list[np.ndarray]:
    """The last iterate of each lane."""
    return [
        group.learner._iterate(group.state, lane) for group in lanes.groups for lane in range(len(group.learner.specs))
    ]


@pytest.mark.parametrize("returns", ["last", "suffix", "average", "random"])
@pytest.mark.parametrize("p", [2.0, 1.5])
def test_weights_stay_where_sigma_changes(p: float, returns: str, tables: Tables, tmp_path: Path) -> None:
    run = tmp_path / "run"
    source = tables.path("sparse", "arrow")
    streampgs.train(source, run=run, sigma=1e-3, p=p, returns=returns, rows=ROWS // 2, **SMALL)
    before = lanes_of(run)
    spec = before.specs[0]
    specs = [replace(spec, sigma=sigma, own=replace(spec.own, t0=7.0)) for sigma in (1e-3, 1e-5)]
    after = lanes_of(run)
    after.continue_from(specs, [0, 0])
    assert after.steps == before.steps
    last, kept, dual = iterates(before)[0], before.weights(0), before.groups[0].state["dual"][:, 0]
    for lane, iterate in enumerate(iterates(after)):
        np.testing.assert_allclose(iterate, last, rtol=1e-9, atol=1e-300)
        expected = kept if returns == "random" else last
        np.testing.assert_allclose(after.weights(lane), expected, rtol=1e-9, atol=1e-300)
    assert after.digest() == hashlib.sha256(2 * dual.tobytes()).hexdigest()


def test_sigma_is_searched_for_again(tables: Tables, tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(tables.path("sparse", "arrow"), run=run, sigma=30.0, epochs=1, **SMALL)
    report = streampgs.resume(run, sigma="auto", epochs=2)
    assert report.lanes == 1
    assert report.chosen is not None
    assert report.chosen["sigma"] < 1.0


@pytest.mark.parametrize("sigma", [1e-5, "auto", (1e-4, 1e-5)])
def test_pauses_around_the_change_make_no_difference(
    sigma: float | str | tuple[float, ...], tables: Tables, tmp_path: Path
) -> None:
    chance = random.Random(3)
    digests = set()
    for attempt in range(3):
        run = tmp_path / f"run-{attempt}"
        streampgs.train(tables.path("dense", "arrow"), run=run, sigma=1e-2, rows=ROWS // 3, **SMALL)
        rows = ROWS // 3 + 1 if attempt else 2 * ROWS
        streampgs.resume(run, sigma=sigma, rows=rows)
        for _ in range(3 * attempt):
            rows = min(2 * ROWS, rows + chance.randrange(1, ROWS // 2))
            shutil.rmtree(run / "cache", ignore_errors=True)
            streampgs.resume(run, rows=rows)
        digests.add(streampgs.resume(run, epochs=3).dual_sha256)
    assert len(digests) == 1
