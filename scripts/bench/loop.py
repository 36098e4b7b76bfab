"""Rows/s of the bare training loop on rows in memory, stored in visiting order: by averaging, p, lanes and threads,
compared with scikit-learn's SGD on the same rows and with the memory bandwidth of one core. Each figure is the best of
several alternating turns. Run it on an idle machine.

    python -m scripts.bench.loop DATA [DATA …] [--turns 5] [--memory 1GB]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from scripts.bench.bare_loop import bare_rows_per_second, windows_in_memory
from scripts.bench.peers.quick import matrix, sklearn_speed
from scripts.machine import machine_line
from streampgs.options.commands import Resources
from streampgs.options.fields import parse_size
from streampgs.reading.window import Window
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import Columns

Speed = Callable[[], float]


def measured(windows: list[Window], layout: str) -> dict[str, Speed]:
    loop = partial(bare_rows_per_second, windows, layout)
    features = max(window.features for window in windows)
    rows = [(matrix(window, features), window.labels.copy()) for window in windows]
    speeds: dict[str, Speed] = {
        "averaged": loop,
        "last": partial(loop, returns="last"),
        "scikit-learn, averaged": partial(sklearn_speed, rows, True, False),
        "scikit-learn, last": partial(sklearn_speed, rows, False, False),
        "scikit-learn, averaged, shuffling": partial(sklearn_speed, rows, True, True),
        "scikit-learn, last, shuffling": partial(sklearn_speed, rows, False, True),
    }
    speeds |= {f"p {p:g}": partial(loop, p=p) for p in (1.8, 1.5, 1.3)}
    speeds |= {f"{lanes} lanes": partial(loop, lanes=lanes) for lanes in (4, 8, 16)}
    speeds |= {f"{lanes} lanes, last": partial(loop, lanes=lanes, returns="last") for lanes in (4, 8, 16)}
    speeds["20 lanes"] = partial(loop, lanes=20)
    speeds["2 threads"] = partial(loop, threads=2)
    return speeds


def read_bandwidth() -> float:
    """Bytes/s at which one core adds up numbers."""
    numbers = np.ones(1 << 26, np.float32)
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        numbers.sum()
        best = max(best, numbers.nbytes / (time.perf_counter() - began))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--memory", default="1GB", help="memory budget; the first window under it is measured")
    arguments = parser.parse_args()
    print(f"{machine_line()}, one core reads {read_bandwidth() / 1e9:.1f} GB/s")
    for data in arguments.data:
        layout = build_catalog([data], Columns()).kind
        windows = windows_in_memory(data, Resources(memory=parse_size(arguments.memory)), count=1)
        entries = sum(window.entries for window in windows)
        rows = sum(len(window) for window in windows)
        speeds = measured(windows, layout)
        best = dict.fromkeys(speeds, 0.0)
        for _ in range(arguments.turns):
            for name, speed in speeds.items():
                best[name] = max(best[name], speed())
        row_bytes = entries / rows * (8 if layout == "sparse" else 4)
        print(f"\n{data}: {rows:,} {layout} rows of {entries / rows:.0f} entries\n")
        for name, speed in best.items():
            print(
                f"{name:34} {speed / 1e6:6.2f}M rows/s  {speed / best['averaged']:5.2f} of averaged  "
                f"{speed / best['last']:5.2f} of last  {speed * row_bytes / 1e9:5.1f} GB/s of rows",
                flush=True,
            )


if __name__ == "__main__":
    main()
