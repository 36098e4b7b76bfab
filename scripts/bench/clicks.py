"""A click log, in one pass: seconds, held-out log loss, rows/s and peak memory, next to Vowpal Wabbit and scikit-learn.

    python -m scripts.bench.clicks [--rows 10000000] [--folder FOLDER] [--sklearn-rows 1000000] [--epochs 1]

The rows are those of `scripts.bench.click_log`. Each tool trains in a process of its own, with its defaults and logistic loss:

- streampgs from Parquet: the whole command, with the search for sigma, with the default --memory and with a small one
- Vowpal Wabbit from its text, whose writing is not counted; -b 20, so that as many features as ours fit
- scikit-learn's FeatureHasher and SGDClassifier.partial_fit, fed by pyarrow in batches, on the first rows only: it is slow

Prints a Markdown table. `pip install streampgs[bench]` installs Vowpal Wabbit.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from scripts.bench.click_log import COUNTS, STRINGS, write
from scripts.machine import machine_line

PACKAGES = ("scikit-learn", "vowpalwabbit")
SMALL_MEMORY = "100MB"
HASH_BITS = 20
BATCH_ROWS = 65_536
VOWPAL_WABBIT = "import sys; from vowpalwabbit import Workspace; Workspace(sys.argv[1]).finish()"


def batches(folder: Path) -> Iterator[pa.RecordBatch]:
    for path in sorted(folder.glob("*.parquet"), key=lambda path: int(path.stem.split("-")[1])):
        yield from ds.dataset(path).to_batches(batch_size=BATCH_ROWS)


def write_text(folder: Path, path: Path) -> None:
    """The rows as lines of Vowpal Wabbit: counts with their values, other values as words, null as nothing."""
    if path.exists():
        return
    with path.open("wb") as file:
        for batch in batches(folder):
            found = pc.if_else(pc.equal(batch.column("label"), 1), "1", "-1")
            parts = [found, pa.array(["|"] * len(batch))]
            for name in batch.schema.names[1:]:
                sign, column = ":" if name.startswith("I") else "=", batch.column(name).cast(pa.string())
                parts.append(pc.binary_join_element_wise(name, column, sign).fill_null(""))
            lines = pc.binary_join_element_wise(*parts, " ")
            file.write("\n".join(lines.to_pylist()).encode() + b"\n")


def run(*words: object) -> tuple[float, float, str]:
    """Seconds and peak memory in MB of a command, and its output."""
    began = time.perf_counter()
    with subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{words[0]} failed:\n{output}")
    return seconds, usage.ru_maxrss / 1000.0, output


def log_loss(labels: np.ndarray, scores: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0.0, -np.where(labels == 1, scores, -scores))))


# The tools.


def streampgs(train: Path, test: Path, folder: Path, *options: object) -> tuple[float, float, float]:
    command, place = (sys.executable, "-m", "streampgs"), folder / f"run-{time.time_ns()}"
    seconds, memory, _ = run(*command, "train", train, "--run", place, *options)
    told = subprocess.run([*command, "evaluate", place, test, "--json"], check=True, capture_output=True, text=True)
    return seconds, memory, float(json.loads(told.stdout)["log_loss"])


def vowpal_wabbit(train: Path, test: Path, folder: Path, labels: np.ndarray) -> tuple[float, float, float]:
    text, test_text = folder / f"{train.name}.vw", folder / f"{test.name}.vw"
    write_text(train, text)
    write_text(test, test_text)
    model, predictions = folder / "vw-model", folder / "vw-predictions"
    options = f"--quiet --loss_function logistic -b {HASH_BITS}"
    seconds, memory, _ = run(sys.executable, "-c", VOWPAL_WABBIT, f"{options} -d {text} -f {model}")
    run(sys.executable, "-c", VOWPAL_WABBIT, f"--quiet -t -i {model} -d {test_text} -p {predictions}")
    return seconds, memory, log_loss(labels, np.loadtxt(predictions))


def scikit_learn(train: Path, test: Path, rows: int) -> tuple[float, float, float]:
    seconds, memory, output = run(sys.executable, "-m", "scripts.bench.clicks", "--only-sklearn", train, test, rows)
    return seconds, memory, float(output.split()[-1])


def fit_scikit_learn(train: Path, test: Path, rows: int) -> float:
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.linear_model import SGDClassifier

    hasher, model = FeatureHasher(2**HASH_BITS, input_type="pair"), SGDClassifier(loss="log_loss")

    def hashed(batch: pa.RecordBatch) -> Any:
        names = batch.schema.names[1:]
        columns = [batch.column(name).to_pylist() for name in names]
        return hasher.transform(
            [
                (
                    (name, math.log1p(value)) if k < COUNTS else (f"{name}={value}", 1.0)
                    for k, (name, value) in enumerate(zip(names, row, strict=True))
                    if value is not None
                )
                for row in zip(*columns, strict=True)
            ]
        )

    seen = 0
    for batch in batches(train):
        batch = batch.slice(0, rows - seen)
        model.partial_fit(hashed(batch), batch.column("label").to_numpy(), classes=[0, 1])
        seen += len(batch)
        if seen >= rows:
            break
    tested = [(batch.column("label").to_numpy(), model.decision_function(hashed(batch))) for batch in batches(test)]
    return log_loss(*(np.concatenate(column) for column in zip(*tested, strict=True)))


def main() -> None:
    if sys.argv[1:2] == ["--only-sklearn"]:
        print(fit_scikit_learn(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where the rows stay; default: a temporary folder")
    parser.add_argument("--sklearn-rows", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=1, help="of streampgs")
    arguments = parser.parse_args()
    print(machine_line(PACKAGES))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        train, test = write(folder, arguments.rows)
        size = sum(path.stat().st_size for path in train.iterdir())
        print(f"{arguments.rows:,} rows, {COUNTS} counts, {STRINGS} strings, {size / 1e6:,.0f} MB of Parquet")
        labels = np.concatenate([batch.column("label").to_numpy() for batch in batches(test)])
        streampgs(test, test, Path(temporary))  # compiles
        print("\n| | rows | seconds | rows/s | log loss | peak MB |\n|---|---|---|---|---|---|")
        epochs, sklearn_rows = ("--epochs", arguments.epochs), min(arguments.rows, arguments.sklearn_rows)
        for name, rows, measure in (
            ("streampgs", arguments.rows, lambda: streampgs(train, test, Path(temporary), *epochs)),
            (
                f"streampgs --memory {SMALL_MEMORY}",
                arguments.rows,
                lambda: streampgs(train, test, Path(temporary), *epochs, "--memory", SMALL_MEMORY),
            ),
            ("Vowpal Wabbit, from text", arguments.rows, lambda: vowpal_wabbit(train, test, folder, labels)),
            ("FeatureHasher + SGDClassifier", sklearn_rows, lambda: scikit_learn(train, test, sklearn_rows)),
        ):
            seconds, memory, loss = measure()
            print(
                f"| {name} | {rows:,} | {seconds:.1f} | {rows / seconds:,.0f} | {loss:.4f} | {memory:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
