"""--solver ogd and --solver sgd work with everything that works with the default solver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streampgs
from streampgs.base.errors import Diverged, OptionError
from streampgs.model.evaluation import evaluate
from streampgs.model.inspection import inspect_run

from .test_l1_solvers import SMALL, table, write

__all__ = ["table"]

GIVEN: dict[str, dict[str, Any]] = {
    "ogd": {"solver": "ogd", "sigma": (1e-3, 1e-2)},
    "sgd": {"solver": "sgd", "sigma": (1e-3, 1e-4), "step": 0.1},
}
every_solver = pytest.mark.parametrize("solver", GIVEN)


@every_solver
@pytest.mark.parametrize("searched", ["in a race", "by cross-validation"])
def test_everything_is_found_if_nothing_is_given(table: Path, tmp_path: Path, solver: str, searched: str) -> None:
    write(tmp_path / "test" / "0.arrow", 2000, seed=7)
    report = streampgs.train(
        table, run=tmp_path / "run", solver=solver, epochs=4, **(SMALL if searched == "in a race" else {})
    )
    assert report.lanes == 1
    assert evaluate(streampgs.Model.load(tmp_path / "run"), [str(tmp_path / "test")])["accuracy"] > 0.9


@every_solver
def test_sigma_can_change_and_the_table_can_grow(table: Path, tmp_path: Path, solver: str) -> None:
    run = tmp_path / "run"
    streampgs.train(table, run=run, epochs=2, **GIVEN[solver], **SMALL)
    step = inspect_run(run)["settings"].get("step")
    streampgs.resume(run, sigma="auto", epochs=4)
    assert inspect_run(run)["settings"].get("step") == step
    write(table / "2.arrow", 1000, features=70, seed=5)
    streampgs.resume(run, epochs=4)
    assert sum(inspect_run(run)["update"]["shares"].values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"solver": "ogd", "step": 0.1}, "step with"),
        ({"solver": "ogd", "t0": 1.0}, "t0 with"),
        ({"solver": "sgd", "ball": 1.0}, "ball with"),
        ({"solver": "sgd", "step": 0.5, "sigma": 2.0}, "step=0.5 with sigma=2"),
        ({"solver": "sgd", "step": (0.1, 0.5), "sigma": (0.1, 2.0)}, "step=0.5 with sigma=2"),
        ({"solver": "sgd", "step": 1e7}, "changes the signs"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(options: Any, flag: str, table: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=flag):
        streampgs.train(table, run=tmp_path / "run", epochs=1, **options)


def test_only_values_of_sigma_that_suit_the_step_are_tried(table: Path, tmp_path: Path) -> None:
    """Steps of 300 and the largest of the usual values would change the signs of all weights."""
    streampgs.train(table, run=tmp_path / "run", epochs=1, solver="sgd", step=300.0)
    assert 300.0 * inspect_run(tmp_path / "run")["settings"]["sigma"] < 1.0


def test_steps_that_diverge_are_an_error_that_names_the_option(table: Path, tmp_path: Path) -> None:
    with pytest.raises(Diverged) as raised:
        streampgs.train(
            table, run=tmp_path / "run", epochs=1, solver="sgd", step=50.0, sigma=1e-5, loss="squared-hinge"
        )
    assert "step" in str(raised.value)


@pytest.mark.parametrize("rows", [200, 4000])
def test_a_candidate_that_diverges_is_never_returned(table: Path, tmp_path: Path, rows: int) -> None:
    """Before the first comparison the middle one would lead."""
    options: Any = {"solver": "sgd", "step": (1e-3, 50.0, 1e-2), "sigma": 1e-5, "loss": "squared-hinge"}
    streampgs.train(table, run=tmp_path / "run", rows=rows, **options)
    model = streampgs.Model.load(tmp_path / "run")
    assert np.isfinite(model.coef_).all()
    assert model.settings.own.step < 1.0
    assert [lane["intercept"] is None for lane in inspect_run(tmp_path / "run")["lanes"]] == [False, True, False]


@pytest.mark.parametrize("solver", ["ogd", "sgd", "pgs", "truncated-gradient", "smidas"])
def test_a_class_joins_in_an_update(solver: str, tmp_path: Path) -> None:
    """Its lanes have taken no step when steps are changed for the new rows."""
    for shard, classes in enumerate((3, 4)):
        x = np.random.default_rng(shard).normal(size=(300, 6)).astype(np.float32)
        columns = {"label": np.arange(300.0) % classes, "indices": [np.arange(6)] * 300, "values": list(x)}
        (tmp_path / "table").mkdir(exist_ok=True)
        with pa.ipc.new_file(tmp_path / "table" / f"{shard}.arrow", pa.table(columns).schema) as writer:
            writer.write_table(pa.table(columns))
        if shard == 0:
            own = {"l1": 1e-3} if solver in ("truncated-gradient", "smidas") else {}
            streampgs.train(tmp_path / "table", run=tmp_path / "run", solver=solver, classes="auto", epochs=2, **own)
    assert streampgs.resume(tmp_path / "run").lanes == 4
    assert np.isfinite(streampgs.Model.load(tmp_path / "run").coef_).all()
