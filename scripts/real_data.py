"""Write real data sets as sparse Arrow shards.

    python scripts/real_data.py OUT [--source FOLDER] [NAME …]

Each NAME gives the folders OUT/NAME (training rows) and OUT/NAME-test, in the sparse layout: `label` (1 or -1),
`indices` (sorted, each at most once in a row) and `values`.

a9a      Census income, 123 yes-or-no features: small, and easy to compare with what others publish.
reuters  Newswire stories as tf-idf vectors of their words: is a story corporate news (topic earn or acq)? Split by date.
names    Package names as hashed 3- to 5-grams of their bytes: which of two registries has a name? Millions of rows with 2^20
         features, for training out of core; more rows still give a better accuracy.

The same source gives the same bytes: only the order of `names` is random, with a fixed seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numba import njit
from numpy.typing import NDArray

SOURCE = Path(__file__).resolve().parents[2] / "shared" / "data"

_BATCH_ROWS = 4096
_SCHEMA = pa.schema({"label": pa.int8(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())})

_FIRST_TEST_STORY = 14_826
_CORPORATE = {"earn", "acq"}

_NAMES_TEST_ROWS = 100_000
_NAMES_SEED = 0
_HASH_BITS = 20
_SHORTEST_GRAM, _LONGEST_GRAM = 3, 5
_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


class Row(NamedTuple):
    label: int
    features: dict[int, float]


# ------------------------------------------------------------------------------------------------------ writing


def write_shards(batches: Iterable[pa.RecordBatch], folder: Path, shard_rows: int) -> int:
    """Write the batches into shards of at least `shard_rows` rows; returns the number of rows."""
    folder.mkdir(parents=True)
    batches, rows = iter(batches), 0
    for number, first in enumerate(batches):
        with pa.OSFile(str(folder / f"part-{number:05}.arrow"), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as shard:
            written = 0
            for batch in chain([first], batches):
                shard.write_batch(batch)
                written += batch.num_rows
                if written >= shard_rows:
                    break
        rows += written
    return rows


def batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    rows = iter(rows)
    while batch := list(islice(rows, _BATCH_ROWS)):
        ordered = [sorted(row.features.items()) for row in batch]
        yield pa.record_batch(
            [
                [row.label for row in batch],
                [[index for index, _ in features] for features in ordered],
                [[value for _, value in features] for features in ordered],
            ],
            schema=_SCHEMA,
        )


# ---------------------------------------------------------------------------------------------------------- a9a


def write_a9a(source: Path, folder: Path, test_folder: Path) -> None:
    write_shards(batches_of(_libsvm_rows(source / "a9a.gz")), folder, shard_rows=2 * _BATCH_ROWS)
    write_shards(batches_of(_libsvm_rows(source / "a9a.t.gz")), test_folder, shard_rows=4 * _BATCH_ROWS)


def _libsvm_rows(path: Path) -> Iterator[Row]:
    with gzip.open(path, "rt") as lines:
        for line in lines:
            label, *pairs = line.split()
            features = (pair.split(":") for pair in pairs)
            yield Row(int(label), {int(index) - 1: float(value) for index, value in features})


# ------------------------------------------------------------------------------------------------------ reuters


def write_reuters(source: Path, folder: Path, test_folder: Path) -> None:
    with gzip.open(source / "reuters21578.jsonl.gz", "rt") as lines:
        stories = [story for story in map(json.loads, lines) if story["topics"]]
    train = [story for story in stories if story["id"] < _FIRST_TEST_STORY]
    test = [story for story in stories if story["id"] >= _FIRST_TEST_STORY]
    weights = TfIdf([_words(story) for story in train])
    write_shards(batches_of(map(weights.row, train)), folder, shard_rows=_BATCH_ROWS)
    write_shards(batches_of(map(weights.row, test)), test_folder, shard_rows=_BATCH_ROWS)


class TfIdf:
    """log(1 + tf) · idf, scaled to length 1. Words that are in no training story are left out."""

    def __init__(self, texts: list[Counter[str]]) -> None:
        texts_with = Counter(word for words in texts for word in words)
        self._index = {word: index for index, word in enumerate(sorted(texts_with))}
        self._idf = {word: math.log((1 + len(texts)) / (1 + count)) + 1 for word, count in texts_with.items()}

    def row(self, story: dict[str, Any]) -> Row:
        known = {word: count for word, count in _words(story).items() if word in self._index}
        weights = {self._index[word]: math.log1p(count) * self._idf[word] for word, count in known.items()}
        length = math.hypot(*weights.values()) or 1.0
        label = 1 if _CORPORATE.intersection(story["topics"]) else -1
        return Row(label, {index: weight / length for index, weight in weights.items()})


def _words(story: dict[str, Any]) -> Counter[str]:
    return Counter(re.findall("[a-z0-9]+", f"{story['title']} {story['body']}".lower()))


# -------------------------------------------------------------------------------------------------------- names


def write_names(source: Path, folder: Path, test_folder: Path) -> None:
    python = read_names(source / "python_names.txt.gz")
    javascript = read_names(source / "javascript_names.txt.gz")
    only_python = python.filter(pc.invert(pc.is_in(python, javascript)))
    only_javascript = javascript.filter(pc.invert(pc.is_in(javascript, python)))
    names = pa.concat_arrays([only_python, only_javascript])
    labels = np.repeat(np.array([1, -1], np.int8), [len(only_python), len(only_javascript)])
    del python, javascript, only_python, only_javascript

    order = np.random.default_rng(_NAMES_SEED).permutation(len(names))
    names, labels = names.take(pa.array(order)), labels[order]
    first_train = _NAMES_TEST_ROWS
    write_shards(name_batches(names[:first_train], labels[:first_train]), test_folder, shard_rows=1 << 17)
    write_shards(name_batches(names[first_train:], labels[first_train:]), folder, shard_rows=1 << 19)


def read_names(path: Path) -> pa.BinaryArray:
    """The unique names of a registry, without scopes and with `-` for `_` and `.`."""
    names = pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(column_names=["name"]),
        parse_options=pa.csv.ParseOptions(delimiter="\x01", quote_char=False),
        convert_options=pa.csv.ConvertOptions(column_types={"name": pa.string()}),
    )["name"]
    names = pc.replace_substring_regex(names, "^@[^/]*/", "")
    names = pc.unique(pc.replace_substring_regex(names, "[_.]", "-"))
    return names.filter(pc.not_equal(names, "")).cast(pa.binary())


def name_batches(names: pa.BinaryArray, labels: NDArray[np.int8]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(names), _BATCH_ROWS):
        batch = names[first : first + _BATCH_ROWS]
        _, starts, text = batch.buffers()
        bounds = np.frombuffer(starts, np.int32)[batch.offset : batch.offset + len(batch) + 1]
        offsets, indices, values = _hashed_grams(np.frombuffer(text, np.uint8), bounds)
        lists = [pa.ListArray.from_arrays(offsets, child) for child in (indices, values)]
        yield pa.record_batch([pa.array(labels[first : first + len(batch)]), *lists], schema=_SCHEMA)


@njit()
def _hashed_grams(
    text: NDArray[np.uint8], bounds: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Rows (offsets, indices, values) of the grams of ^name$, each hashed by FNV-1a and folded to `_HASH_BITS` bits.

    Rows are scaled to length 1; grams with the same index count once.
    """
    rows = bounds.size - 1
    most_grams = (_LONGEST_GRAM - _SHORTEST_GRAM + 1) * (bounds[rows] - bounds[0])
    indices = np.empty(most_grams, np.int32)
    values = np.empty(most_grams, np.float32)
    offsets = np.zeros(rows + 1, np.int32)
    end = 0
    for row in range(rows):
        length = bounds[row + 1] - bounds[row] + 2
        padded = np.empty(length, np.uint8)
        padded[0], padded[length - 1] = ord("^"), ord("$")
        padded[1 : length - 1] = text[bounds[row] : bounds[row + 1]]

        grams = 0
        for first in range(length - _SHORTEST_GRAM + 1):
            hashed = _FNV_OFFSET
            for position in range(first, min(first + _LONGEST_GRAM, length)):
                hashed = (hashed ^ np.uint64(padded[position])) * _FNV_PRIME
                if position - first + 1 >= _SHORTEST_GRAM:
                    folded = (hashed >> np.uint64(_HASH_BITS)) ^ hashed
                    indices[end + grams] = np.int32(folded & np.uint64((1 << _HASH_BITS) - 1))
                    grams += 1

        begin = end
        for index in np.sort(indices[begin : begin + grams]):
            if end == begin or index != indices[end - 1]:
                indices[end] = index
                end += 1
        values[begin:end] = 1 / math.sqrt(end - begin)
        offsets[row + 1] = end
    return offsets, indices[:end], values[:end]


# --------------------------------------------------------------------------------------------------------- main

DATA_SETS: dict[str, Callable[[Path, Path, Path], None]] = {
    "a9a": write_a9a,
    "reuters": write_reuters,
    "names": write_names,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(DATA_SETS)} (default: all)")
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder of the published files")
    arguments = parser.parse_intermixed_args()
    for name in arguments.names:
        if name not in DATA_SETS:
            parser.error(f"unknown data set '{name}'; choose from {', '.join(DATA_SETS)}")
    for name in arguments.names or DATA_SETS:
        folder, test_folder = arguments.out / name, arguments.out / f"{name}-test"
        for existing in (folder, test_folder):
            if existing.exists():
                parser.error(f"{existing} exists; delete it or choose another folder")
        began = time.perf_counter()
        DATA_SETS[name](arguments.source, folder, test_folder)
        print(f"{folder} and {test_folder}: {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
