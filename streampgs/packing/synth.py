"""`streampgs synth`: synthetic datasets, written in bounded memory.

A row is a pure function of the seed and its number: word i of a key is a counted random word, and each row has a key.
The dense kinds draw the target and a position along one direction first, and the features given that position.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.files import writing
from streampgs.kernels.randomness import STRIDE, mix
from streampgs.options.commands import SynthOptions
from streampgs.options.fields import build
from streampgs.packing.shards import complete_or_absent, shard_name, shard_writer, shards_to_replace

_mix: Callable[[Any], Any] = mix

Words = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]

# What a key is for. Renumbering them changes every dataset.
_ROWS, _FEATURE_ORDER, _FEATURE_WEIGHTS, _DIRECTION, _CENTRE, _SPREAD, _FACTORS = range(7)

# Test rows and the pilot rows that set the sparse bias have numbers far above those of training rows.
FIRST_TEST_ROW = 1 << 40
_PILOT_ROWS = (1 << 41, 32_768)

# A feature's popularity goes with (rank + offset)^-exponent. 1,000 real RCV1 rows have document frequencies
# .44 .11 .055 .017 .004 at ranks 0, 100, 300, 1000, 3000 and 77.7 ± 53.6 nonzeros; these have .32 .11 .043 .011 .003
# and 76.8 ± 48.5.
_POPULARITY_EXPONENT, _POPULARITY_OFFSET = 1.25, 60.0
_LENGTH_LOG_MEAN, _LENGTH_LOG_SPREAD = 4.2, 0.62
LONGEST_ROW = 512
_RARITY_FLOOR = 0.1
# Weights fall so slowly with popularity that features that are learned late carry much of the signal.
_WEIGHT_EXPONENT = 0.2
SPARSE_LABEL_NOISE, _SPARSE_POSITIVE_SHARE = 0.051, 0.47

_COMMON_FACTORS = 4
_LOGISTIC_SLOPE = 2.4  # the best classifier is right for 80 rows in 100
_MEAN, _SIGNAL, _NOISE = 3.0, 2.0, 1.0  # of regression: r² is .8
GAUSSIAN_DISTANCE = 2.5  # in standard deviations: the best plane has accuracy Φ(1.25) = .894

_TEST_SHARD_ROWS = 500_000
_BATCH_BYTES, _ROW_GROUP_BYTES = 1 << 20, 1 << 25


@dataclass(frozen=True)
class SynthReport:
    """The dataset that was written. All fields except `test_folder` describe the training rows."""

    rows: int
    kind: str
    features: int
    nonzeros: int
    bytes: int
    files: int
    seconds: float
    test_folder: Path | None


def write_dataset(out: Path, *, rows: int, **chosen: Any) -> SynthReport:
    """Write `rows` rows into the folder `out`, and `test_rows` others into the folder `out`-test.

    The other keywords are the options of `streampgs synth`.
    """
    (options,) = build("synth", {"rows": rows, **chosen}, SynthOptions)
    started = time.perf_counter()
    out = Path(os.path.abspath(out))
    test_out = out.with_name(out.name + "-test") if options.test_rows else None
    (source_of, usual_features), shards = _KINDS[options.kind], min(options.shards, options.rows)
    test_shards = math.ceil(options.test_rows / _TEST_SHARD_ROWS)
    parts = [(out, 0, options.rows, shards), (test_out, FIRST_TEST_ROW, options.test_rows, test_shards)]
    with ExitStack() as stack:
        wanted = [(folder, *part) for folder, *part in parts if folder is not None]
        for folder, *_ in wanted:
            shards_to_replace(folder)
        staged = [stack.enter_context(complete_or_absent(folder)) for folder, *_ in wanted]
        source = source_of(options.seed, options.features or usual_features)
        nonzeros = [
            _write_shards(source, first, count, staging, files, options.format)
            for staging, (_, first, count, files) in zip(staged, wanted, strict=True)
        ]
    size = sum(file.stat().st_size for file in out.iterdir())
    seconds = time.perf_counter() - started
    return SynthReport(options.rows, options.kind, source.features, nonzeros[0], size, shards, seconds, test_out)


def _write_shards(source: Source, first_row: int, rows: int, folder: Path, shards: int, format: str) -> int:
    """Write rows to shards of equal size; return the nonzeros."""
    at_once = source.batch_rows if format == "arrow" else source.row_group_rows
    nonzeros = 0
    for shard in range(shards):
        first, stop = (first_row + rows * part // shards for part in (shard, shard + 1))
        with (
            writing(folder / shard_name(shard, format), replace=False) as file,
            shard_writer(file, source.schema, format) as writer,
        ):
            for start in range(first, stop, at_once):
                end = min(start + at_once, stop)
                pieces = (
                    np.arange(at, min(at + source.batch_rows, end)) for at in range(start, end, source.batch_rows)
                )
                group = pa.concat_batches([source.batch(numbers) for numbers in pieces])
                writer.write_batch(group)
                nonzeros += len(group.columns[-1].values)
                del group  # so that it is not in memory while the next is made
    return nonzeros


# ------------------------------------------------------------------------------------------- random numbers


def words_of(key: Any, positions: Any) -> Words:
    """The counted random words of a key, or of an array of keys."""
    with np.errstate(over="ignore"):
        return np.asarray(_mix(key + (np.asarray(positions).astype(np.uint64) + np.uint64(1)) * STRIDE))


def key_for(seed: int, purpose: int) -> Words:
    with np.errstate(over="ignore"):
        return words_of(_mix(np.uint64(seed)), purpose)


def uniforms(words: Words) -> Floats:
    """In the open interval (0, 1), so that the logarithm is finite."""
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _ziggurat_edges(layers: int, outermost: float, area: float) -> Floats:
    edges = np.zeros(layers + 1)
    edges[0] = area / math.exp(-0.5 * outermost**2)
    edges[1] = outermost
    for layer in range(2, layers):
        height = area / edges[layer - 1] + math.exp(-0.5 * edges[layer - 1] ** 2)
        edges[layer] = math.sqrt(-2.0 * math.log(height))
    return edges


# Marsaglia and Tsang 2000: 256 layers of equal area under exp(-x²/2), the lowest with the tail.
_EDGES = _ziggurat_edges(256, 3.6541528853610088, 0.00492867323399)
_HEIGHTS = np.exp(-0.5 * _EDGES**2)


def normals(words: Words) -> Floats:
    """One standard normal number for each word. Words that a layer rejects are replaced by the next of their sequence."""
    layer = (words & np.uint64(0xFF)).astype(np.int64)
    signed = (words.view(np.int64) >> 11).astype(np.float64) * 2.0**-52
    out: Floats = signed * _EDGES[layer]
    for place in np.argwhere(np.abs(out) >= _EDGES[layer + 1]).tolist():
        out[tuple(place)] = _normal(words[tuple(place)])
    return out


def _normal(word: Any) -> float:
    while True:
        layer = int(word & np.uint64(0xFF))
        signed = (int(word.view(np.int64)) >> 11) * 2.0**-52
        x = signed * float(_EDGES[layer])
        if abs(x) < _EDGES[layer + 1]:
            return x
        word = words_of(word, 0)
        while layer == 0:
            beyond = -math.log(uniforms(word)) / float(_EDGES[1])
            word = words_of(word, 0)
            if -2.0 * math.log(uniforms(word)) > beyond * beyond:
                return math.copysign(float(_EDGES[1]) + beyond, signed)
            word = words_of(word, 0)
        height = float(_HEIGHTS[layer] + uniforms(word) * (_HEIGHTS[layer + 1] - _HEIGHTS[layer]))
        if height < math.exp(-0.5 * x * x):
            return x
        word = words_of(word, 0)


def _normals_for(seed: int, purpose: int, count: int) -> Floats:
    return normals(words_of(key_for(seed, purpose), np.arange(count)))


# ---------------------------------------------------------------------------------------------- kinds of rows


class Sparse:
    """Documents of words: independent draws by popularity, tf-idf values, rows of length one."""

    schema = pa.schema({"label": pa.int8(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())})
    batch_rows = 2_000
    row_group_rows = 50_000

    def __init__(self, seed: int, features: int) -> None:
        self.features = features
        self._rows_key = key_for(seed, _ROWS)
        order = np.argsort(words_of(key_for(seed, _FEATURE_ORDER), np.arange(features)), kind="stable")
        popularity = np.empty(features)
        popularity[order] = (np.arange(features) + _POPULARITY_OFFSET) ** -_POPULARITY_EXPONENT
        popularity /= popularity.sum()
        self.cumulative = np.cumsum(popularity)
        self.cumulative[-1] = 2.0  # every search ends there
        typical_length = math.exp(_LENGTH_LOG_MEAN + 0.5 * _LENGTH_LOG_SPREAD**2)
        self.rarity = _RARITY_FLOOR - np.log(-np.expm1(typical_length * np.log1p(-popularity)))
        self.weights = popularity**_WEIGHT_EXPONENT * _normals_for(seed, _FEATURE_WEIGHTS, features)
        self.bias = 0.0
        # With label noise included, the wished share of rows is positive.
        share = (_SPARSE_POSITIVE_SHARE - SPARSE_LABEL_NOISE) / (1.0 - 2.0 * SPARSE_LABEL_NOISE)
        first, count = _PILOT_ROWS
        pilots = np.arange(first, first + count).reshape(-1, 1024)
        self.bias = -float(np.quantile(np.concatenate([self.rows(part)[3] for part in pilots]), 1.0 - share))

    def rows(self, numbers: Numbers) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats, Floats]:
        """(offsets, indices, values, scores) of the rows."""
        keys = words_of(self._rows_key, numbers)
        wished = np.exp(_LENGTH_LOG_MEAN + _LENGTH_LOG_SPREAD * normals(words_of(keys, 0)))
        lengths = 1 + np.minimum(wished, LONGEST_ROW - 1.0).astype(np.int64)
        drawn = []
        for rows in np.array_split(np.argsort(lengths, kind="stable"), len(numbers) // 128 + 1):
            # Sums of exponential spacings over the whole sum are sorted uniform numbers.
            draws = np.arange(lengths[rows].max(initial=0) + 1)
            places = np.cumsum(-np.log(uniforms(words_of(keys[rows, None], 2 + draws))), axis=1)
            places /= np.take_along_axis(places, lengths[rows, None], axis=1)
            used = draws < lengths[rows, None]
            drawn.append(
                np.repeat(rows, lengths[rows]) * self.features
                + np.searchsorted(self.cumulative, places[used], side="right")
            )
        entries, times = np.unique(np.concatenate(drawn), return_counts=True)
        row, feature = np.divmod(entries, self.features)
        starts = np.searchsorted(row, np.arange(len(numbers) + 1))
        values = self.rarity[feature] * (1.0 + np.log(times))
        norms = np.sqrt(np.add.reduceat(values * values, starts[:-1]))
        scores = np.add.reduceat(self.weights[feature] * values, starts[:-1]) / norms + self.bias
        return starts.astype(np.int32), feature.astype(np.int32), values / norms[row], scores

    def labels(self, numbers: Numbers, scores: Floats) -> NDArray[np.int8]:
        flipped = uniforms(words_of(words_of(self._rows_key, numbers), 1)) < SPARSE_LABEL_NOISE
        return np.where((scores > 0.0) != flipped, 1, -1).astype(np.int8)

    def batch(self, numbers: Numbers) -> pa.RecordBatch:
        offsets, indices, values, scores = self.rows(numbers)
        lists = [pa.ListArray.from_arrays(offsets, child) for child in (indices, values.astype(np.float32))]
        return pa.record_batch([pa.array(self.labels(numbers, scores)), *lists], schema=self.schema)


@dataclass(frozen=True)
class Cloud:
    """A normal cloud and one direction through it. Its covariance is Σ = diag(own)² + loadingsᵀ·loadings; the position
    of a row is <direction, row - centre>."""

    direction: Floats
    """Scaled so that directionᵀ·Σ·direction = 1: positions are standard normal."""
    along: Floats
    """Σ·direction: the change of the features when the position changes by one."""
    centre: Floats
    own: Floats
    loadings: Floats
    """[common factor][feature]"""


def cloud(seed: int, features: int) -> Cloud:
    spread = np.exp(0.3 * _normals_for(seed, _SPREAD, features))
    factors = _normals_for(seed, _FACTORS, _COMMON_FACTORS * features).reshape(_COMMON_FACTORS, features)
    own = math.sqrt(0.5) * spread
    loadings = math.sqrt(0.5 / _COMMON_FACTORS) * spread * factors

    def covariance_times(vector: Floats) -> Floats:
        # Not by @: the order of a BLAS sum depends on the machine and its threads.
        strengths = (loadings * vector).sum(axis=1, keepdims=True)
        return np.asarray(own**2 * vector + (strengths * loadings).sum(axis=0))

    direction = _normals_for(seed, _DIRECTION, features)
    direction /= math.sqrt((direction * covariance_times(direction)).sum())
    centre = 0.5 * _normals_for(seed, _CENTRE, features)
    return Cloud(direction, covariance_times(direction), centre, own, loadings)


Draw = Callable[[Floats, Words], tuple[Floats, Floats]]
"""(normal number, another word) of each row → (target, position in the cloud)."""


def _logistic(normal: Floats, word: Words) -> tuple[Floats, Floats]:
    return (uniforms(word) < 1.0 / (1.0 + np.exp(-_LOGISTIC_SLOPE * normal))).astype(np.float64), normal


def _linear(normal: Floats, word: Words) -> tuple[Floats, Floats]:
    return _MEAN + _SIGNAL * normal + _NOISE * normals(word), normal


def _two_classes(normal: Floats, word: Words) -> tuple[Floats, Floats]:
    labels = np.where(uniforms(word) < 0.5, 1.0, -1.0)
    return labels, 0.5 * GAUSSIAN_DISTANCE * labels + normal


class Dense:
    def __init__(self, draw: Draw, label: type[Any], centred: bool, seed: int, features: int) -> None:
        self.features = features
        self.cloud = cloud(seed, features)
        # Around the origin, the plane between two means needs no intercept.
        self._centre = np.zeros(features) if centred else self.cloud.centre
        self._draw, self._label = draw, np.dtype(label)
        self.schema = pa.schema(
            {"label": pa.from_numpy_dtype(self._label), "features": pa.list_(pa.float32(), features)}
        )
        self.batch_rows = min(8_192, max(1, _BATCH_BYTES // (4 * features)))
        self.row_group_rows = min(100_000, max(1, _ROW_GROUP_BYTES // (4 * features)))
        self._rows_key = key_for(seed, _ROWS)

    def draws(self, numbers: Numbers) -> tuple[Floats, Floats]:
        """(targets, positions) of the rows."""
        keys = words_of(self._rows_key, numbers)
        return self._draw(normals(words_of(keys, 0)), words_of(keys, 1))

    def rows(self, numbers: Numbers, positions: Floats) -> NDArray[np.float32]:
        """Free draws, each moved along Σ·direction to its position."""
        keys = words_of(self._rows_key, numbers)[:, None]
        free = self.cloud.own * normals(words_of(keys, 2 + _COMMON_FACTORS + np.arange(self.features)))
        for factor, loadings in enumerate(self.cloud.loadings):
            free += normals(words_of(keys, 2 + factor)) * loadings
        moves = positions - (self.cloud.direction * free).sum(axis=1)
        placed: Floats = self._centre + free + moves[:, None] * self.cloud.along
        return placed.astype(np.float32)

    def batch(self, numbers: Numbers) -> pa.RecordBatch:
        targets, positions = self.draws(numbers)
        vectors = pa.FixedSizeListArray.from_arrays(self.rows(numbers, positions).ravel(), self.features)
        return pa.record_batch([pa.array(targets.astype(self._label)), vectors], schema=self.schema)


Source = Sparse | Dense


# A source is made from a seed and a number of features; the number is the usual one.
_KINDS: dict[str, tuple[Callable[[int, int], Source], int]] = {
    "sparse": (Sparse, 47_236),
    "dense": (partial(Dense, _logistic, np.int8, False), 28),
    "regression": (partial(Dense, _linear, np.float64, False), 28),
    "gaussian": (partial(Dense, _two_classes, np.int8, True), 20),
}
KINDS = tuple(_KINDS)
