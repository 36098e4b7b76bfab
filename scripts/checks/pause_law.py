"""Pauses change no bit: train once without a pause and once with interruptions at random moments, and compare the states.

Runs are interrupted by SIGINT, SIGTERM, SIGKILL and row limits. Each resume has another memory budget and checkpoint
interval, and sometimes the cache was deleted. The first cases train for several epochs and compare λ. In the others a table
grows night by night, each night is interrupted, and everything that the last checkpoint holds is compared. Prints a line for
each case and exits with 1 if one differs.

    python -m scripts.checks.pause_law [--pauses 20] [--rows 200000] [--seed 1] [--nights 4] [--only epochs|nights]
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scripts.machine import machine_line
from streampgs.run.folder import RunFolder
from tests.end_to_end.mixed_tables import WORDS, mixed, write
from tests.faults.run_state import state_digest

STREAMPGS = [sys.executable, "-m", "streampgs"]
# Small windows, so that a run has many of them and is paused at many positions.
WINDOW = ["--window", "6MB"]


@dataclass(frozen=True)
class Epochs:
    """A table that does not change."""

    kind: str
    file_format: str
    p: str
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind:6} {self.file_format:7} p {self.p:3}"

    def words(self) -> list[str]:
        return ["--p", self.p, *self.options, *WINDOW]


@dataclass(frozen=True)
class Nights:
    """A table that gets a shard each night."""

    name: str
    write_shard: Callable[[Path, int, int], None]
    """Of a night and so many rows."""
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"nights {self.name:20}"


def _synthetic(folder: Path, night: int, rows: int) -> None:
    made = folder.parent / f"made-{night}"
    size = ["--rows", str(rows), "--seed", str(night), "--shards", "1", "--format", "arrow"]
    subprocess.run([*STREAMPGS, "synth", str(made), *size], check=True, capture_output=True)
    (shard,) = made.glob("*.arrow")
    folder.mkdir(exist_ok=True)
    shard.rename(folder / f"night-{night}.arrow")


def _mixed(folder: Path, night: int, rows: int) -> None:
    write(mixed(rows // 4, night), folder / f"night-{night}.parquet", "parquet", group_rows=max(50, rows // 40))


def _with_new_classes_and_columns(folder: Path, night: int, rows: int) -> None:
    """From the first night on there is a column more, from the second one a class more."""
    table = mixed(rows // 4, night)
    income = table["income"].to_numpy()
    kinds = np.digitize(income, [0.95e6, 1.05e6] if night < 2 else [0.95e6, 1.05e6, 1.1e6])
    table = table.set_column(0, "label", [[f"class {kind}" for kind in kinds]])
    if night > 0:
        table = table.append_column("weather", [[WORDS[row % len(WORDS)] for row in range(table.num_rows)]])
    write(table, folder / f"night-{night}.parquet", "parquet", group_rows=max(50, rows // 40))


EPOCHS = [
    Epochs(kind, file_format, p, options)
    for kind in ("sparse", "dense")
    for file_format in ("arrow", "parquet")
    for p, options in (("2", ()), ("1.8", ("--batch", "7", "--ball", "30")))
]
NIGHTS = [
    Nights("sparse", _synthetic),
    Nights("sparse, one sigma", _synthetic, ("--sigma", "1e-5")),
    Nights("encoded", _mixed, ("--hash-bits", "12")),
    Nights("new classes, columns", _with_new_classes_and_columns, ("--hash-bits", "12")),
]


def command(*words: str) -> list[str]:
    return [*STREAMPGS, *words, "--json", "--quiet"]


def finish(*words: str) -> dict[str, Any]:
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed with {done.returncode}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rows_of(run: Path) -> int:
    """In the newest checkpoint."""
    saved = sorted(run.glob("checkpoint-*.arrows"))
    return int(saved[-1].stem.split("-")[1]) if saved else 0


class Interrupter:
    """Interrupts the sessions of a run."""

    def __init__(self, chance: random.Random, run: Path) -> None:
        self.chance, self.run = chance, run
        self.struck: Counter[str] = Counter()

    def strike(self, words: list[str], row_limit: int) -> None:
        """Start the command and interrupt it, or let it end at the row limit."""
        chance = self.chance
        words = [*words, "--memory", chance.choice(["64MB", "100MB", "512MB"])]
        words += ["--checkpoint-every", chance.choice(["0.02s", "0.3s", "30s"])]
        kind = chance.choice(["SIGINT", "SIGTERM", "SIGKILL", "SIGKILL", "rows"])
        if kind == "rows" and row_limit:
            subprocess.run(command(*words, "--rows", str(row_limit)), capture_output=True, check=True)
        else:
            kind = self._signalled(words, "SIGKILL" if kind == "rows" else kind)
        self.struck[kind] += 1
        if chance.random() < 0.25:
            shutil.rmtree(self.run / "cache", ignore_errors=True)
            self.struck["cache deleted"] += 1

    def _signalled(self, words: list[str], kind: str) -> str:
        with tempfile.TemporaryFile() as told:
            process = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=told)
            time.sleep(self.chance.uniform(0.2, 1.6))
            process.send_signal(getattr(signal, kind))
            code = process.wait()
            if code == 0:
                return "finished first"
            if code not in (130, 143, -signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM):
                told.seek(0)
                raise SystemExit(f"{' '.join(words)} ended with {code} after {kind}:\n{told.read().decode()}")
        return kind

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.struck.items()))


def epochs_agree(case: Epochs, base: Path, chosen: argparse.Namespace, chance: random.Random) -> bool:
    data = base / f"{case.kind}-{case.file_format}"
    if not data.exists():
        made = ["--rows", str(chosen.rows), "--kind", case.kind, "--format", case.file_format]
        subprocess.run([*STREAMPGS, "synth", str(data), *made], check=True, capture_output=True)
    epochs = str(chosen.epochs * (1 if case.kind == "sparse" else 2))
    quiet, run = _two_runs(base)
    expected = finish("train", str(data), "--run", str(quiet), *case.words(), "--epochs", epochs, "--memory", "64MB")
    start = ["train", str(data), "--run", str(run), *case.words()]
    interrupter = Interrupter(chance, run)
    for number in range(chosen.pauses):
        words = ["resume", str(run)] if (run / "run.arrows").exists() else start
        limit = int(expected["rows"]) * (number + 1) // (chosen.pauses + 1) + chance.randrange(1000)
        interrupter.strike([*words, "--epochs", epochs], limit)
    words = ["resume", str(run)] if (run / "run.arrows").exists() else start
    digest = str(finish(*words, "--epochs", epochs)["dual_sha256"])
    return _told(case, digest == expected["dual_sha256"], digest, expected["rows"], interrupter)


def nights_agree(case: Nights, base: Path, chosen: argparse.Namespace, chance: random.Random) -> bool:
    """Each night the same shard arrives for both runs, before the first session of the night."""
    quiet, run = _two_runs(base)
    data = run.with_name(f"{run.name}-data")
    interrupter = Interrupter(chance, run)
    options = [*case.options, "--window", "600kB", "--epochs", "2"]
    for night in range(chosen.nights + 1):
        case.write_shard(data, night, chosen.rows if night == 0 else chosen.rows // 4)
        if night == 0:
            finish("train", str(data), "--run", str(quiet), *options)
            shutil.copytree(quiet, run)
            continue
        before = rows_of(quiet)
        finish("resume", str(quiet), "--memory", "100MB")
        for _ in range(-(-chosen.pauses // chosen.nights)):
            limit = chance.randrange(before + 1, max(before + 2, rows_of(quiet)))
            interrupter.strike(["resume", str(run), "--epochs", "2"], limit if limit > rows_of(run) else 0)
        finish("resume", str(run), "--epochs", "2")
    digest = state_digest(RunFolder(run))
    return _told(case, digest == state_digest(RunFolder(quiet)), digest, rows_of(quiet), interrupter)


def _two_runs(base: Path) -> tuple[Path, Path]:
    number = len(list(base.glob("quiet-*")))
    return base / f"quiet-{number}", base / f"interrupted-{number}"


def _told(case: Epochs | Nights, same: bool, digest: str, rows: int, interrupter: Interrupter) -> bool:
    print(f"{'same' if same else 'DIFFERS':7} {case}  {digest[:16]}  {rows:,} rows; {interrupter}", flush=True)
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="of the tables that do not grow; a grown table has more"
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--nights", type=int, default=4)
    parser.add_argument("--only", choices=["epochs", "nights"])
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    print(machine_line())
    chance = random.Random(chosen.seed)
    agree = []
    with tempfile.TemporaryDirectory() as folder:
        for case in EPOCHS if chosen.only != "nights" else ():
            agree += [epochs_agree(case, Path(folder), chosen, chance)]
        for nights in NIGHTS if chosen.only != "epochs" else ():
            agree += [nights_agree(nights, Path(folder), chosen, chance)]
    print(f"{sum(agree)} of {len(agree)} cases have the bits of the unpaused run")
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
