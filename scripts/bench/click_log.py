"""Held-out loss of a click log by σ, next to the σ that a run chooses.

    python -m scripts.bench.click_log [--rows 2000000] [--folder FOLDER] [--sigmas 5e-6,1e-5,…]

Generates rows like those of a log of advertisements: 13 counts with heavy tails and nulls, 26 columns of hexadecimal strings
whose numbers of values follow a power law, 26 % positive labels, and a planted model with four crosses. Then trains a run with
`--sigma auto` and one for each σ of a grid, all with the other defaults, and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import streampgs
from scripts.machine import machine_line

COUNTS, STRINGS, CROSSES = 13, 26, 4
VALUES = [round(10.0 * 20_000.0 ** (k / (STRINGS - 1))) for k in range(STRINGS)]
"""How many values each column of strings has: 10 to 200,000."""
TEST_ROWS, BATCH_ROWS = 200_000, 250_000
POSITIVE = 0.26
SIGMAS = [4e-6, 8e-6, 1.6e-5, 3.2e-5, 6.4e-5, 1.3e-4, 2.6e-4]


class ClickLog:
    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self._effects = [draw.normal(size=values) * draw.choice([0.05, 0.3]) for values in VALUES]
        self._slopes = draw.normal(size=COUNTS) * 0.15
        self._pairs = [tuple(draw.choice(12, 2, replace=False)) for _ in range(CROSSES)]
        self._crosses = [draw.normal(size=(VALUES[a], VALUES[b])) * 0.4 for a, b in self._pairs]
        self._constant = 0.0
        self._constant = self._constant_for(draw)

    def _constant_for(self, draw: np.random.Generator) -> float:
        scores = np.sort(self._scores(*self._columns(50_000, draw)))
        low, high = -20.0, 20.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.mean(1.0 / (1.0 + np.exp(-scores - middle))) < POSITIVE else (low, middle)
        return low

    def _columns(self, rows: int, draw: np.random.Generator) -> tuple[NDArray[np.float64], list[NDArray[np.int64]]]:
        counts = np.floor(np.exp(draw.normal(1.5, 1.5, size=(rows, COUNTS))))
        counts[draw.random(counts.shape) < 0.15] = np.nan
        ranks = [np.minimum(draw.zipf(1.2, size=rows) - 1, 10**9) % values for values in VALUES]
        return counts, ranks

    def _scores(self, counts: NDArray[np.float64], ranks: list[NDArray[np.int64]]) -> NDArray[np.float64]:
        scores = np.nan_to_num(np.log1p(counts) - 1.5) @ self._slopes + self._constant
        for effects, rank in zip(self._effects, ranks, strict=True):
            scores += effects[rank]
        for (a, b), effects in zip(self._pairs, self._crosses, strict=True):
            scores += effects[ranks[a], ranks[b]]
        return scores

    def table(self, rows: int, seed: int) -> pa.Table:
        draw = np.random.default_rng(seed)
        counts, ranks = self._columns(rows, draw)
        scores = self._scores(counts, ranks)
        columns = {"label": pa.array((scores + draw.logistic(size=rows) > 0.0).astype(np.int8))}
        for k in range(COUNTS):
            columns[f"I{k + 1}"] = pa.array(counts[:, k], pa.int64(), from_pandas=True, safe=False)
        for k, rank in enumerate(ranks):
            names = pa.array([f"{(v * 2654435761 + k) % 2**32:08x}" for v in range(VALUES[k])])
            columns[f"C{k + 1}"] = pa.DictionaryArray.from_arrays(pa.array(rank, pa.int32()), names).cast(pa.string())
        return pa.table(columns)


def write(folder: Path, rows: int) -> tuple[Path, Path]:
    log, train, test = ClickLog(), folder / f"clicks-{rows}", folder / f"clicks-test-{TEST_ROWS}"
    for path, count, seed in ((train, rows, 1), (test, TEST_ROWS, 10_000)):
        if not path.exists():
            path.mkdir(parents=True)
            for part in range(-(-count // BATCH_ROWS)):
                size = min(BATCH_ROWS, count - part * BATCH_ROWS)
                pq.write_table(log.table(size, seed + part), path / f"part-{part}.parquet")
    return train, test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, help="where the rows stay; default: a temporary folder")
    parser.add_argument("--sigmas", default=",".join(map(str, SIGMAS)))
    arguments = parser.parse_args()
    print(machine_line())
    with tempfile.TemporaryDirectory() as temporary:
        train, test = write(arguments.folder or Path(temporary), arguments.rows)
        print("\n| σ given | σ used | log loss | seconds |\n|---|---|---|---|")
        for given in ["auto", *map(float, arguments.sigmas.split(","))]:
            began, run = time.perf_counter(), Path(temporary) / f"run-{given}"
            streampgs.train(str(train), run=run, sigma=given, progress=False)
            seconds = time.perf_counter() - began
            loss = streampgs.evaluate(run, str(test))["log_loss"]
            used = streampgs.Model.load(run).settings.sigma
            print(f"| {given} | {used:.3g} | {loss:.4f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
