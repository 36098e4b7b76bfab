"""Ordinary tasks: seconds, memory, disk and held-out quality, next to scikit-learn's usual recipe for each.

    python -m scripts.bench.ordinary [--quick] [TASK ...]

Each task is measured three times, each time in a process of its own: as `streampgs train` on Parquet (the whole command), as
the fit of an estimator on the same rows in memory (after a fit of a few rows, which loads the compiled loops), and as the
recipe (from the same rows in memory). All rows are generated from a fixed seed; digits come with scikit-learn.

--quick: tables with fewer rows. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_array

from scripts.machine import machine_line

WAYS = ("command", "fit", "recipe")
TESTED = 0.2
FEW_ROWS = 300


@dataclass(frozen=True)
class Data:
    rows: Any
    """A NumPy array, a sparse matrix in CSR form, or a table of pyarrow."""
    labels: Any

    def part(self, chosen: slice) -> Data:
        rows = self.rows.slice(chosen.start, chosen.stop - chosen.start) if self.is_table else self.rows[chosen]
        return Data(rows, self.labels[chosen])

    @property
    def is_table(self) -> bool:
        return isinstance(self.rows, pa.Table)

    def table(self) -> pa.Table:
        labels = pa.array(self.labels)
        if self.is_table:
            return self.rows.append_column("label", labels)
        if isinstance(self.rows, np.ndarray):
            columns = {f"x{number}": column for number, column in enumerate(self.rows.T)}
            return pa.table({**columns, "label": labels})
        bounds = pa.array(self.rows.indptr, pa.int32())
        indices = pa.ListArray.from_arrays(bounds, pa.array(self.rows.indices.astype(np.uint32)))
        values = pa.ListArray.from_arrays(bounds, pa.array(self.rows.data.astype(np.float32)))
        return pa.table({"indices": indices, "values": values, "label": labels})


@dataclass(frozen=True)
class Task:
    name: str
    make: Callable[[int], Data]
    rows: int
    quick_rows: int
    recipe: Callable[[], Any]
    recipe_name: str
    options: tuple[str, ...] = ()
    """Of the command."""
    keywords: dict[str, Any] = field(default_factory=dict)
    """Of the estimator."""

    @property
    def is_regression(self) -> bool:
        return "squared" in self.options

    def data(self, quick: bool) -> tuple[Data, Data]:
        """The rows to train on, and the others."""
        rows = self.quick_rows if quick else self.rows
        whole = self.make(round(rows / (1.0 - TESTED)))
        count = len(whole.labels)
        order = np.random.default_rng(9).permutation(count)
        mixed = Data(whole.rows.take(order) if whole.is_table else whole.rows[order], whole.labels[order])
        trained = round(count * (1.0 - TESTED))
        return mixed.part(slice(0, trained)), mixed.part(slice(trained, count))


# Tables.


def words_of(random: np.random.Generator, words: int, count: int) -> np.ndarray:
    """Numbers of words by Zipf's law."""
    return np.minimum(random.zipf(1.25, count) - 1, words - 1)


def text(classes: int, words: int, length: int, own_share: float) -> Callable[[int], Data]:
    """Each class prefers words of its own; most words of a text are those that all classes share."""

    def made(rows: int) -> Data:
        random = np.random.default_rng(1)
        labels = random.integers(0, classes, rows)
        lengths = 1 + random.poisson(length - 1, rows)
        owners = np.repeat(labels, lengths)
        shared = random.permutation(words)[words_of(random, words, len(owners))]
        own = (words_of(random, words, len(owners)) * 7919 + owners * 104_729) % words
        numbers = np.where(random.random(len(owners)) < own_share, own, shared)
        names = np.array([f"w{number}" for number in range(words)], object)[numbers]
        ends = np.cumsum(lengths)
        texts = [" ".join(names[stop - size : stop]) for stop, size in zip(ends, lengths, strict=True)]
        return Data(pa.table({"text": texts}), labels)

    return made


def numbers(features: int, classes: int = 2, regression: bool = False) -> Callable[[int], Data]:
    def made(rows: int) -> Data:
        random = np.random.default_rng(2)
        x = random.standard_normal((rows, features), np.float32)
        weights = random.standard_normal((features, classes if classes > 2 else 1)) / math.sqrt(features)
        scores = x @ weights.astype(np.float32)
        if regression:
            return Data(x, scores[:, 0].astype(float) * 3.0 + 10.0 + random.standard_normal(rows))
        if classes > 2:
            return Data(x, (4.0 * scores + random.gumbel(size=scores.shape)).argmax(axis=1))
        return Data(x, (2.0 * scores[:, 0] + random.logistic(size=rows) > 0.0).astype(int))

    return made


