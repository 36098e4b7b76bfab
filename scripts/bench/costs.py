"""What a table of so many gigabytes costs: seconds, processor seconds, memory and disk of one `train` each.

    python -m scripts.bench.costs [--sizes 0.1,1,4] [--epochs 1,3] [--out FOLDER]

The tables are Parquet files of about 75 MB with ordinary columns: ten numbers, five strings with up to 100,000 values, a
time and a label. A line of Markdown is printed per table and number of epochs, and before them what was measured on. Wall
seconds depend on what else the machine does; processor seconds less. The disk is that of the whole run folder: checkpoints, and
the cache of decoded rows, which a run of one epoch does not need. Memory is the largest resident size of the process, load the
mean over five minutes at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streampgs
from scripts.machine import machine_line

_ROWS_PER_FILE, _NUMBERS, _VALUES = 650_000, 10, (5, 50, 500, 10_000, 100_000)
_COMMAND = [sys.executable, "-m", "streampgs", "train"]


@dataclass(frozen=True)
class Cost:
    seconds: float
    processor_seconds: float
    memory_bytes: int
    disk_bytes: int


def table_part(number: int, rows: int = _ROWS_PER_FILE) -> pa.Table:
    random = np.random.default_rng([7, number])
    numbers = random.normal(size=(_NUMBERS, rows))
    codes = [np.minimum(random.zipf(1.3, rows) - 1, values - 1) for values in _VALUES]
    score = numbers[:5].sum(axis=0) / 2 + sum((np.sin(code + 1.0) for code in codes), np.zeros(rows))
    columns = {f"x{place}": values for place, values in enumerate(numbers)}
    columns |= {
        f"c{count}": pa.array(np.char.add("v", np.arange(count).astype(str))).take(pa.array(code))
        for count, code in zip(_VALUES, codes, strict=True)
    }
    when = (1_750_000_000 + random.integers(0, 30_000_000, rows)).astype("datetime64[s]")
    label = (score + random.logistic(size=rows) > 0).astype(np.int8)
    return pa.table({**columns, "when": when, "label": label})


def write_table(folder: Path, size: float, rows: int = _ROWS_PER_FILE) -> tuple[int, int]:
    """Rows and bytes of a table of about `size` bytes; at least one file."""
    folder.mkdir(parents=True)
    number = written = 0
    while number == 0 or written < size:
        path = folder / f"part-{number:04}.parquet"
        pq.write_table(table_part(number, rows), path, row_group_size=100_000)
        number, written = number + 1, written + path.stat().st_size
    return number * rows, written


def cost_of(table: Path, run: Path, epochs: int) -> Cost:
    began = time.perf_counter()
    words = [str(table), "--run", str(run), "--epochs", str(epochs), "--cyclic", "when", "--quiet"]
    process = subprocess.Popen([*_COMMAND, *words])
    _, status, usage = os.wait4(process.pid, 0)
    seconds, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"training failed with exit code {process.returncode}")
    used = usage.ru_utime + usage.ru_stime
    disk = sum(file.stat().st_blocks * 512 for file in run.rglob("*") if file.is_file())
    return Cost(seconds, used, usage.ru_maxrss * 1024, disk)


def lines(folder: Path, sizes: list[float], epochs: list[int], rows: int = _ROWS_PER_FILE) -> Iterator[str]:
    yield f"{machine_line()}; streampgs {streampgs.__version__}, pyarrow {pa.__version__}\n"
    yield "| Parquet | rows | epochs | seconds | processor seconds | peak memory | run folder | load |"
    yield "|---|---|---|---|---|---|---|---|"
    write_table(folder / "small", 0.0, 20_000)
    cost_of(folder / "small", folder / "compiled", 1)  # compiles
    for place, size in enumerate(sizes):
        table = folder / f"table-{place}"
        count, written = write_table(table, size * 1e9, rows)
        for number in epochs:
            cost = cost_of(table, folder / f"run-{place}-{number}", number)
            yield (
                f"| {written / 1e9:.1f} GB | {count / 1e6:.1f} million | {number} | {cost.seconds:.0f} | "
                f"{cost.processor_seconds:.0f} | {cost.memory_bytes / 1e6:,.0f} MB | {cost.disk_bytes / 1e9:.2f} GB | "
                f"{os.getloadavg()[1]:.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="0.1,1,4", help="gigabytes of Parquet")
    parser.add_argument("--epochs", default="1,3")
    parser.add_argument("--out", type=Path, help="an empty folder for tables and runs; default: a temporary one")
    given = parser.parse_args()
    sizes, epochs = [float(one) for one in given.sizes.split(",")], [int(one) for one in given.epochs.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        for line in lines(given.out or Path(scratch), sizes, epochs):
            print(line, flush=True)


if __name__ == "__main__":
    main()
