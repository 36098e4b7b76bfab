"""Each cell of the table of solvers in docs/solvers.md: where it says yes, a run works; where it says no, the options are
refused, and the error says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streampgs
from scripts.solver_table import CAPABILITIES, PAGE, Capability, Column, columns, takes_loss, written
from streampgs.base.errors import DataChanged, OptionError, StreampgsError
from streampgs.losses import LOSSES
from streampgs.model.evaluation import evaluate
from streampgs.options.commands import ModelOptions
from tests.end_to_end import streaming

ROWS, FEATURES = 400, 8
USUAL: dict[str, Any] = {"window": "60kB", "memory": "60MB", "epochs": 2}
QUICK = {"sigma": 1e-2, "step": 0.1}
with_options = [capability for capability in CAPABILITIES if capability.options]
every_solver = pytest.mark.parametrize("column", columns(), ids=lambda column: column.title.replace("`", ""))
CAPABILITY = {capability.title: capability for capability in CAPABILITIES}


def rows(seed: int = 0, classes: int = 2) -> pa.Table:
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(ROWS, FEATURES)).astype(np.float32)
    scores = x @ np.random.default_rng(9).normal(size=(FEATURES, classes))
    labels = scores.argmax(axis=1).astype(float) if classes > 2 else np.where(scores[:, 0] > 0.0, 1.0, -1.0)
    features = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), FEATURES)
    return pa.table({"label": labels, "other": -labels, "features": features})


def write(path: Path, seed: int = 0, classes: int = 2) -> None:
    path.parent.mkdir(exist_ok=True)
    table = rows(seed, classes)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for shard in range(2):
        write(tmp_path / "table" / f"{shard}.arrow", shard)
    return tmp_path / "table"


def options_of(column: Column, **more: Any) -> dict[str, Any]:
    """With values for all numbers that would be searched for, to be quick."""
    given = {name: value for name, value in QUICK.items() if name in column.solver.options}
    return {**USUAL, **given, **column.options, **more}


def expected(column: Column, title: str, action: Callable[[], Any], error: type[StreampgsError] = OptionError) -> Any:
    """The result of the action if the table says yes. Else it is refused."""
    if CAPABILITY[title].has(column):
        return action()
    with pytest.raises(error) as raised:
        action()
    assert raised.value.remedy
    return None


@every_solver
@pytest.mark.parametrize("capability", with_options, ids=lambda capability: capability.title)
def test_options_work_or_are_refused(column: Column, capability: Capability, table: Path, tmp_path: Path) -> None:
    options = options_of(column, **capability.options)
    report = expected(
        column, capability.title, lambda: streampgs.train(table, run=tmp_path / "run", ignore="other", **options)
    )
    if report is not None:
        model = streampgs.Model.load(tmp_path / "run")
        assert np.isfinite(model.coef_).all()
        assert report.gap is not None or "target_gap" not in capability.options


@every_solver
def test_streams(column: Column, tmp_path: Path) -> None:
    data = streaming.written(rows().drop_columns("other"), [50])
    options = {name: value for name, value in options_of(column).items() if name not in USUAL}
    report = expected(column, "streams", lambda: streaming.train(data, tmp_path / "run", **options))
    assert report is None or report.rows >= ROWS


@every_solver
def test_lists_train_next_to_each_other(column: Column, table: Path, tmp_path: Path) -> None:
    name = next(name for name in ("l1", "sigma") if name in column.solver.options)
    options = options_of(column, **{name: (1e-3, 1e-2), "validation": str(table)})
    report = streampgs.train(table, run=tmp_path / "run", ignore="other", **options)
    assert report.lanes == 2


@every_solver
def test_classes_and_labels(column: Column, table: Path, tmp_path: Path) -> None:
    options = options_of(column)
    several = streampgs.train(table, run=tmp_path / "labels", label=("label", "other"), **options)
    assert several.lanes == 2
    for shard in range(2):
        write(tmp_path / "classes" / f"{shard}.arrow", shard, classes=3)
    report = streampgs.train(tmp_path / "classes", run=tmp_path / "run", ignore="other", **options)
    assert report.lanes == 3
    assert evaluate(streampgs.Model.load(tmp_path / "run"), [str(tmp_path / "classes")])["accuracy"] > 0.5


@every_solver
@pytest.mark.parametrize("values", [1, 2])
def test_pauses_leave_no_trace(column: Column, values: int, table: Path, tmp_path: Path) -> None:
    """Two values of an option are also trained by two threads, if the solver takes threads."""
    options = options_of(column, ignore="other", epochs=4)
    if values == 2:
        options[next(name for name in ("l1", "sigma") if name in column.solver.options)] = (1e-3, 1e-2)
        options |= {"threads": 2} if CAPABILITY["`--threads`"].has(column) else {}
    whole = streampgs.train(table, run=tmp_path / "whole", **options)
    streampgs.train(table, run=tmp_path / "paused", **{**options, "epochs": None, "rows": 1})
    for rows in (333, 2 * ROWS - 1, 2 * ROWS, 2 * ROWS + 1, whole.rows - 5):
        streampgs.resume(tmp_path / "paused", rows=rows)
    paused = streampgs.resume(tmp_path / "paused", epochs=4)
    assert (paused.dual_sha256, paused.gap, paused.chosen) == (whole.dual_sha256, whole.gap, whole.chosen)


@every_solver
def test_tables_grow_and_shards_are_deleted(column: Column, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    before = streampgs.train(table, run=run, **options_of(column, ignore="other"))
    write(table / "2.arrow", 2)
    grown = streampgs.resume(run)
    assert grown.rows > before.rows
    assert grown.dual_sha256 != before.dual_sha256
    (table / "0.arrow").unlink()
    title = "continues without deleted shards"
    report = expected(column, title, lambda: streampgs.resume(run, accept_changes=True, epochs="+1"), DataChanged)
    if report is not None:
        assert report.rows >= grown.rows + 2 * ROWS


@every_solver
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_work_or_are_refused(column: Column, loss: str) -> None:
    if takes_loss(column, loss):
        ModelOptions(**{**column.options, "loss": loss})
    else:
        with pytest.raises(OptionError) as raised:
            ModelOptions(**{**column.options, "loss": loss})
            column.spec(loss)
        assert raised.value.remedy


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()
    assert page == written(page), "run: python scripts/solver_table.py"