def strings(values: int, columns: int = 3) -> Callable[[int], Data]:
    def made(rows: int) -> Data:
        random = np.random.default_rng(3)
        codes = [words_of(random, values, rows) for _ in range(columns)]
        names = pa.array([f"value {number}" for number in range(values)])
        effects = random.standard_normal((columns, values))
        scores = sum(effect[code] for effect, code in zip(effects, codes, strict=True))
        labels = (scores + random.logistic(size=rows) > 0.0).astype(int)
        return Data(pa.table({f"s{number}": names.take(pa.array(code)) for number, code in enumerate(codes)}), labels)

    return made


def sparse(features: int, entries: int) -> Callable[[int], Data]:
    def made(rows: int) -> Data:
        random = np.random.default_rng(4)
        indices = np.concatenate([np.sort(random.choice(features, entries, replace=False)) for _ in range(rows)])
        values = random.random(len(indices), np.float32)
        matrix = csr_array((values, indices, np.arange(rows + 1) * entries), shape=(rows, features))
        scores = matrix @ (random.standard_normal(features) * (random.random(features) < 0.05) * 3.0)
        return Data(matrix, (scores + random.logistic(size=rows) > np.median(scores)).astype(int))

    return made


def digits(rows: int) -> Data:
    from sklearn.datasets import load_digits

    found = load_digits()
    return Data(found.data, found.target)


# Recipes.


def logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def plain_logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def descent() -> Any:
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=0))


def tfidf() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    column = FunctionTransformer(lambda table: table["text"].to_pylist())
    return make_pipeline(column, TfidfVectorizer(), SGDClassifier(loss="log_loss", random_state=0))


def one_hot() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

    columns = FunctionTransformer(lambda table: np.column_stack([c.to_numpy() for c in table.columns]))
    return make_pipeline(columns, OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=1000))


def ridge() -> Any:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), Ridge())


_LOGISTIC, _DESCENT = "StandardScaler, LogisticRegression", "StandardScaler, SGDClassifier"
_TFIDF = "TfidfVectorizer, SGDClassifier"
_WIDE = ("--memory", "3GB")  # one row group of the file is larger than the default
_OF_TEXT = ("--text", "text"), {"text": "text"}
TASKS = (
    Task("text of 20 classes", text(20, 130_000, 200, 0.04), 11_300, 4_000, tfidf, _TFIDF, *_OF_TEXT),
    Task("short texts of 2 classes", text(2, 50_000, 12, 0.25), 200_000, 20_000, tfidf, _TFIDF, *_OF_TEXT),
    Task("1,000,000 × 30 numbers", numbers(30), 1_000_000, 100_000, logistic, _LOGISTIC),
    Task("200,000 × 1,000 numbers", numbers(1_000), 200_000, 5_000, descent, _DESCENT, _WIDE),
    Task("20,000 × 5,000 numbers", numbers(5_000), 20_000, 1_000, descent, _DESCENT, _WIDE),
    Task("strings of 100,000 values", strings(100_000), 500_000, 50_000, one_hot, "OneHotEncoder, LogisticRegression"),
    Task("1,000 × 20,000 sparse", sparse(20_000, 50), 1_000, 1_000, plain_logistic, "LogisticRegression"),
    Task("100 classes", numbers(20, classes=100), 50_000, 10_000, logistic, _LOGISTIC, ("--classes", "auto")),
    Task(
        "regression of 500,000 rows", numbers(20, regression=True), 500_000, 50_000, ridge, "StandardScaler, Ridge",
        ("--loss", "squared"),
    ),
    Task("digits", digits, 1_797, 1_797, plain_logistic, "LogisticRegression"),
)  # fmt: skip


# Measuring, in a process of its own.


