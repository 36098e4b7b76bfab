"""Speed on a wide table of mixed columns: decoding, encoding and training, compared with decoding by pyarrow alone.

    python -m scripts.bench.wide make OUT [--rows N] [--files N] [--group-rows N]
    python -m scripts.bench.wide measure TABLE [--memory SIZE] [--epochs N]

The table has 200 columns, as Spark would write them (Snappy, dictionaries, pages of 1 MB and of 20,000 rows at most):
120 floats of all scales, 30 integers, 10 booleans, 10 timestamps and dates, 2 decimals, 28 strings of 10 to 100,000
different values; some have nulls. The label depends on a few columns.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scripts.machine import machine_line

_CARDINALITIES = [10, 50, 200, 1_000, 5_000, 20_000, 100_000]
_BATCH_ROWS = 50_000


def columns_of(rows: int, seed: int) -> dict[str, pa.Array]:
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    signal = np.zeros(rows)
    for i in range(120):
        values = random.standard_normal(rows)
        if i % 12 == 0:
            signal += values
        scale, offset = 10.0 ** (i % 13 - 6), (i % 3) * 10.0 ** (i % 13 - 6)
        kept = (values * scale + offset).astype(np.float32 if i % 4 == 3 else np.float64)
        columns[f"float_{i}"] = pa.array(kept, mask=random.random(rows) < 0.05 if i % 6 == 0 else None)
    for i in range(30):
        kind = np.int32 if i % 2 else np.int64
        columns[f"int_{i}"] = pa.array(random.poisson(3.0 * (i + 1), rows).astype(kind))
    for i in range(10):
        columns[f"flag_{i}"] = pa.array(random.random(rows) < 0.1 * (i + 1))
    for i in range(8):
        seconds = random.integers(1_600_000_000, 1_700_000_000, rows)
        columns[f"time_{i}"] = pa.array(seconds * 1_000_000).cast(pa.timestamp("us"))
    for i in range(2):
        columns[f"day_{i}"] = pa.array(random.integers(18_000, 19_000, rows).astype(np.int32)).cast(pa.date32())
    for i in range(2):
        columns[f"price_{i}"] = pa.array(random.integers(0, 100_000, rows).astype(np.int32)).cast(pa.decimal128(18, 2))
    for i in range(28):
        different = _CARDINALITIES[i % len(_CARDINALITIES)]
        numbers = np.minimum((different ** random.random(rows)).astype(np.int64), different) - 1
        if i < 7:
            signal += np.random.default_rng(1000 + i).standard_normal(different)[numbers]
        names = pc.binary_join_element_wise("value", pa.array(numbers).cast(pa.string()), "_")
        columns[f"name_{i}"] = pc.if_else(pa.array(random.random(rows) < 0.03), None, names) if i % 5 == 0 else names
    columns["label"] = pa.array((signal + random.logistic(0.0, 1.0, rows) > 0.0).astype(np.int8))
    return columns


def make(out: Path, rows: int, files: int, group_rows: int) -> None:
    out.mkdir(parents=True)
    schema, seed = None, 0
    for number in range(files):
        table_rows, writer, waiting = rows // files, None, []
        for first in range(0, table_rows, _BATCH_ROWS):
            batch = pa.table(columns_of(min(_BATCH_ROWS, table_rows - first), seed))
            seed += 1
            schema = schema or batch.schema
            if writer is None:
                path = out / f"part-{number:05}.snappy.parquet"
                writer = pq.ParquetWriter(path, schema, compression="snappy", data_page_size=1 << 20)
            waiting.append(batch)
            if sum(part.num_rows for part in waiting) >= group_rows or first + _BATCH_ROWS >= table_rows:
                writer.write_table(pa.concat_tables(waiting), row_group_size=group_rows)
                waiting = []
        assert writer is not None
        writer.close()
        print(f"{number + 1} of {files} files", file=sys.stderr)


def decode(table: Path, threads: bool) -> float:
    """Rows/s of pyarrow alone: all columns, in batches."""
    rows, began = 0, time.perf_counter()
    for path in sorted(table.glob("*.parquet")):
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=1 << 13, use_threads=threads):
                rows += batch.num_rows
    return rows / (time.perf_counter() - began)


def train(table: Path, run: Path, memory: str, epochs: int) -> dict[str, Any]:
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "streampgs", "train", str(table), "--run", str(run), "--memory", memory]
    command += ["--epochs", str(epochs), "--sigma", "1e-6", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stderr.strip().splitlines()[:12], file=sys.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("out", type=Path)
    making.add_argument("--rows", type=int, default=5_000_000)
    making.add_argument("--files", type=int, default=20)
    making.add_argument("--group-rows", type=int, default=250_000)
    measuring = commands.add_parser("measure")
    measuring.add_argument("table", type=Path)
    measuring.add_argument("--memory", default="2GB")
    measuring.add_argument("--epochs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.out, arguments.rows, arguments.files, arguments.group_rows)
        return
    print(machine_line())
    with tempfile.TemporaryDirectory(dir=arguments.table.parent) as folder:
        one, two = decode(arguments.table, False), decode(arguments.table, True)
        print(f"pyarrow alone: {one / 1e3:,.0f}k rows/s with one thread, {two / 1e3:,.0f}k with all")
        report = train(arguments.table, Path(folder) / "run", arguments.memory, arguments.epochs)
    speed = report["rows_per_second"]
    print(
        f"training: {speed / 1e3:,.0f}k rows/s ({speed / one:.2f} of one thread, {speed / two:.2f} of all), "
        f"{report['epochs']:.0f} epochs, peak {report['peak_rss_mb']:,.0f} MB, forecast {report['forecast_rss_mb']:,.0f} MB"
    )


if __name__ == "__main__":
    main()
