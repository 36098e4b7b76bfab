"""Held-out accuracy and log loss at the end of a short stream by --replay, for docs/streams.md.

    python -m scripts.bench.stream_replay TABLE[,TABLE…] [--rows 40000] [--window 250kB] [--seeds 2]

A table is a folder of Arrow shards in a random order, next to a folder of test rows with the same name and "-test" at its end.
The stream is its first rows; rows are replayed from the second shard of the spool on, after 16,384 rows. Prints means over seeds,
and the row visits: all steps on new and replayed rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from scripts.machine import machine_line

RATIOS = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
BATCH_ROWS = 1024


def call(*words: str, stream: bytes | None = None) -> Any:
    done = subprocess.run([sys.executable, "-m", "streampgs", *words, "--json"], input=stream, capture_output=True)
    if done.returncode:
        raise SystemExit(f"streampgs {words[0]} failed: {done.stderr.decode()}")
    return json.loads(done.stdout)


def stream_of(table: Path, rows: int) -> bytes:
    first = ds.dataset(table, format="arrow").head(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, first.schema) as writer:
        writer.write_table(first, max_chunksize=BATCH_ROWS)
    return bytes(sink.getvalue())


def quality(table: Path, stream: bytes, replay: float, seed: int, window: str, run: Path) -> tuple[float, float, float]:
    """Accuracy, log loss and row visits."""
    options = ("--run", str(run), "--replay", str(replay), "--seed", str(seed), "--window", window, "--quiet")
    trained = call("train", "-", *options, stream=stream)
    found = call("evaluate", str(run), str(table.with_name(f"{table.name}-test")))
    return found["accuracy"], found["log_loss"], trained["rows"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=lambda text: [Path(one) for one in text.split(",")])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--window", default="250kB")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{machine_line()}\n")
    print("| accuracy / log loss (row visits) | " + " | ".join(f"replay {ratio:g}" for ratio in RATIOS) + " |")
    print("|---|" + "---|" * len(RATIOS))
    for table in arguments.tables:
        stream = stream_of(table, arguments.rows)
        cells = []
        for ratio in RATIOS:
            with tempfile.TemporaryDirectory() as name:
                found = [
                    quality(table, stream, ratio, seed, arguments.window, Path(name) / str(seed))
                    for seed in range(arguments.seeds)
                ]
            accuracy, loss, visits = np.mean(found, axis=0)
            cells.append(f"{accuracy:.4f} / {loss:.4f} ({visits:,.0f})")
        print(f"| {table.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