def quality(task: Task, labels: Any, predicted: Any, probabilities: Any) -> dict[str, float]:
    """Held-out loss, and accuracy or R²."""
    labels = np.asarray(labels)
    if task.is_regression:
        errors = float(np.mean((labels - predicted) ** 2))
        return {"loss": errors, "score": 1.0 - errors / float(np.var(labels))}
    own = np.asarray(probabilities)[np.arange(len(labels)), labels]
    return {"loss": float(-np.log(np.maximum(own, 1e-15)).mean()), "score": float(np.mean(labels == predicted))}


def judged(task: Task, model: Any, test: Data) -> dict[str, float]:
    probabilities = None if task.is_regression else model.predict_proba(test.rows)
    return quality(task, test.labels, model.predict(test.rows), probabilities)


def fit(task: Task, train: Data, way: str) -> tuple[Any, float]:
    if way == "recipe":
        model = task.recipe()
    else:
        from streampgs import StreamClassifier, StreamRegressor

        kind = StreamRegressor if task.is_regression else StreamClassifier
        few = train.part(slice(0, min(FEW_ROWS, len(train.labels))))
        kind(**task.keywords).fit(few.rows, few.labels)
        model = kind(**task.keywords)
    began = time.perf_counter()
    model.fit(train.rows, train.labels)
    return model, time.perf_counter() - began


def measure(task: Task, way: str, quick: bool, folder: Path) -> dict[str, float]:
    train, test = task.data(quick)
    if way != "command":
        model, seconds = fit(task, train, way)
        return {"seconds": seconds, **judged(task, model, test)}
    import streampgs

    model = streampgs.Model.load(folder / "run")
    return judged(task, model, test)


def command(task: Task, quick: bool, folder: Path) -> dict[str, float]:
    """The whole command: its wall time, its peak memory and the size of its run."""
    train, _ = task.data(quick)
    pq.write_table(train.table(), folder / "train.parquet")
    del train
    words = [sys.executable, "-m", "streampgs", "train", str(folder / "train.parquet"), "--run", str(folder / "run")]
    seconds, peak = timed([*words, "--quiet", *task.options])
    size = sum(path.stat().st_size for path in (folder / "run").rglob("*") if path.is_file())
    return {"seconds": seconds, "peak": peak, "disk": size / 1e6}


def timed(words: list[str], output: Path | None = None) -> tuple[float, float]:
    """The seconds and the peak memory, in MB, of a process."""
    began = time.perf_counter()
    with open(output or os.devnull, "wb") as out:
        process = subprocess.Popen(words, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed with exit code {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1e3


def in_process(task: Task, way: str, quick: bool, folder: Path) -> dict[str, float]:
    words = [sys.executable, "-m", "scripts.bench.ordinary", task.name, "--measure", way, "--folder", str(folder)]
    _, peak = timed([*words, *(["--quick"] if quick else [])], folder / "out.json")
    return {"peak": peak, **json.loads((folder / "out.json").read_text())}


def row_of(task: Task, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ordinary-") as name:
        folder = Path(name)
        found = {way: in_process(task, way, quick, folder) for way in ("recipe", "fit")}
        made = in_process(task, "make", quick, folder)
        found["command"] = in_process(task, "command", quick, folder) | made
        shutil.rmtree(folder / "run")
    theirs = found["recipe"]["seconds"]
    for way in WAYS:
        one = found[way]
        cells = [f"{one['seconds']:.2f}", f"{one['seconds'] / theirs:.2f}", f"{one['peak']:,.0f}",
                 f"{one['disk']:,.1f}" if "disk" in one else "", f"{one['loss']:.4f}", f"{one['score']:.4f}"]  # fmt: skip
        label = f"{task.name}: {task.recipe_name}" if way == "recipe" else f"{task.name}: {way}"
        print(f"| {label} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="names of tasks, or parts of them; all if nothing is named")
    parser.add_argument("--quick", action="store_true", help="tables with fewer rows")
    parser.add_argument("--measure", choices=(*WAYS, "make"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = [task for task in TASKS if not arguments.tasks or any(part in task.name for part in arguments.tasks)]
    if arguments.measure == "make":
        print(json.dumps(command(chosen[0], arguments.quick, arguments.folder)))
    elif arguments.measure:
        print(json.dumps(measure(chosen[0], arguments.measure, arguments.quick, arguments.folder)))
    else:
        print(machine_line())
        print("\n| task | seconds | ratio | peak MB | run MB | held-out loss | accuracy or R² |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for task in chosen:
            row_of(task, arguments.quick)


if __name__ == "__main__":
    main()
