"""Seconds from the start of training to a fixed accuracy, by the number of rows in the table. More data must not take
longer, including the catalog, the first window and checkpoints (the inverse time dependency of the paper).

Creates synthetic sparse tables of the given sizes in --data (reused if they exist) and trains on each with default options
until synthetic validation rows reach the target. Run it on an idle machine.

    python -m scripts.bench.sizes [--sizes 50000,200000,800000,3200000,12800000] [--target 0.8] [--repeats 3] [--data sizes-data]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import streampgs
from scripts.machine import machine_line
from streampgs.model.evaluation import evaluate
from streampgs.packing.synth import write_dataset

_TEST_ROWS = 50_000
_SEED = 11
_MOST_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="50000,200000,800000,3200000,12800000")
    parser.add_argument("--target", type=float, default=0.8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path("sizes-data"))
    arguments = parser.parse_args()
    print(f"{machine_line()}; target {arguments.target}\n")
    print("| rows | seconds | rows used | passes | test accuracy | ended by |\n|---|---|---|---|---|---|")
    test = arguments.data / "test-test"
    if not test.exists():
        write_dataset(arguments.data / "test", rows=1000, kind="sparse", seed=_SEED, test_rows=_TEST_ROWS)
    for repeat in range(arguments.repeats + 1):
        for rows in map(int, arguments.sizes.split(",")):
            data = arguments.data / str(rows)
            if not data.exists():
                write_dataset(data, rows=rows, kind="sparse", shards=max(4, rows // 200_000), seed=_SEED)
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                began = time.perf_counter()
                report = streampgs.train(
                    data, run=run, target_accuracy=arguments.target, seconds=_MOST_SECONDS, validation=[test]
                )
                seconds = time.perf_counter() - began
                accuracy = evaluate(streampgs.Model.load(run), [str(test)])["accuracy"]
            if repeat:  # the first round warms up the page cache and the compiled loops
                print(
                    f"| {rows:,} | {seconds:.2f} | {report.rows:,} | {report.rows / rows:.2f} | {accuracy:.4f} | "
                    f"{report.stopped_by} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
