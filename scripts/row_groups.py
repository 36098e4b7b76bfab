"""Seconds and memory of training and of predicting for Parquet files of many row groups.

Memory must not grow with the number of row groups, and time at most in proportion to it. All files have the same number of
rows in a row group.

    python scripts/row_groups.py [--groups 100,300,1000,3000] [--columns 60] [--rows 100] [--memory 128MB]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench_peers.machine import machine_line


def write(path: Path, groups: int, columns: int, rows: int) -> None:
    """A row group at a time."""
    random = np.random.default_rng(groups)
    schema = pa.schema([("label", pa.float32()), *((f"x{number}", pa.float32()) for number in range(columns - 1))])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(groups):
            values = random.normal(size=(columns, rows)).astype(np.float32)
            values[0] = values[1] > 0
            writer.write_table(pa.Table.from_arrays([pa.array(row) for row in values], schema=schema))


def measured(*words: object) -> tuple[float, int, str]:
    """Seconds, megabytes at the peak and output of a command."""
    child = (
        "import atexit, re, sys; from streampgs.cli.main import run_commands\n"
        "status = lambda: open('/proc/self/status').read()\n"
        "atexit.register(lambda: print(re.search(r'VmHWM:\\s+(\\d+)', status()).group(1), file=sys.stderr))\n"
        "run_commands()"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", child, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - began, int(done.stderr.split()[-1]) // 1000, done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default="100,300,1000,3000")
    parser.add_argument("--columns", type=int, default=60)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--memory", default="128MB")
    arguments = parser.parse_args()
    print(machine_line())
    for groups in map(int, arguments.groups.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            data, run, out = (Path(scratch) / name for name in ("data.parquet", "run", "out.parquet"))
            write(data, groups, arguments.columns, arguments.rows)
            options = ("--memory", arguments.memory, "--sigma", 0.1, "--epochs", 1)
            seconds, peak, text = measured("train", data, "--run", run, *options)
            forecast = re.search(r"forecast ([\d,]+)", text)
            print(
                f"{groups:6,} row groups: train {seconds:6.1f} s, {peak:,} MB (forecast {forecast and forecast[1]})",
                end="; ", flush=True,
            )  # fmt: skip
            seconds, peak, _ = measured("predict", run, data, "--out", out)
            print(f"predict {seconds:6.1f} s, {peak:,} MB")


if __name__ == "__main__":
    main()
