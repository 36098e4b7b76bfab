"""Train for a long time at full speed; the resident memory and the number of open files must not grow.

    python scripts/soak.py DATA [--minutes 30] [--memory 512MB]

Prints a line each minute and at the end the slope of the resident memory, by least squares without the first tenth, in
which windows and caches fill up.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench_peers.machine import machine_line

_MOST_SLOPE_MB = 1.0


def rss_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--memory", default="512MB")
    chosen = parser.parse_args()
    print(machine_line())
    with tempfile.TemporaryDirectory() as folder:
        command = ["train", chosen.data, "--run", f"{folder}/run", "--memory", chosen.memory, "--epochs", "1000000"]
        child = subprocess.Popen(
            [sys.executable, "-m", "streampgs", *command, "--checkpoint-every", "10s", "--quiet", "--json"],
            stdout=subprocess.PIPE,
        )
        began, times, sizes, files = time.monotonic(), [], [], []
        while time.monotonic() - began < 60.0 * chosen.minutes and child.poll() is None:
            time.sleep(1.0)
            try:
                size, count = rss_mb(child.pid), len(os.listdir(f"/proc/{child.pid}/fd"))
            except (OSError, StopIteration):
                break
            times.append((time.monotonic() - began) / 60.0)
            sizes.append(size)
            files.append(count)
            if len(times) % 60 == 0:
                print(f"{times[-1]:5.1f} min  {size:7.1f} MB  {count} files  load {os.getloadavg()[0]:.1f}", flush=True)
        child.send_signal(signal.SIGTERM)
        report = child.communicate()[0].decode()
    if child.returncode != 143:
        raise SystemExit(f"the trainer ended with {child.returncode}")
    steady = slice(len(times) // 10, None)
    slope = float(np.polyfit(times[steady], sizes[steady], 1)[0])
    print(report)
    tenth = max(1, len(files) // 10)
    print(
        f"{times[-1]:.1f} minutes: resident memory {min(sizes[steady]):.1f} to {max(sizes[steady]):.1f} MB, slope "
        f"{slope:+.3f} MB a minute"
    )
    print(
        f"open files {min(files[steady])} to {max(files[steady])}, on average {np.mean(files[steady][:tenth]):.1f} in the "
        f"first and {np.mean(files[-tenth:]):.1f} in the last tenth"
    )
    sys.exit(0 if slope < _MOST_SLOPE_MB else 1)


if __name__ == "__main__":
    main()
