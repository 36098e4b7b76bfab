"""The commands that are disturbed, each on a small table of its own."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import streampgs
from streampgs.packing.synth import write_dataset
from tests.end_to_end.mixed_tables import mixed, write, write_shards
from tests.stores.moto import BUCKET

Run = Callable[[str], None]
"""Runs a command to its end, undisturbed."""

_SMALL = "--memory 60MB --window 20kB --epochs 2 --sigma 0.001 --checkpoint-every 0s --quiet --json"
_SECOND_EPOCH = "resume run --epochs 2 --checkpoint-every 0s --quiet --json"
_OF_A_REPORT = (
    "dual_sha256", "t", "rows", "epochs", "progressive_loss", "progressive_accuracy", "judged_loss", "gap", "chosen",
    "skipped_rows", "clipped_values",
)  # fmt: skip


def _printed(folder: Path, printed: str) -> str:
    return printed


@dataclass(frozen=True)
class Command:
    """A command line, its inputs, and all that its undisturbed run decides."""

    words: str
    make: Callable[[Path, Run], None]
    """Writes the inputs into the folder where the command runs."""
    again: Callable[[Path], str] | None = None
    """The command after a fault; None: the same one."""
    changes: tuple[str, ...] = ()
    """Names in the folder that the command makes or changes. All others must stay as they are."""
    result: Callable[[Path, str], Any] = _printed
    """The part of the folder and of the printed text that must be the same after every fault."""
    outputs: Callable[[Path], dict[str, str]] = lambda folder: {}
    """Digests of the files that are complete if they exist."""
    stdin: str | None = None
    """A file next to the folder: the stream that the command reads."""
    on_store: bool = False
    """Its shards are in an object store, whose address is in the environment."""


# Tables.


def _synthetic(kind: str, file_format: str, features: int = 60) -> Callable[[Path, Run], None]:
    def make(folder: Path, run: Run) -> None:
        write_dataset(folder / "data", rows=600, kind=kind, shards=4, format=file_format, features=features)

    return make


def _mixed(folder: Path, run: Run) -> None:
    write_shards(mixed(600), folder / "data", shards=4, group_rows=50)


def _partitioned(folder: Path, run: Run) -> None:
    table = mixed(600).select(["label", "age", "income", "text"])
    for day in range(3):
        write_shards(table.slice(day * 200, 200), folder / "data" / f"day={day}", shards=2, group_rows=50)


def _with_validation(folder: Path, run: Run) -> None:
    _mixed(folder, run)
    write(mixed(200, seed=1), folder / "validation.parquet", "parquet", group_rows=50)


# Training.


def _start_or_resume(words: str) -> Callable[[Path], str]:
    """As a user continues after a fault: a run without a record is started again."""

    def again(folder: Path) -> str:
        if not (folder / "run" / "run.arrows").exists():
            return words
        return "resume run - --skip-taken --quiet --json" if " - " in words else "resume run --quiet --json"

    return again


def _report(folder: Path, printed: str) -> dict[str, Any]:
    record = json.loads(printed)
    return {name: record[name] for name in _OF_A_REPORT}


def _training(make: Callable[[Path, Run], None], more: str = "", data: str = "data") -> Command:
    words = f"train {data} --run run {_SMALL} {more}".strip()
    return Command(words, make, _start_or_resume(words), ("run",), _report)


def _resuming(make: Callable[[Path, Run], None], more: str = "") -> Command:
    """The second epoch of a run."""

    def started(folder: Path, run: Run) -> None:
        make(folder, run)
        run(f"train data --run run {_SMALL.replace('--epochs 2', '--rows 700')} {more}")

    return Command(_SECOND_EPOCH, started, None, ("run",), _report)


def _growing(make: Callable[[Path, Run], None], more: str = "", again: str = "") -> Command:
    """A shard arrives after the first epoch."""

    def started(folder: Path, run: Run) -> None:
        make(folder, run)
        last = max((folder / "data").iterdir())
        last.rename(folder / last.name)
        run(f"train data --run run {_SMALL.replace('--epochs 2', '--epochs 1')} {more}")
        (folder / last.name).rename(last)

    return Command(f"{_SECOND_EPOCH} {again}".strip(), started, None, ("run",), _report)


def _shrinking(folder: Path, run: Run) -> None:
    """A shard is removed after the first epoch."""
    _mixed(folder, run)
    run(f"train data --run run {_SMALL.replace('--epochs 2', '--epochs 1')} --hash-bits 8")
    max((folder / "data").iterdir()).unlink()


# Streams.


def _stream(folder: Path, run: Run) -> None:
    rows = mixed(600)
    with pa.ipc.new_stream(str(folder.parent / "rows.arrows"), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=50)


def _stream_in_the_middle(folder: Path, run: Run) -> None:
    _stream(folder, run)
    run(f"train - --run run {_SMALL.replace('--epochs 2', '--rows 500')} --hash-bits 8")


_STREAM = f"train - --run run {_SMALL.replace('--epochs 2', '')} --hash-bits 8"
_NEXT_ROWS = "resume run - --skip-taken --rows 800 --checkpoint-every 0s --quiet --json"

# Packing.


def _text(write_rows: Callable[[random.Random, int], str], name: str, head: str = "") -> Callable[[Path, Run], None]:
    def make(folder: Path, run: Run) -> None:
        chance = random.Random(5)
        for number in range(2):
            rows = "".join(write_rows(chance, row) for row in range(400))
            (folder / f"{number}-{name}").write_text(head + rows)

    return make


def _csv_row(chance: random.Random, row: int) -> str:
    return f'{row % 2},{chance.gauss(0.0, 1.0)},"word {chance.randint(0, 9)}, quoted"\n'


def _svmlight_row(chance: random.Random, row: int) -> str:
    return f"{chance.choice((-1, 1))} " + " ".join(f"{3 * n + 1}:{chance.random():.5f}" for n in range(6)) + "\n"


def _json_row(chance: random.Random, row: int) -> str:
    return json.dumps({"label": row % 2, "x": chance.random(), "tags": ["a"] * chance.randint(0, 3)}) + "\n"


def _shards_in(name: str) -> Callable[[Path], dict[str, str]]:
    def digests(folder: Path) -> dict[str, str]:
        files = (folder / name).glob("part-*") if (folder / name).is_dir() else ()
        return {file.name: digest(file) for file in sorted(files)}

    return digests


def _packing(make: Callable[[Path, Run], None], inputs: str, more: str = "") -> Command:
    words = f"pack {inputs} out --rows-per-shard 250 --block-bytes 5kB --quiet {more}".strip()
    outputs = _shards_in("out")
    again = f"{words} --overwrite"  # it may have been complete
    return Command(words, make, lambda folder: again, ("out",), lambda folder, printed: outputs(folder), outputs)


# Commands that read a run.


def _trained(folder: Path, run: Run) -> None:
    _mixed(folder, run)
    run(f"train data --run run {_SMALL} --hash-bits 8")
    write_shards(mixed(300, seed=2), folder / "new", shards=2, group_rows=50)


def _with_an_output(name: str) -> Callable[[Path, Run], None]:
    def make(folder: Path, run: Run) -> None:
        _trained(folder, run)
        (folder / name).write_text("an earlier file")

    return make


def _predicting(name: str, more: str = "") -> Command:
    words = f"predict run new --out {name} {more}".strip()

    def outputs(folder: Path) -> dict[str, str]:
        file = folder / name
        earlier = file.is_file() and file.read_bytes() == b"an earlier file"
        return {name: digest(file)} if file.is_file() and not earlier else {}

    def again(folder: Path) -> str:
        return f"{words} --force" if (folder / name).exists() and "--force" not in words else words

    make = _with_an_output(name) if "--force" in more else _trained
    return Command(words, make, again, (name,), lambda folder, printed: outputs(folder), outputs)


# Stores.


def in_bucket(folder: Path) -> Path:
    """Write the shards that the object store has to have under STORED."""
    return write_shards(mixed(600), folder / "stored", shards=4, group_rows=50)


def _with_loops(started: str = "") -> Callable[[Path, Run], None]:
    """Load the compiled loops without a connection, which the children could not use."""

    def make(folder: Path, run: Run) -> None:
        shards, loaded = in_bucket(folder.parent), folder.parent / "loaded"
        streampgs.train(shards, run=loaded, memory="60MB", window="20kB", epochs=2, sigma=1e-3, hash_bits=8)
        streampgs.evaluate(loaded, shards)
        if started:
            run(started)

    return make


STORED = "faults"
_FROM_STORE = f"train s3://{BUCKET}/{STORED} --run run {_SMALL} --hash-bits 8"
_HALF_FROM_STORE = _FROM_STORE.replace("--epochs 2", "--rows 700")

COMMANDS: dict[str, Command] = {
    "train-arrow": _training(_synthetic("sparse", "arrow")),
    "train-parquet": _training(_synthetic("sparse", "parquet")),
    "train-dense": _training(_synthetic("dense", "parquet", features=12), "--p 1.5 --batch 3"),
    "train-encoded": _training(_mixed, "--hash-bits 8"),
    "train-where": _training(_mixed, "--hash-bits 8 --where age>35"),
    "train-glob": _training(_partitioned, "--hash-bits 8", "data/day=*/*.parquet"),
    "train-threads": _training(_synthetic("sparse", "arrow"), "--threads 2"),
    "train-validation": _training(_with_validation, "--hash-bits 8 --validation validation.parquet"),
    "resume-arrow": _resuming(_synthetic("dense", "arrow", features=12)),
    "resume-encoded": _resuming(_mixed, "--hash-bits 8"),
    "growth-arrow": _growing(_synthetic("sparse", "arrow")),
    "growth-encoded": _growing(_mixed, "--hash-bits 8"),
    "growth-sigma": _growing(_mixed, "--hash-bits 8", "--sigma 0.002"),
    "removal": Command(
        f"{_SECOND_EPOCH} --accept-changes",
        _shrinking,
        None,
        ("run",),
        _report,
    ),
    "stream": Command(_STREAM, _stream, _start_or_resume(_STREAM), ("run",), _report, stdin="rows.arrows"),
    "stream-resume": Command(_NEXT_ROWS, _stream_in_the_middle, None, ("run",), _report, stdin="rows.arrows"),
    "pack-csv": _packing(_text(_csv_row, "rows.csv", "label,x,word\n"), "0-rows.csv 1-rows.csv"),
    "pack-svmlight": _packing(_text(_svmlight_row, "rows.svm"), "0-rows.svm 1-rows.svm"),
    "pack-json": _packing(_text(_json_row, "rows.jsonl"), "0-rows.jsonl 1-rows.jsonl", "--format parquet"),
    "pack-parquet": _packing(_mixed, "data"),
    "pack-shuffle": _packing(_text(_csv_row, "rows.csv", "label,x,word\n"), "0-rows.csv 1-rows.csv", "--shuffle"),
    "predict-parquet": _predicting("scores.parquet", "--keep all"),
    "predict-arrow": _predicting("scores.arrow", "--force"),
    "predict-csv": _predicting("scores.csv"),
    "evaluate": Command("evaluate run new --by city --json", _trained),
    "inspect-run": Command("inspect run --json --top 5", _trained),
    "inspect-data": Command("inspect data --label label --json", _mixed),
    "history": Command("history run --json", _trained),
    "store-train": Command(_FROM_STORE, _with_loops(), _start_or_resume(_FROM_STORE), ("run",), _report, on_store=True),
    "store-resume": Command(_SECOND_EPOCH, _with_loops(_HALF_FROM_STORE), None, ("run",), _report, on_store=True),
    "store-evaluate": Command(
        f"evaluate run s3://{BUCKET}/{STORED} --json", _with_loops(_HALF_FROM_STORE), on_store=True
    ),
}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def restore(kept: Path, folder: Path, names: tuple[str, ...]) -> None:
    """Give the folder the state before the command again."""
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).unlink(missing_ok=True)
        if (kept / name).is_dir():
            shutil.copytree(kept / name, folder / name)
        elif (kept / name).exists():
            shutil.copy2(kept / name, folder / name)
