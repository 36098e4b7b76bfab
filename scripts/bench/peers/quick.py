"""Ratios of speeds that show within a minute whether something became slower.

The two speeds of a ratio are measured in turns on the same rows in the same process, so that other load on the machine
affects both; the median of the turns counts. Larger is always better.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier

import streampgs
from scripts.bench.bare_loop import bare_rows_per_second, windows_in_memory
from streampgs.options.commands import Resources
from streampgs.packing.synth import write_dataset
from streampgs.reading.window import Window

TURNS = 7
_SHARDS = 4
_DENSE_ROWS_PER_SPARSE = 4  # a dense row of 28 takes a quarter of the time
_ROWS_OF_A_TRAINING = 4_000_000
_MOST_EPOCHS = 20
_LANES = 16

Speed = Callable[[], float]
"""Rows/s."""
Pairs = dict[str, tuple[Speed, Speed]]
"""Name of a ratio → the two speeds."""


@dataclass(frozen=True)
class Workload:
    """Rows on disk as Arrow shards, and in memory in the order in which a run visits them."""

    kind: str
    data: Path
    rows: int
    windows: list[Window]


@dataclass(frozen=True)
class Workloads:
    sparse: Workload
    dense: Workload


def measure(folder: Path, rows: int, turns: int = TURNS) -> dict[str, Any]:
    workloads = Workloads(
        sparse=_workload(folder, "sparse", rows), dense=_workload(folder, "dense", rows * _DENSE_ROWS_PER_SPARSE)
    )
    pairs = loop_and_sklearn(workloads) | pipeline_and_loop(workloads) | lanes_and_one_lane(workloads)
    return {"rows": rows, "turns": turns, "ratios": {name: _ratio(*pair, turns) for name, pair in pairs.items()}}


def _workload(folder: Path, kind: str, rows: int) -> Workload:
    data = folder / kind
    write_dataset(data, rows=rows, kind=kind, shards=_SHARDS, format="arrow", seed=0)
    return Workload(kind, data, rows, windows_in_memory(str(data), Resources(), count=rows))


def _ratio(speed: Speed, reference: Speed, turns: int) -> float:
    speed(), reference()  # compiles and warms up the caches
    return statistics.median(speed() / reference() for _ in range(turns))


# --------------------------------------------------------------------------------------------- pairs of speeds


def loop_and_sklearn(workloads: Workloads) -> Pairs:
    """Logistic regression in one thread on the same rows in memory, in visiting order, with and without averaging.

    By default scikit-learn shuffles, which causes random memory access and costs it half its speed; with ratios for both.
    """
    windows = workloads.sparse.windows
    features = max(window.features for window in windows)
    rows = [(matrix(window, features), window.labels.copy()) for window in windows]
    return {
        f"loop_over_sklearn_{'averaged' if average else 'last'}{'_shuffling' if shuffle else ''}": (
            partial(bare_rows_per_second, windows, "sparse", returns="suffix" if average else "last"),
            partial(sklearn_speed, rows, average, shuffle),
        )
        for average in (True, False)
        for shuffle in (False, True)
    }


def pipeline_and_loop(workloads: Workloads) -> Pairs:
    """Training from Arrow shards in the page cache, relative to the same steps on rows in memory."""
    return {
        f"pipeline_over_loop_{workload.kind}": (
            partial(_training_speed, workload),
            partial(bare_rows_per_second, workload.windows, workload.kind),
        )
        for workload in (workloads.sparse, workloads.dense)
    }


def lanes_and_one_lane(workloads: Workloads) -> Pairs:
    """Rows/s of many models on the same rows relative to one model, without averages."""
    speed = partial(bare_rows_per_second, workloads.sparse.windows, "sparse", returns="last")
    return {f"lanes_{_LANES}_over_1": (partial(speed, lanes=_LANES), speed)}


# ------------------------------------------------------------------------------------------------------- speeds


def matrix(window: Window, features: int) -> Any:
    if not window.indices.size:
        return window.values.reshape(len(window), features)
    offsets = np.append(window.starts, window.stops[-1])
    return csr_matrix((window.values, window.indices.view(np.int32), offsets), shape=(len(window), features))


def sklearn_speed(rows: list[tuple[csr_matrix, Any]], average: bool, shuffle: bool) -> float:
    model = SGDClassifier(loss="log_loss", alpha=1e-6, average=average, shuffle=shuffle)
    began = time.perf_counter()
    for features, labels in rows:
        model.partial_fit(features, labels, classes=[-1.0, 1.0])
    return sum(len(labels) for _, labels in rows) / (time.perf_counter() - began)


def _training_speed(workload: Workload) -> float:
    epochs = max(2, min(_MOST_EPOCHS, _ROWS_OF_A_TRAINING // workload.rows))
    with TemporaryDirectory() as folder:
        report = streampgs.train(workload.data, run=Path(folder) / "run", sigma=1e-6, epochs=epochs)
    return report.rows_per_second
