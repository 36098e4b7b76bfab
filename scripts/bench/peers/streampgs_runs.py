"""streampgs with its default options, from the call of `train` to the saved model.

Each point of the curve is a separate run that ends there. Its seconds include everything from the catalog to the last
checkpoint, for Parquet also writing the cache. No settings are searched.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.bench.peers.trial import Stopwatch, Task, Trial

_PASSES = (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24)
_LONGEST_OWN_STOP = "60s"
_FEW_ROWS = 1000


def from_parquet(task: Task, trial: Trial) -> None:
    _train(task, trial, task.parquet)


def from_arrow(task: Task, trial: Trial) -> None:
    _train(task, trial, task.arrow)


def _train(task: Task, trial: Trial, data: str) -> None:
    with trial.importing:
        import streampgs.run.start
        from streampgs.model.evaluation import evaluate
    with tempfile.TemporaryDirectory() as folder:
        few_rows = _few_rows(task, Path(folder))
        with trial.preparing:
            streampgs.train(few_rows, run=Path(folder) / "preparing", epochs=1)
        for passes in _PASSES:
            run = Path(folder) / f"{passes:g}"
            # Nothing is read ahead past a limit of epochs; past a limit of rows the next window is.
            limit: dict[str, Any] = (
                {"epochs": int(passes)} if passes == int(passes) else {"rows": math.ceil(passes * task.rows)}
            )
            with Stopwatch() as spent:
                report = streampgs.train(data, run=run, **limit)
            result = evaluate(streampgs.Model.load(run), [task.test])
            trial.add(spent, report.seconds_reading_wait, report.rows, result["accuracy"])
            if trial.is_over:
                break
        trial.notes["own_stop"] = _own_stop(data, Path(folder) / "own-stop", task)
    trial.peak_rss_mb = trial.notes["own_stop"]["peak_rss_mb"]


def _few_rows(task: Task, folder: Path) -> Path:
    """A table of a few rows; training on it compiles or loads all loops."""
    import pyarrow as pa
    from pyarrow import parquet

    from scripts.bench.peers.rows import arrow_batches

    path = folder / "few-rows.parquet"
    parquet.write_table(pa.table(next(arrow_batches(task.test)).slice(0, _FEW_ROWS)), path)
    return path


def _own_stop(data: str, run: Path, task: Task) -> dict[str, Any]:
    """The command with --target-accuracy: when it stops, and the accuracy of its model."""
    target = ["--target-accuracy", str(task.target), "--validation", task.test, "--seconds", _LONGEST_OWN_STOP]
    with Stopwatch() as command:
        report = _streampgs("train", data, "--run", str(run), *target, "--quiet")
    return {
        "stopped_by": report["stopped_by"],
        "passes": report["rows"] / task.rows,
        "seconds": report["seconds_training"] + report["seconds_reading_wait"],
        "seconds_of_command": command.seconds,
        "accuracy": _streampgs("evaluate", str(run), task.test)["accuracy"],
        "peak_rss_mb": report["peak_rss_mb"],
    }


def _streampgs(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "streampgs", *words, "--json"]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return result
