"""How long a model takes to load and to predict: a row, and batches, from Python and as a table of pyarrow.

    python -m scripts.bench.serving [--repeats 50]

Trains on the table of scripts/bench/costs.py (one file of 650,000 rows with 16 columns) and prints a line of Markdown for each
number of rows: the median and the 95th percentile of the wall time of `Model.predict_proba`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from scripts.bench import costs
from scripts.machine import machine_line

_ROWS = (1, 10, 100, 1_000, 10_000, 100_000)
_LOAD = """
import sys, time
began = time.perf_counter()
import streampgs
imported = time.perf_counter()
model = streampgs.Model.load(sys.argv[1])
print(imported - began, time.perf_counter() - imported)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        table, run = Path(scratch) / "table", Path(scratch) / "run"
        costs.write_table(table, 0.0)
        costs.cost_of(table, run, 1)
        measure(run, given.repeats)


def measure(run: Path, repeats: int) -> None:
    import streampgs

    done = subprocess.run([sys.executable, "-c", _LOAD, run], capture_output=True, text=True, check=True)
    importing, loading = map(float, done.stdout.split())
    print(f"{machine_line()}\n\nimport {importing:.2f} s, load {loading:.2f} s\n")
    print("| rows | median | 95 % of calls within |\n|---|---|---|")
    model = streampgs.Model.load(run)
    rows = costs.table_part(1, max(_ROWS)).drop_columns(["label"])
    for count in _ROWS:
        model.predict_proba(rows[:count])
        seconds = []
        for repeat in range(repeats):
            batch = rows.slice(repeat % max(1, len(rows) - count), count)
            began = time.perf_counter()
            model.predict_proba(batch)
            seconds.append(time.perf_counter() - began)
        print(f"| {count:,} | {np.median(seconds) * 1e3:.1f} ms | {np.quantile(seconds, 0.95) * 1e3:.1f} ms |")


if __name__ == "__main__":
    main()
