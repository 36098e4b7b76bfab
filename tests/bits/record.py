"""Train every recorded case and print {case: dual_sha256} as JSON; test_bits.py compares it with the record.

The compiled loops are built for one fixed instruction set, so that the bits do not depend on the processor. To record
the bits after a change that is meant to change them:

    python -m tests.bits.record > tests/bits/recorded.json
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.end_to_end.commands import streampgs as command

# The level that Debian's and most clouds' x86-64 machines share; wider registers sum in another order.
FIXED_PROCESSOR = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
WINDOW = ("--window", "2MB", "--memory", "64MB")
CASES: dict[str, Callable[[Path], str]] = {}


def case(function: Callable[[Path], str]) -> Callable[[Path], str]:
    CASES[function.__name__] = function
    return function


# Tables, made by numpy alone: they stay the same when the product changes.


def sparse(rows: int, seed: int, classes: int = 2) -> pa.Table:
    chance = np.random.Generator(np.random.PCG64(seed))
    truth = np.random.Generator(np.random.PCG64(99)).integers(-8, 9, (classes, 3000)) / 8.0
    lengths = chance.integers(3, 40, rows)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # Distinct indices in a row: steps of at least 1 from a random start.
    steps = chance.integers(1, 60, starts[-1])
    first = np.repeat(np.cumsum(steps)[starts[:-1]], lengths)
    indices = (np.cumsum(steps) - first + np.repeat(chance.integers(0, 600, rows), lengths)).astype(np.int32)
    values = (chance.integers(1, 16, starts[-1]) / 16.0).astype(np.float32)
    scores = np.stack([np.add.reduceat(truth[k][indices] * values, starts[:-1]) for k in range(classes)])
    noise = chance.integers(-8, 9, rows) / 4.0
    labels = np.where(scores[0] + noise > 0.0, 1.0, -1.0) if classes == 2 else scores.argmax(axis=0).astype(float)
    offsets = pa.array(starts.astype(np.int32))
    return pa.table(
        {
            "label": labels,
            "indices": pa.ListArray.from_arrays(offsets, pa.array(indices)),
            "values": pa.ListArray.from_arrays(offsets, pa.array(values)),
        }
    )


def dense(rows: int, seed: int) -> pa.Table:
    chance = np.random.Generator(np.random.PCG64(seed))
    values = (chance.integers(-32, 33, (rows, 20)) / 16.0).astype(np.float32)
    truth = np.arange(-10, 10) / 10.0
    labels = np.where(values @ truth + chance.integers(-8, 9, rows) / 4.0 > 0.0, 1.0, -1.0)
    features = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 20)
    return pa.table({"label": labels, "features": features})


def people(rows: int, seed: int, more: bool = False) -> pa.Table:
    """Numbers with nulls, categories, text, dates, a weight and labels of two kinds."""
    chance = np.random.Generator(np.random.PCG64(seed))
    age = chance.integers(18, 90, rows).astype(float)
    city = chance.integers(0, 40, rows)
    words = chance.integers(0, 300, (rows, 5))
    days = chance.integers(0, 4000, rows)
    score = (age - 50.0) / 20.0 + (city % 7 - 3) / 2.0 + chance.integers(-8, 9, rows) / 8.0
    columns: dict[str, Any] = {
        "age": pa.array(np.where(age > 85.0, np.nan, age), from_pandas=True),
        "city": pa.array([f"city {c}" for c in city]),
        "story": pa.array([" ".join(f"w{w}" for w in row) for row in words.tolist()]),
        "day": pa.array(days.astype("datetime64[D]")),
        "weight": (1.0 + city % 3),
        "price": score * 1000.0 + 250.0,
        "bought": pa.array(np.where(score > 0.0, "yes", "no")),
    }
    if more:
        columns["height"] = chance.integers(150, 200, rows).astype(float)
    return pa.table(columns)


def write_arrow(table: pa.Table, path: Path, batch: int = 3000) -> None:
    path.parent.mkdir(exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)


def write_parquet(table: pa.Table, path: Path, group: int = 2500) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, row_group_size=group)


# Runs.


def streampgs(*words: str, rows: str | Path = os.devnull) -> dict[str, Any]:
    done = command(*words, "--json", "--quiet", variables=FIXED_PROCESSOR, rows=rows)
    if done.code:
        raise SystemExit(f"{' '.join(words)} failed with {done.code}:\n{done.err}")
    return done.json


def bits(report: dict[str, Any]) -> str:
    """The digest of λ; and the certificate and loss, which tell whether averages and sums are the same as well."""
    return f"{report['dual_sha256']} gap {report['gap']:.9g} loss {report['progressive_loss']:.9g}"


def trained(folder: Path, *words: str) -> str:
    return bits(streampgs("train", f"{folder / 'table'}", "--run", f"{folder / 'run'}", *WINDOW, *words))


def _pause_case(kind: str, file_format: str, words: tuple[str, ...]) -> Callable[[Path], str]:
    def run(folder: Path) -> str:
        write = write_arrow if file_format == "arrow" else write_parquet
        for shard in range(3):
            table = sparse(9000, shard) if kind == "sparse" else dense(15000, shard)
            write(table, folder / "table" / f"{shard}.{file_format}")
        return trained(folder, "--epochs", "3", *words)

    return run


for _kind in ("sparse", "dense"):
    for _format in ("arrow", "parquet"):
        for _p, _words in (("2", ()), ("1.8", ("--p", "1.8", "--batch", "7", "--ball", "30"))):
            CASES[f"{_kind}_{_format}_p{_p}"] = _pause_case(_kind, _format, _words)


def _sparse_table(folder: Path, shards: int = 3, classes: int = 2) -> None:
    for shard in range(shards):
        write_arrow(sparse(9000, shard, classes), folder / "table" / f"{shard}.arrow")


@case
def grid_of_losses_and_powers(folder: Path) -> str:
    _sparse_table(folder)
    return trained(folder, "--loss", "hinge,logistic", "--p", "2,1.5", "--sigma", "1e-4,1e-3", "--epochs", "2")


@case
def random_iterates_and_last_iterates(folder: Path) -> str:
    _sparse_table(folder)
    first = trained(folder, "--return", "random", "--epochs", "2")
    other = streampgs("train", f"{folder / 'table'}", "--run", f"{folder / 'b'}", *WINDOW, "--return", "last")
    return f"{first} and {bits(other)}"


@case
def power_found_automatically(folder: Path) -> str:
    _sparse_table(folder)
    return trained(folder, "--p", "auto", "--epochs", "2")


@case
def five_classes(folder: Path) -> str:
    _sparse_table(folder, classes=5)
    return trained(folder, "--epochs", "2")


@case
def kernel_features_and_kernels_with_supports(folder: Path) -> str:
    write_arrow(dense(3000, 0), folder / "table" / "0.arrow")
    found = []
    for name, words in (("rbf", ()), ("polynomial", ()), ("rbf", ("--solver", "kernel", "--supports", "400"))):
        run = str(folder / f"run{len(found)}")
        words = ("--kernel", name, *words, "--sigma", "1e-3", "--epochs", "2", "--run", run)
        found.append(streampgs("train", str(folder / "table"), *WINDOW, *words)["dual_sha256"])
    return " ".join(found)


@case
def validation_rows_judge(folder: Path) -> str:
    _sparse_table(folder)
    write_arrow(sparse(3000, 50), folder / "judge" / "0.arrow")
    return trained(folder, "--loss", "hinge,squared-hinge", "--validation", str(folder / "judge"), "--epochs", "2")


@case
def table_of_columns(folder: Path) -> str:
    for shard in range(3):
        write_parquet(people(8000, shard), folder / "table" / f"{shard}.parquet")
    return trained(folder, "--label", "bought", "--ignore", "price", "--text", "story", "--epochs", "3")


@case
def weighted_regression_of_columns(folder: Path) -> str:
    for shard in range(2):
        write_arrow(people(8000, shard), folder / "table" / f"{shard}.arrow")
    words = [
        "--label",
        "price",
        "--ignore",
        "bought",
        "--weight",
        "weight",
        "--category",
        "age",
        "--cross",
        "city,age",
        "--cyclic",
        "day",
    ]
    return trained(folder, *words, "--loss", "squared", "--epochs", "3")


@case
def two_labels_and_absolute_loss(folder: Path) -> str:
    for shard in range(2):
        write_arrow(people(8000, shard), folder / "table" / f"{shard}.arrow")
    words = ("--label", "price", "--label", "weight", "--ignore", "bought", "--ignore", "story")
    return trained(folder, *words, "--loss", "absolute", "--epochs", "2")


def _grown(folder: Path, *words: str) -> str:
    for shard in range(3):
        write_parquet(sparse(9000, shard), folder / "table" / f"{shard}.parquet")
    trained(folder, "--epochs", "3", "--rows", "40000")
    write_parquet(sparse(5000, 7), folder / "table" / "7.parquet")
    streampgs("resume", f"{folder / 'run'}", "--memory", "64MB", "--epochs", "3", *words)
    write_arrow(sparse(40000, 8), folder / "table" / "8.arrow")
    return bits(streampgs("resume", f"{folder / 'run'}", "--memory", "64MB", "--epochs", "4", *words))


@case
def growth_in_the_middle_and_at_the_end(folder: Path) -> str:
    return _grown(folder)


@case
def growth_in_one_pass(folder: Path) -> str:
    return _grown(folder, "--passes", "1", "--replay", "1")


@case
def growth_with_new_columns_and_another_sigma(folder: Path) -> str:
    write_parquet(people(9000, 0), folder / "table" / "0.parquet")
    trained(folder, "--label", "bought", "--ignore", "price", "--ignore", "story", "--epochs", "2")
    write_parquet(people(6000, 1, more=True), folder / "table" / "1.parquet")
    words = ("--memory", "64MB", "--epochs", "4", "--sigma", "auto")
    return bits(streampgs("resume", f"{folder / 'run'}", *words))


@case
def growth_with_a_new_class(folder: Path) -> str:
    _sparse_table(folder, classes=3)
    trained(folder, "--epochs", "2")
    write_arrow(sparse(9000, 9, classes=5), folder / "table" / "9.arrow")
    words = ("--memory", "64MB", "--epochs", "3")
    return bits(streampgs("resume", f"{folder / 'run'}", *words))


@case
def stream_of_rows(folder: Path) -> str:
    """Three shards, with a pause in the second one."""
    source, run = folder / "stream.arrows", f"{folder / 'run'}"
    table = people(200_000, 3).drop_columns(["price"])
    with pa.OSFile(str(source), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    streampgs("train", "-", "--run", run, "--memory", "96MB", "--label", "bought", rows=source)
    for checkpoint in Path(run).glob("checkpoint-*"):
        checkpoint.unlink()
    streampgs("resume", run, "--memory", "96MB", "--rows", "100000")
    return bits(streampgs("resume", run, "--memory", "96MB", "--rows", "1000000"))


def _threads(folder: Path, threads: str, *words: str) -> str:
    for shard in range(3):
        write_arrow(dense(30000, shard), folder / "table" / f"{shard}.arrow")
    return trained(folder, "--threads", threads, "--epochs", "3", *words)


@case
def two_threads(folder: Path) -> str:
    return _threads(folder, "2")


@case
def three_threads(folder: Path) -> str:
    return _threads(folder, "3", "--sigma", "1e-4")


@case
def two_threads_power_below_two(folder: Path) -> str:
    return _threads(folder, "2", "--p", "1.5", "--sigma", "1e-4", "--return", "average")


@case
def whole_passes_and_growth(folder: Path) -> str:
    _sparse_table(folder, 1)
    words = ("--solver", "l-bfgs", "--sigma", "1e-4,1e-3", "--validation", f"{folder / 'table'}")
    trained(folder, *words, "--epochs", "6", "--threads", "2")
    write_arrow(sparse(9000, 9), folder / "table" / "9.arrow")
    return bits(streampgs("resume", f"{folder / 'run'}", "--memory", "64MB", "--passes", "2"))


@case
def smidas_on_sparse_rows(folder: Path) -> str:
    _sparse_table(folder, 1)
    return _of_other_solver(folder, "smidas", "--l1", "1e-4,1e-3", "--step", "0.05")


@case
def gradient_descents_of_the_lecture(folder: Path) -> str:
    _sparse_table(folder, 1)
    first = _of_other_solver(folder, "ogd", "--sigma", "1e-2")
    (folder / "run").rename(folder / "first")
    return f"{first} and {_of_other_solver(folder, 'sgd', '--sigma', '1e-3', '--step', '0.05')}"


@case
def sparse_weights_with_l1(folder: Path) -> str:
    _sparse_table(folder, 1)
    return _of_other_solver(folder, "pgs", "--l1", "1e-4,1e-3", "--sigma", "1e-4", "--threads", "2")


@case
def columns_that_grow(folder: Path) -> str:
    """The best of two l1 by rows that are held out; then new rows."""
    _sparse_table(folder, 1)
    first = _of_other_solver(folder, "coordinate", "--l1", "3e-4,1e-4")
    write_arrow(sparse(4000, 9), folder / "table" / "new.arrow")
    grown = streampgs("resume", f"{folder / 'run'}", "--epochs", "+2")
    return f"{first}, grown {grown['dual_sha256']} gap {grown['gap']:.6g}"


@case
def dense_rows_with_entropy(folder: Path) -> str:
    write_arrow(dense(3000, 0), folder / "table" / "0.arrow")
    return _of_other_solver(folder, "entropic", "--ball", "3,10", "--sigma", "1e-4")


def _of_other_solver(folder: Path, solver: str, *words: str) -> str:
    """Without the certificate, which not all solvers have."""
    data = (f"{folder / 'table'}", "--run", f"{folder / 'run'}", *WINDOW)
    report = streampgs("train", *data, "--solver", solver, "--epochs", "2", *words)
    return f"{report['dual_sha256']} loss {report['progressive_loss']:.9g}"


def main() -> None:
    found = {}
    wanted = sys.argv[1:]
    for name, run in CASES.items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[name] = run(Path(folder))
    json.dump(found, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
