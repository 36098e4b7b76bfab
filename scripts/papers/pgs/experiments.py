"""The measurements. A cell is one table, one method and one number of rows; it holds all runs of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import streampgs
from scripts.papers.finished import Cell
from scripts.papers.pgs.batch import batch_climb
from scripts.papers.pgs.climbs import Look, Method, climb, looks_until, unit_of, visits
from scripts.papers.pgs.printed import printed_climb
from scripts.papers.pgs.rows import SHARD_ROWS, Numbers, Table, synthetic_folder

KEY = ("experiment", "table", "method", "rows", "limits")
NEVER = float("inf")

_FIRST_LOOK, _GROWTH = 2000, 1.2
_SEARCH_SEED, _FIRST_SEED = 1_000, 0
# Sigma is searched in these powers of ten, in units of curvature · mean ‖x‖² / rows.
_OURS, _AS_PRINTED, _BATCH = (-2.5, 1.0), (-1.0, 1.5), (-1.0, 1.0)
_MOST_EPOCHS, _FEWEST_VISITS = 12, 200_000
_INTERCEPT = 0.1
"""The constant feature of the intercept in L-BFGS: that of PGS for rows of length 1."""


@dataclass(frozen=True)
class Limits:
    """How much is measured."""

    runs: int
    visits: int
    iterations: int
    """Of L-BFGS."""
    held_out: int
    seconds: float
    """Of a run of the solver as printed, whose steps cost O(n)."""

    def as_list(self) -> list[float]:
        return [self.runs, self.visits, self.iterations, self.held_out, self.seconds]


def grid(span: tuple[float, float]) -> list[float]:
    first, last = span
    return [10.0 ** (first + place / 2.0) for place in range(round(2 * (last - first)) + 1)]


def subset_of(available: int, rows: int, seed: int) -> Numbers:
    """Other rows for each run, in a random order."""
    return np.random.default_rng([seed, rows]).choice(available, min(rows, available), replace=False)


def _best(looks: list[Look]) -> list[float]:
    return [max(figures) for figures in zip(*(figures for _, _, figures in looks), strict=True)]


def _plain(looks: list[Look]) -> list[list[float]]:
    return [[visited, round(seconds, 5), round(figures[0], 6)] for visited, seconds, figures in looks]


def chosen_sigma(table: Table, method: Method, rows: int, limits: Limits) -> tuple[float, list[list[float]]]:
    """The sigma with the best accuracy on validation rows at any look, and the best accuracy of each sigma."""
    unit = unit_of(table.rows, method, rows)
    steps = grid(_AS_PRINTED if method.paper else _OURS)
    sigmas = tuple(step * unit for step in (steps if method.p == 2.0 else steps[::2]))  # lanes with p < 2 are slow
    looks = looks_until(_FIRST_LOOK, _visits(limits, rows) // 2, 1.5, method.batch)
    subset = subset_of(len(table.rows), rows, _SEARCH_SEED)
    best = _best(climb(table.rows, subset, method, sigmas, looks, table.validation.accuracy, _SEARCH_SEED))
    return sigmas[int(np.argmax(best))], [[sigma, round(found, 5)] for sigma, found in zip(sigmas, best, strict=True)]


def _visits(limits: Limits, rows: int) -> int:
    return min(limits.visits, max(_FEWEST_VISITS, _MOST_EPOCHS * rows))


def climb_cell(
    table: Table, method: Method, rows: int, limits: Limits, until: float, known: tuple[float, Any] | None = None
) -> Cell:
    """Runs of PGS with the sigma that suits so many rows, each until an accuracy on the test rows. `known`: this sigma, and
    how it was found."""
    sigma, searched = known or chosen_sigma(table, method, rows, limits)
    looks = looks_until(_FIRST_LOOK, _visits(limits, rows), _GROWTH, method.batch)
    runs = [
        climb(
            table.rows, subset_of(len(table.rows), rows, seed), method, (sigma,), looks, table.test.accuracy, seed,
            lambda figures: figures[0] >= until,
        )
        for seed in range(_FIRST_SEED, _FIRST_SEED + limits.runs)
    ]  # fmt: skip
    return {"sigma": sigma, "searched": searched, "runs": [_plain(run) for run in runs]}


def batch_cell(table: Table, loss: str, p: float, rows: int, limits: Limits, searched: bool = True) -> Cell:
    """L-BFGS with the sigma that suits so many rows; without a search with the middle of its grid."""
    unit = unit_of(table.rows, Method(loss, p), rows)
    sigmas = [step * unit for step in grid(_BATCH)[::2]] if searched else [unit]
    subset = subset_of(len(table.rows), rows, _FIRST_SEED)
    found = []
    for sigma in sigmas:
        figures: list[float] = []

        def judge(w: Any, constant: float, figures: list[float] = figures) -> float:
            figures.append(table.validation.accuracy(w, constant))
            return table.test.accuracy(w, constant)

        run = batch_climb(table.rows, subset, loss, p, sigma, _INTERCEPT, limits.iterations, judge)
        found.append((max(figures), sigma, run))
    _, sigma, run = max(found, key=lambda each: each[0])
    return {"sigma": sigma, "searched": [[s, round(best, 5)] for best, s, _ in found], "runs": [_plain(run)]}


def printed_cell(
    table: Table, method: Method, rows: int, limits: Limits, known: tuple[float, Any] | None = None
) -> Cell:
    """Figures 1 and 2 with O(n) steps, with the sigma and the draws of the same method in O(nonzeros)."""
    sigma, searched = known or chosen_sigma(table, method, rows, limits)
    looks = looks_until(_FIRST_LOOK, _visits(limits, rows), _GROWTH, method.batch)
    runs = []
    for seed in range(_FIRST_SEED, _FIRST_SEED + max(1, limits.runs // 10)):
        subset = subset_of(len(table.rows), rows, seed)
        parts = visits(subset, seed, independent=True)
        runs.append(
            printed_climb(table.rows, parts, method.batch, method.p, sigma, looks, table.test.accuracy, limits.seconds)
        )
    return {"sigma": sigma, "searched": searched, "runs": [_plain(run) for run in runs]}


def files_cell(work: Path, rows: int, all_rows: int, target: float, limits: Limits) -> Cell:
    """`streampgs train` with its defaults on the first shards of the table until an accuracy on held-out rows. The seconds,
    of the processor and of the clock, are those of the whole call: files are opened, sigma is chosen, rows are read,
    held-out rows are judged, and a checkpoint is written."""
    folder = synthetic_folder(work, all_rows, limits.held_out)
    shards = [str(path) for path in sorted(folder.glob("*.arrow"))[: rows // SHARD_ROWS]]
    test, run = (str(folder.with_name(f"{folder.name}-test")),), work / "run"
    found = []
    epochs = max(1, _visits(limits, rows) // rows)
    for seed in range(-1, max(1, limits.runs // 4)):
        shutil.rmtree(run, ignore_errors=True)
        began, began_processor = time.perf_counter(), time.process_time()
        report = streampgs.train(
            shards, run=run, seed=seed, target_accuracy=target, validation=test, epochs=epochs, progress=False
        )
        seconds, processor = time.perf_counter() - began, time.process_time() - began_processor
        reached = report.stopped_by == "target-accuracy"
        if seed >= 0:  # the first run loads the loops
            found.append([report.rows, round(processor, 4), report.judged_accuracy, reached, round(seconds, 4)])
        if seed == 0 and not reached:
            break
    shutil.rmtree(run, ignore_errors=True)
    return {"runs": found}


Measured = Callable[[], Cell]
