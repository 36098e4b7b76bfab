"""Pauses change no bit: train once without a pause and once with interruptions at random moments, and compare λ.

Runs are interrupted by SIGINT, SIGTERM, SIGKILL and row limits. Each resume has another memory budget and checkpoint
interval, and sometimes the cache was deleted. Prints a line for each case and exits with 1 if one differs.

    python scripts/pause_law.py [--pauses 20] [--rows 200000] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench_peers.machine import machine_line

STREAMPGS = [sys.executable, "-m", "streampgs"]
# Small windows, so that a run has many of them and is paused at many positions.
WINDOW = ["--window", "6MB"]
CASES = [
    (kind, file_format, p, extra)
    for kind in ("sparse", "dense")
    for file_format in ("arrow", "parquet")
    for p, extra in (("2", []), ("1.8", ["--batch", "7", "--ball", "30"]))
]


def command(*words: str) -> list[str]:
    return [*STREAMPGS, *words, "--json", "--quiet"]


def finish(*words: str) -> dict[str, Any]:
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed with {done.returncode}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def interrupted(
    run: Path, start: list[str], epochs: str, total_rows: int, pauses: int, chance: random.Random
) -> tuple[str, Counter[str]]:
    """Train to the end with `pauses` interruptions; returns the digest of λ and the number of interruptions by kind."""
    struck: Counter[str] = Counter()
    for number in range(pauses):
        words = [*start] if not (run / "run.arrows").exists() else ["resume", str(run)]
        words += [
            "--memory",
            chance.choice(["64MB", "100MB", "512MB"]),
            "--checkpoint-every",
            chance.choice(["0.02s", "0.3s", "30s"]),
        ]
        kind = chance.choice(["SIGINT", "SIGTERM", "SIGKILL", "SIGKILL", "rows"])
        if kind == "rows":
            limit = total_rows * (number + 1) // (pauses + 1) + chance.randrange(1000)
            subprocess.run(command(*words, "--rows", str(limit)), capture_output=True, check=True)
        else:
            process = subprocess.Popen(
                command(*words, "--epochs", epochs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(chance.uniform(0.2, 1.6))
            process.send_signal(getattr(signal, kind))
            code = process.wait()
            if code == 0:
                kind = "finished first"
            elif code not in (130, 143, -signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM):
                raise SystemExit(f"{' '.join(words)} ended with {code} after {kind}")
        struck[kind] += 1
        if chance.random() < 0.25:
            shutil.rmtree(run / "cache", ignore_errors=True)
            struck["cache deleted"] += 1
    words = ["resume", str(run)] if (run / "run.arrows").exists() else start
    return str(finish(*words, "--epochs", epochs)["dual_sha256"]), struck


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(machine_line())
    chance = random.Random(arguments.seed)
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for number, (kind, file_format, p, extra) in enumerate(CASES):
            data = base / f"{kind}-{file_format}"
            if not data.exists():
                subprocess.run(
                    [*STREAMPGS, "synth", str(data), "--rows", str(arguments.rows), "--kind", kind, "--format", file_format],
                    check=True, capture_output=True,
                )  # fmt: skip
            epochs = str(arguments.epochs * (1 if kind == "sparse" else 2))
            model = ["--p", p, *extra, *WINDOW]
            quiet_run, run = base / f"quiet-{number}", base / f"interrupted-{number}"
            expected = finish(
                "train", str(data), "--run", str(quiet_run), *model, "--epochs", epochs, "--memory", "64MB"
            )
            start = ["train", str(data), "--run", str(run), *model]
            digest, struck = interrupted(run, start, epochs, int(expected["rows"]), arguments.pauses, chance)
            same = digest == expected["dual_sha256"]
            differing += not same
            listed = ", ".join(f"{count} {name}" for name, count in sorted(struck.items()))
            print(
                f"{'same' if same else 'DIFFERS':7} {kind:6} {file_format:7} p {p:3}  {digest[:16]}  "
                f"{expected['rows']:,} rows; {listed}",
                flush=True,
            )
    print(f"{len(CASES) - differing} of {len(CASES)} cases have the bits of the unpaused run")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
