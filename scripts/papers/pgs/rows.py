"""Tables of the reproduction as rows in memory, and the accuracy of weights on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scripts import real_data
from streampgs.kernels.placing_loop import score_rows
from streampgs.packing.synth import write_dataset
from streampgs.reading.window import Window

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

FEATURES = 47_236
SHARD_ROWS = 25_000
_SEED = 7


@dataclass(frozen=True)
class Rows:
    """Rows with entries. `indices` is empty for dense rows."""

    bounds: Numbers
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: Floats

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sparse(self) -> bool:
        return self.indices.size > 0

    @property
    def features(self) -> int:
        return int(self.indices.max()) + 1 if self.sparse else int(self.bounds[1] - self.bounds[0])

    def visited(self, numbers: Numbers) -> Window:
        """These rows in this order, in the form that a learner takes."""
        window = Window()
        window.starts, window.stops = self.bounds[numbers], self.bounds[numbers + 1]
        window.indices, window.values, window.labels = self.indices, self.values, self.labels[numbers]
        return window

    def part(self, first: int, stop: int) -> Rows:
        begin, end = self.bounds[first], self.bounds[stop]
        indices = self.indices[begin:end] if self.sparse else self.indices
        return Rows(self.bounds[first : stop + 1] - begin, indices, self.values[begin:end], self.labels[first:stop])

    def accuracy(self, weights: Floats, intercept: float) -> float:
        """`weights` begin with that of the intercept, whose constant feature is `intercept`."""
        scores = np.empty(len(self))
        score_rows(
            weights[1:], weights[0] * intercept, self.bounds[:-1], self.bounds[1:], self.indices, self.values,
            self.sparse, scores,
        )  # fmt: skip
        return float(((scores > 0.0) == (self.labels > 0.0)).mean())


@dataclass(frozen=True)
class Table:
    name: str
    rows: Rows
    """To train on."""
    validation: Rows
    """To choose sigma by."""
    test: Rows


def read(folder: Path, most: int | None = None) -> Rows:
    """The first rows of the shards of a folder."""
    batches, rows = [], 0
    for shard in sorted(folder.glob("*.arrow")):
        reader = pa.ipc.open_file(pa.memory_map(str(shard)))
        for number in range(reader.num_record_batches):
            if most is None or rows < most:
                batches.append(reader.get_batch(number))
                rows += batches[-1].num_rows
    lists = [batch["indices"] for batch in batches]
    lengths = np.concatenate([np.diff(each.offsets.to_numpy()) for each in lists])[:most]
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indices = np.concatenate([each.values.to_numpy() for each in lists])[: bounds[-1]].view(np.uint32)
    values = np.concatenate([batch["values"].values.to_numpy() for batch in batches])[: bounds[-1]]
    labels = np.concatenate([batch["label"].to_numpy(zero_copy_only=False) for batch in batches])[:most]
    return Rows(bounds, indices, values, labels.astype(np.float64))


def synthetic_folder(work: Path, rows: int, held_out: int) -> Path:
    """Shards of SHARD_ROWS rows in the shape of RCV1, and a folder -test."""
    folder = work / f"synthetic-{rows}"
    if not folder.exists():
        shards = max(1, rows // SHARD_ROWS)
        write_dataset(
            folder, rows=rows, kind="sparse", shards=shards, seed=_SEED, features=FEATURES, test_rows=held_out
        )
    return folder


def _real_folder(name: str, work: Path, source: Path) -> Path:
    folder = work / name
    if not folder.with_name(f"{name}-test").exists():
        real_data.DATA_SETS[name](source, folder, folder.with_name(f"{name}-test"))
    return folder


def loaded(name: str, work: Path, source: Path, all_rows: int, rows: int, held_out: int) -> Table:
    """At most `rows` rows to train on, and `held_out` rows, of which a third chooses sigma. Reuters is split by date: there,
    the last tenth of the training rows chooses sigma."""
    made_here = name == "synthetic"
    folder = synthetic_folder(work, all_rows, held_out) if made_here else _real_folder(name, work, source)
    train, test = read(folder, rows), read(folder.with_name(f"{folder.name}-test"), held_out)
    if name == "reuters":
        cut = len(train) * 9 // 10
        return Table(name, train.part(0, cut), train.part(cut, len(train)), test)
    third = len(test) // 3
    return Table(name, train, test.part(0, third), test.part(third, len(test)))
