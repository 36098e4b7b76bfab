"""Test accuracy at the end of a stream by --replay, by kind of stream.

    python -m scripts.bench.streams [--rows 400000] [--seeds 3]

The streams are synthetic sparse rows, mixed or sorted by label, and dense rows that drift: their true weights turn by 30° or
90° during the stream, and the test rows are drawn at its end. Prints means over seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scripts.machine import machine_line
from streampgs.packing.synth import write_dataset

RATIOS = (0.0, 0.5, 1.0, 2.0, 4.0)
BATCH_ROWS = 8192
TEST_ROWS = 50_000
FEATURES = 50
NOISE = 0.5


@dataclass(frozen=True)
class Stream:
    batches: Callable[[], Iterator[pa.RecordBatch]]
    test: Path


def stored(folder: Path, rows: int, seed: int, ordered: bool) -> Stream:
    write_dataset(folder, rows=rows, kind="sparse", sort=ordered, test_rows=TEST_ROWS, seed=seed)

    def batches() -> Iterator[pa.RecordBatch]:
        for shard in sorted(folder.glob("*.arrow")):
            with pa.ipc.open_file(pa.memory_map(str(shard))) as file:
                yield from (file.get_batch(number) for number in range(file.num_record_batches))

    return Stream(batches, folder.with_name(f"{folder.name}-test"))


def turned(angles: NDArray[np.float64], seed: int) -> pa.RecordBatch:
    """Rows whose true weights have these angles."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((len(angles), FEATURES)).astype(np.float32)
    half = FEATURES // 2
    first, second = features[:, :half].sum(axis=1), features[:, half:].sum(axis=1)
    scores = (np.cos(angles) * first + np.sin(angles) * second) / np.sqrt(half)
    labels = np.where(scores + NOISE * random.standard_normal(len(angles)) > 0.0, 1.0, -1.0)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), FEATURES)
    return pa.record_batch({"label": pa.array(labels), "features": lists})


def drifting(test: Path, rows: int, seed: int, angle: float) -> Stream:
    with pa.ipc.new_file(str(test), turned(np.zeros(1), 0).schema) as writer:
        writer.write_batch(turned(np.full(TEST_ROWS, angle), seed << 40))

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, BATCH_ROWS):
            numbers = np.arange(first, min(first + BATCH_ROWS, rows))
            yield turned(angle * numbers / rows, (seed << 40) + 1 + first)

    return Stream(batches, test)


def accuracy(stream: Stream, replay: float, seed: int, run: Path) -> float:
    words = ["train", "-", "--run", str(run), "--replay", str(replay), "--seed", str(seed), "--quiet"]
    train = subprocess.Popen(
        [sys.executable, "-m", "streampgs", *words], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert train.stdin is not None
    batches = stream.batches()
    first = next(batches)
    with pa.ipc.new_stream(train.stdin, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    train.stdin.close()
    if train.wait():
        raise SystemExit(f"{run}: training failed")
    words = ["evaluate", str(run), str(stream.test), "--json"]
    done = subprocess.run([sys.executable, "-m", "streampgs", *words], capture_output=True, check=True, text=True)
    return float(json.loads(done.stdout)["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    rows, right = arguments.rows, np.pi / 2
    print(f"{machine_line()}\n")
    print(f"| stream of {rows:,} rows | " + " | ".join(f"replay {ratio:g}" for ratio in RATIOS) + " |")
    print("|---|" + "---|" * len(RATIOS))
    kinds: dict[str, Callable[[Path, int], Stream]] = {
        "mixed": lambda place, seed: stored(place, rows, seed, False),
        "its first quarter": lambda place, seed: stored(place, rows // 4, seed, False),
        "sorted by label": lambda place, seed: stored(place, rows, seed, True),
        "turning by 30°": lambda place, seed: drifting(place.with_suffix(".arrow"), rows, seed, right / 3),
        "turning by 90°": lambda place, seed: drifting(place.with_suffix(".arrow"), rows, seed, right),
    }
    for kind, make in kinds.items():
        found = np.zeros(len(RATIOS))
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory() as name:
                stream = make(Path(name) / "stream", seed)
                found += [accuracy(stream, ratio, seed, Path(name) / f"run-{ratio}") for ratio in RATIOS]
        means = (f"{one:.4f}" for one in found / arguments.seeds)
        print(f"| {kind} | " + " | ".join(means) + " |", flush=True)


if __name__ == "__main__":
    main()
