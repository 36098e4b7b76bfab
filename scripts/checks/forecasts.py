"""Train on generated tables of all types and odd shapes, and compare the peak of memory with the forecast.

    python scripts/checks/forecasts.py --tables 300 --seed 1

Each table is trained on in a forked child, and then evaluated, predicted on and inspected. A child that is refused with a
clear error is counted. The law: the peak is at most the forecast and a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.base.errors import StreampgsError
from streampgs.cli import _return_large_memory
from streampgs.python.api import evaluate, inspect, predict, train
from streampgs.run.memory import peak_rss_bytes

ALLOWED = 1.10
_ADDRESS_SPACE = 8 << 30
_MOST_SECONDS = 120
_MEMORY = ("64MB", "100MB", "160MB")
Random = np.random.Generator
Columns = dict[str, pa.Array]
Shape = Callable[[Random], tuple[Columns, dict[str, Any]]]
"""A table without its label, and options of training."""


def _words(random: Random, size: int) -> str:
    return " ".join(f"w{number}" for number in random.integers(0, 5000, max(1, size // 6)).tolist())[:size]


def _strings(random: Random, count: int, size: int) -> list[str]:
    """Different strings of about so many bytes."""
    return [f"{number}-" + chr(97 + number % 26) * int(size * random.uniform(0.5, 1.5)) for number in range(count)]


def _rows(random: Random, *choices: int) -> int:
    return int(random.choice(choices))


def few_huge_strings(random: Random) -> tuple[Columns, dict[str, Any]]:
    rows, texts = _rows(random, 50, 1000, 4000), ["short"] * 4000
    for place in random.integers(0, rows, int(random.integers(1, 6))).tolist():
        texts[place] = _words(random, int(10 ** random.uniform(5, 7)))
    options = [{}, {"text": "t"}, {"text": "t", "char_ngrams": "3-5"}, {"text": "t", "ngrams": "1-3"}]
    return {"t": pa.array(texts[:rows])}, options[int(random.integers(4))]


def dictionary_bomb(random: Random) -> tuple[Columns, dict[str, Any]]:
    rows, count = _rows(random, 100, 1000, 5000), int(random.choice([1, 3, 20]))
    # Written out, the table has up to 300 MB.
    values = pa.array(_strings(random, count, min(int(10 ** random.uniform(4, 7.5)) // count, 3 * 10**8 // rows)))
    codes = pa.array(random.integers(0, count, rows).astype(np.int32))
    coded = pa.DictionaryArray.from_arrays(codes, values)
    return {"t": coded}, {"text": "t"} if random.random() < 0.5 else {}


def nested_bomb(random: Random) -> tuple[Columns, dict[str, Any]]:
    rows, size = _rows(random, 100, 500), int(10 ** random.uniform(3, 5.5))
    values = pa.DictionaryArray.from_arrays(
        pa.array(random.integers(0, 2, 3 * rows).astype(np.int32)), pa.array(["x" * size, "y"])
    )
    offsets = pa.array(np.arange(0, 3 * rows + 1, 3, dtype=np.int32))
    return {"tokens": pa.ListArray.from_arrays(offsets, values)}, {}


def long_texts(random: Random) -> tuple[Columns, dict[str, Any]]:
    rows, size = _rows(random, 100, 500), int(10 ** random.uniform(2, 4.8))
    grams = [{}, {"char_ngrams": "2-4"}, {"ngrams": "1-2", "vocabulary": True}][int(random.integers(3))]
    return {"t": pa.array([_words(random, size) for _ in range(rows)])}, {"text": "t", **grams}


def wide_lists(random: Random) -> tuple[Columns, dict[str, Any]]:
    width, rows = int(10 ** random.uniform(2, 6.3)), 0
    rows = max(2, min(2000, 6_000_000 // width))
    values = np.zeros(rows * width, np.float32)
    values[:: max(1, width // 7)] = random.normal()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values), width)
    name = "features" if random.random() < 0.5 else "v"
    return {name: lists}, {"standardize": "off"} if random.random() < 0.3 else {}


def uneven_lists(random: Random) -> tuple[Columns, dict[str, Any]]:
    lengths = random.integers(0, 20, 3000)
    lengths[random.integers(0, 3000, 3)] = int(10 ** random.uniform(3, 5.7))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    total = int(lengths.sum())
    kind = int(random.integers(4))
    if kind == 0:
        return {"tokens": pa.ListArray.from_arrays(offsets, pa.array([f"t{n % 9999}" for n in range(total)]))}, {}
    indices = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    values = random.normal(size=total).astype(np.float32)
    if kind == 1:
        keys = pa.array([f"k{n}" for n in indices.tolist()])
        return {"m": pa.MapArray.from_arrays(offsets, keys, pa.array(values))}, {}
    pair = {"indices": pa.array(indices), "values": pa.array(values)}
    lists = {name: pa.ListArray.from_arrays(offsets, array) for name, array in pair.items()}
    return (lists, {}) if kind == 2 else ({**lists, "x": pa.array(random.normal(size=3000))}, {})


def many_columns(random: Random) -> tuple[Columns, dict[str, Any]]:
    count, rows = int(10 ** random.uniform(2, 3.2)), _rows(random, 300, 2000)
    columns: Columns = {}
    for number in range(count):
        columns[f"c{number}"] = pa.array(random.integers(0, 9, rows).astype(np.int8 if number % 2 else np.float64))
    if random.random() < 0.5:
        return {"s": pa.StructArray.from_arrays(list(columns.values()), list(columns))}, {}
    return columns, {}


def many_values(random: Random) -> tuple[Columns, dict[str, Any]]:
    rows = _rows(random, 20_000, 60_000)
    texts = pa.array([f"user-{number:012d}" for number in random.integers(0, 10**9, rows).tolist()])
    return {"u": texts.dictionary_encode() if random.random() < 0.5 else texts}, {}


def runs(random: Random) -> tuple[Columns, dict[str, Any]]:
    rows, count = 2000, int(random.choice([1, 5, 50]))
    ends = np.linspace(rows / count, rows, count).astype(np.int32)
    values = pa.array(_strings(random, count, int(10 ** random.uniform(1, 6)) // count))
    return {"t": pa.RunEndEncodedArray.from_arrays(pa.array(ends), values)}, {
        "text": "t"
    } if random.random() < 0.3 else {}


def views(random: Random) -> tuple[Columns, dict[str, Any]]:
    rows, size = 5000, int(10 ** random.uniform(1, 4))
    return {"t": pa.array(_strings(random, rows, size)).cast(pa.string_view())}, {}


def numbers(random: Random) -> tuple[Columns, dict[str, Any]]:
    rows = _rows(random, 1000, 30_000, 200_000)
    whole = random.integers(0, 10**6, rows)
    return {
        "a": pa.array(random.normal(size=rows)),
        "d": pa.array(whole).cast(pa.decimal256(40, 2)),
        "w": pa.array(whole.astype("datetime64[s]")),
        "b": pa.array(whole % 2 == 0),
        "c": pa.array([f"c{n % 50}" for n in whole.tolist()]),
    }, {}


SHAPES: tuple[Shape, ...] = (
    few_huge_strings, dictionary_bomb, nested_bomb, long_texts, wide_lists, uneven_lists, many_columns, many_values, runs,
    views, numbers,
)  # fmt: skip


def written(columns: Columns, random: Random, folder: Path) -> str:
    """Write the table, in a random form; returns the words for that form."""
    rows = len(next(iter(columns.values())))
    labels = pa.array(random.integers(0, 2, rows).astype(np.int32))
    if random.random() < 0.1:
        labels = pa.array(["no", "yes"]).take(labels)
    table = pa.table({"label": labels, **columns})
    group = int(random.choice([rows, max(1, rows // 3), max(1, rows // 40)]))
    needs_arrow = any(pa.types.is_run_end_encoded(kind) for kind in table.schema.types)
    if needs_arrow or random.random() < 0.4:
        compression = [None, "lz4", "zstd"][int(random.integers(3))]
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(str(folder / "t.arrow"), table.schema, options=options) as writer:
            for first in range(0, rows, group):
                writer.write_table(table.slice(first, group).combine_chunks())
        return f"arrow, {compression}, batches of {group:,}"
    choices: dict[str, Any] = {
        "compression": str(random.choice(["snappy", "zstd", "none"])),
        "use_dictionary": bool(random.random() < 0.8),
        "data_page_version": str(random.choice(["1.0", "2.0"])),
        "store_schema": bool(random.random() < 0.5),
        "dictionary_pagesize_limit": int(random.choice([1 << 20, 1 << 28])),
        "write_statistics": False,
    }
    pq.write_table(table, folder / "t.parquet", row_group_size=group, **choices)
    return f"parquet, {choices}, groups of {group:,}"


# Children.


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` returns in a child, whose peak of memory begins with the pages of this process."""
    sink, source = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(sink)
        try:
            Path("/proc/self/clear_refs").write_text("5")
            resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
            resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
            found = _done(work)
        except BaseException:
            found = {"crash": traceback.format_exc()[-1500:]}
        os.write(source, json.dumps(found).encode())
        os._exit(0)
    os.close(source)
    with os.fdopen(sink, "rb") as reader:
        told = reader.read()
    _, status = os.waitpid(child, 0)
    return json.loads(told) if told else {"crash": f"ended with status {status}"}


