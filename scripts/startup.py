"""Seconds until the first training step, for a start on many shards and for a resume on a large data set.

Imports and the loading of compiled loops are measured separately, because they do not depend on the data. Prints a line
for each data set. Run it on an idle machine.

    python scripts/startup.py DATA [DATA …]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

IMPORTED = time.perf_counter()

from bench_peers.machine import machine_line  # noqa: E402
from streampgs.options.commands import Limits, ModelOptions, Resources  # noqa: E402
from streampgs.reading.loader import WindowFiller  # noqa: E402
from streampgs.reading.window import Window  # noqa: E402
from streampgs.run import start as trainer  # noqa: E402 (the imports are measured)
from streampgs.run.report import Silent  # noqa: E402
from streampgs.selection.grid import warm_up  # noqa: E402

_ROWS = 1_000_000


class FirstStep(Silent):
    """Measures the time until the choices are printed, which happens right before the first step."""

    def __init__(self) -> None:
        self.called = time.perf_counter()
        self.seconds = 0.0

    def choices(self, choices: dict[str, str]) -> None:
        self.seconds = self.seconds or time.perf_counter() - self.called


class Fills:
    """Measures the seconds of the first fill of a window."""

    def __init__(self) -> None:
        self.first: float | None = None
        original = WindowFiller.fill

        def fill(filler: WindowFiller, plan: object, window: Window, *more: object) -> None:
            began = time.perf_counter()
            original(filler, plan, window, *more)  # type: ignore[arg-type]
            if self.first is None:
                self.first = time.perf_counter() - began

        WindowFiller.fill = fill  # type: ignore[method-assign, assignment]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--memory", type=int, default=512, help="MB")
    arguments = parser.parse_args()
    print(machine_line())
    print(f"imports {time.perf_counter() - IMPORTED:.2f} s")
    began = time.perf_counter()
    warm_up(ModelOptions(), "sparse", 100_000)
    print(f"loading the compiled loops of the solver {time.perf_counter() - began:.2f} s")
    resources = Resources(memory=arguments.memory * 10**6)
    for data in arguments.data:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            for name in ("first start", "start", "resume"):
                fills, observer = Fills(), FirstStep()
                if name == "resume":
                    trainer.resume(run, Limits(rows=2 * _ROWS), resources, observer)
                else:
                    run = Path(folder) / name.replace(" ", "-")
                    trainer.train([data], run, ModelOptions(), Limits(rows=_ROWS), resources, observer)
                fill = fills.first or 0.0
                size = sum(file.stat().st_size for file in Path(data).rglob("*") if file.is_file()) / 1e9
                print(
                    f"{name:11} {data}: {size:.1f} GB, first step after {observer.seconds:.2f} s, of which the first "
                    f"window {fill:.2f} s and everything else {observer.seconds - fill:.2f} s"
                )


if __name__ == "__main__":
    main()
