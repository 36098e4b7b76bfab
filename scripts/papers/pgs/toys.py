"""The toy sets of the paper: two normal clouds, and how many iterations find the plane between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from scripts.papers.finished import Cell
from scripts.papers.pgs.climbs import Method, climb, looks_until, unit_of
from scripts.papers.pgs.experiments import grid, subset_of
from scripts.papers.pgs.rows import Floats, Rows
from streampgs.packing.synth import cloud, write_dataset

CLOSE = 0.05
_SEED = 11
_GRID = (-3.0, 3.0)
_PILOTS, _PILOT_SEED = 12, 10_000
_FIRST_LOOK, _GROWTH = 50, 1.06


def toy_rows(work: Path, features: int, rows: int) -> Rows:
    folder = work / f"toy-{features}-{rows}"
    if not folder.exists():
        write_dataset(folder, rows=rows, kind="gaussian", shards=1, seed=_SEED, features=features)
    with pa.ipc.open_file(pa.memory_map(str(next(folder.glob("*.arrow"))))) as reader:
        table = reader.read_all().combine_chunks()
    values = table["features"].chunk(0).values.to_numpy()
    bounds = np.arange(rows + 1, dtype=np.int64) * features
    return Rows(bounds, np.empty(0, np.uint32), values, table["label"].to_numpy().astype(np.float64))


def toy_method(paper: bool) -> Method:
    """The best plane goes through the origin: there is no intercept."""
    return Method(paper=paper, changes={"intercept": 0.0})


def toy_cell(rows: Rows, features: int, used: int, paper: bool, runs: int, visits: int) -> Cell:
    """The iterations of each run until w, scaled to length 1, is close to the best plane; null: never. Sigma is
    chosen with other runs: most of them find the plane with it, and of equally good ones it is the fastest."""
    plane = cloud(_SEED, features).direction
    plane = plane / np.sqrt(plane @ plane)

    def distance(weights: Floats, constant: float) -> float:
        length = float(np.sqrt(weights[1:] @ weights[1:]))
        return float(np.sqrt(((weights[1:] / length - plane) ** 2).sum())) if length > 0.0 else 1.0

    method = toy_method(paper)
    looks = looks_until(_FIRST_LOOK, visits, _GROWTH)
    sigmas = tuple(step * unit_of(rows, method, used) for step in grid(_GRID))
    pilots = []
    for seed in range(_PILOT_SEED, _PILOT_SEED + _PILOTS):
        path = climb(rows, subset_of(len(rows), used, seed), method, sigmas, looks, distance, seed)
        pilots.append([_first(path, lane) or np.inf for lane in range(len(sigmas))])
    reached = np.array(pilots)
    order = np.lexsort((np.median(reached, axis=0), -np.isfinite(reached).sum(axis=0)))
    sigma = sigmas[int(order[0])]
    found = []
    for seed in range(runs):
        path = climb(
            rows, subset_of(len(rows), used, seed), method, (sigma,), looks, distance, seed,
            lambda figures: figures[0] <= CLOSE,
        )  # fmt: skip
        found.append(_first(path, 0))
    return {"sigma": sigma, "iterations": found}


def _first(path: list[tuple[int, float, list[float]]], lane: int) -> int | None:
    return next((visits for visits, _, figures in path if figures[lane] <= CLOSE), None)
