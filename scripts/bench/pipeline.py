"""Rows/s of training from shards on disk, divided by rows/s of the bare training loop on rows in memory.

The bare loop trains on windows that were loaded in advance, stored in visiting order. The data are read once before timing,
so that they are in the page cache. Run it on an idle machine.

    python -m scripts.bench.pipeline DATA [DATA …] [--repeats 3]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from scripts.bench.bare_loop import bare_rows_per_second, windows_in_memory
from scripts.machine import machine_line
from streampgs.options.commands import Limits, ModelOptions, Resources
from streampgs.run import start as trainer
from streampgs.run.commands import TrainCall
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import Columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--p", type=float, default=2.0)
    arguments = parser.parse_args()
    print(machine_line())
    resources = Resources()
    for data in arguments.data:
        catalog = build_catalog([data], Columns())
        windows = windows_in_memory(data, resources, 2)
        with tempfile.TemporaryDirectory() as folder:
            for repeat in range(arguments.repeats + 1):
                bare = bare_rows_per_second(windows, catalog.kind, p=arguments.p)
                run = Path(folder) / str(repeat)
                options, limits = ModelOptions(p=arguments.p, sigma=1e-6), Limits(epochs=arguments.epochs)
                report = trainer.train([data], run, TrainCall(options, limits=limits, resources=resources))
                if repeat == 0:
                    continue  # warms up the page cache and the compiled loops
                print(
                    f"{data}: bare loop {bare / 1e6:.2f}M rows/s, training {report.rows_per_second / 1e6:.2f}M rows/s, "
                    f"ratio {report.rows_per_second / bare:.2f} (waiting {report.seconds_reading_wait:.2f} s of "
                    f"{report.seconds_reading_wait + report.seconds_training:.2f} s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