def _done(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        found = work()
    except StreampgsError as error:
        found = {"refused": str(error)[:400]}
    return {**found, "peak": peak_rss_bytes() / 1e6}


def _trained(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    report = train(folder / "data", run=folder / "run", epochs=options["epochs"], sigma=1e-3, **options["given"])
    return {"forecast": report.forecast_rss_mb}


def _evaluated(folder: Path) -> dict[str, Any]:
    evaluate(folder / "run", folder / "data")
    return {}


def _predicted(folder: Path) -> dict[str, Any]:
    predict(folder / "run", folder / "data", out=folder / "out.arrow", keep="all")
    return {}


def _inspected(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    inspect(folder / "data", **options["given"])
    return {}


def tried(number: int, seed: int) -> dict[str, Any]:
    """One table."""
    random = np.random.default_rng([seed, number])
    shape = SHAPES[number % len(SHAPES)]
    folder = Path(tempfile.mkdtemp(prefix="forecast-"))
    options: dict[str, Any] = {"epochs": int(random.integers(1, 3))}
    memory = str(random.choice(_MEMORY))

    def made() -> dict[str, Any]:
        (folder / "data").mkdir()
        columns, given = shape(random)
        return {"form": written(columns, random, folder / "data"), "given": given}

    try:
        table = in_child(made)
        if "crash" in table:
            return {"number": number, "shape": shape.__name__, "crash": table["crash"]}
        options["given"] = {**table["given"], "memory": memory}
        found: dict[str, Any] = {"number": number, "shape": shape.__name__, "form": table["form"], **options}
        found["train"] = in_child(lambda: _trained(folder, options))
        if "forecast" in found["train"]:
            found["evaluate"] = in_child(lambda: _evaluated(folder))
            found["predict"] = in_child(lambda: _predicted(folder))
        found["inspect"] = in_child(lambda: _inspected(folder, options))
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judged(found: dict[str, Any], base: float) -> dict[str, float]:
    """The ratio of peak to forecast, by command. A refused command may take the budget over the base."""
    budget = float(found["given"]["memory"].removesuffix("MB")) if "given" in found else 0.0
    forecast = found.get("train", {}).get("forecast", base + budget)
    ratios = {}
    for command in ("train", "evaluate", "predict", "inspect"):
        peak = found.get(command, {}).get("peak")
        if peak is not None:
            ratios[command] = peak / max(forecast, base + budget if command != "train" else forecast)
    return ratios


def warm() -> None:
    """Load the loops once, so that no child compiles or loads them."""
    for number, shape in enumerate((numbers, uneven_lists, long_texts)):
        random = np.random.default_rng(number)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "data").mkdir()
            columns, given = shape(random)
            columns = {name: array[:500] for name, array in columns.items()}
            written(columns, random, folder / "data")
            _trained(folder, {"epochs": 1, "given": {**given, "memory": "64MB"}})
            _evaluated(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one table")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--shape", help="the name of one shape")
    given = parser.parse_args()
    _return_large_memory()
    warm()
    base = in_child(lambda: {})["peak"]
    began, results, worst, refusals = time.time(), [], Counter[str](), Counter[str]()
    numbers_of = range(given.tables) if given.only is None else [given.only]
    for number in numbers_of:
        if given.shape and SHAPES[number % len(SHAPES)].__name__ != given.shape:
            continue
        found = tried(number, given.seed)
        ratios = judged(found, base)
        found["ratios"] = ratios
        results.append(found)
        for command, ratio in ratios.items():
            worst[command] = max(worst[command], ratio)
            refusals[command] += "refused" in found[command]
        broken = {command: ratio for command, ratio in ratios.items() if ratio > ALLOWED}
        crashes = [c for c in ("train", "evaluate", "predict", "inspect") if "crash" in found.get(c, {})]
        if not given.json and (broken or crashes or "crash" in found or given.only is not None):
            print(json.dumps(found), flush=True)
        if given.verbose:
            print(number, found["shape"], {name: round(ratio, 2) for name, ratio in ratios.items()},
                  round(time.time() - began, 1), flush=True)  # fmt: skip
    broken_tables = [one for one in results if max(one["ratios"].values(), default=0.0) > ALLOWED]
    crashed = [
        one for one in results if "crash" in one or any("crash" in v for v in one.values() if isinstance(v, dict))
    ]
    summary = {
        "machine": platform.platform(), "cpus": os.cpu_count(), "load": os.getloadavg()[0], "pyarrow": pa.__version__,
        "numpy": np.__version__, "tables": len(results), "seconds": round(time.time() - began, 1), "base_mb": round(base),
        "refused": dict(refusals), "worst": {name: round(ratio, 3) for name, ratio in worst.items()},
        "broken": [one["number"] for one in broken_tables], "crashed": [one["number"] for one in crashed],
    }  # fmt: skip
    print(json.dumps(summary, indent=None if given.json else 2))
    sys.exit(bool(broken_tables or crashed))


if __name__ == "__main__":
    main()
