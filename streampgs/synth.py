"""`streampgs synth`: synthetic datasets of any size, streamed to disk in bounded memory.

A row is a pure function of (seed, row number), see `streampgs.kernels.synth_loop`: what is left to do
here is to choose an order of row numbers and to cut it into record batches and shards.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import ndtri

from streampgs.errors import OptionError
from streampgs.kernels import synth_loop as synthetic

__all__ = ["FORMATS", "KINDS", "SynthReport", "gaussian_direction", "write_dataset"]

Numbers = NDArray[np.int64]
Targets = NDArray[np.float64]

_PIECE_ROWS = 65_536
_SORTED_AT_ONCE_ROWS = 1 << 20
_TEST_SHARD_ROWS = 500_000
_MOST_FEATURES = 1 << 24
_BATCH_BYTES = 1 << 20
_ROW_GROUP_BYTES = 1 << 25


@dataclass(frozen=True)
class SynthReport:
    """What was written; all but `test_folder` is about the training rows."""

    rows: int
    features: int
    nonzeros: int
    bytes: int
    files: int
    seconds: float
    test_folder: Path | None


def write_dataset(
    out: Path,
    *,
    rows: int,
    kind: str,
    shards: int = 8,
    format: str = "arrow",
    seed: int = 0,
    sort: bool = False,
    features: int | None = None,
    test_rows: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> SynthReport:
    """Write `rows` rows into the folder `out`, and `test_rows` others into the folder `out`-test.

    `sort` orders the training rows by label, lowest first. `on_progress` is told (rows written, rows in all).
    """
    _check(rows, kind, shards, format, seed, features, test_rows)
    out = Path(os.path.abspath(out))
    test_out = out.with_name(out.name + "-test") if test_rows else None
    folders = [out] if test_out is None else [out, test_out]
    for folder in folders:
        _refuse_unless_empty(folder)
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)

    started = time.perf_counter()
    source = _KINDS[kind].source(seed, features or _KINDS[kind].default_features)
    written_rows = 0

    def advance(batch_rows: int) -> None:
        nonlocal written_rows
        written_rows += batch_rows
        if on_progress is not None:
            on_progress(written_rows, rows + test_rows)

    numbers = _KINDS[kind].by_target(source, rows) if sort else _pieces(0, rows)
    nonzeros = _write_shards(source, numbers, out, _shares(rows, shards), format, advance)
    if test_out is not None:
        numbers = _pieces(synthetic.FIRST_TEST_ROW, synthetic.FIRST_TEST_ROW + test_rows)
        test_shares = _shares(test_rows, math.ceil(test_rows / _TEST_SHARD_ROWS))
        _write_shards(source, numbers, test_out, test_shares, format, advance)
    return SynthReport(
        rows=rows,
        features=source.features,
        nonzeros=nonzeros,
        bytes=sum(file.stat().st_size for file in out.iterdir()),
        files=shards,
        seconds=time.perf_counter() - started,
        test_folder=test_out,
    )


def gaussian_direction(seed: int, features: int) -> NDArray[np.float64]:
    """The unit normal of the best separating plane of kind `gaussian`: Σ⁻¹(μ₊ - μ₋), normalised."""
    direction = synthetic.cloud(seed, features).direction
    return direction / math.sqrt((direction**2).sum())


# ---------------------------------------------------------------------------------------------- kinds of rows


class _Source(Protocol):
    features: int
    schema: pa.Schema
    batch_rows: int
    row_group_rows: int

    def targets(self, numbers: Numbers) -> Targets: ...

    def batch(self, numbers: Numbers) -> pa.RecordBatch: ...


class _SparseSource:
    schema = pa.schema({"label": pa.int8(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())})
    batch_rows = 2_000
    row_group_rows = 50_000

    def __init__(self, seed: int, features: int) -> None:
        self.features = features
        self._seed = np.uint64(seed)
        self._vocabulary = synthetic.vocabulary(seed, features)

    def targets(self, numbers: Numbers) -> Targets:
        labels: Targets = synthetic.sparse_labels(self._seed, numbers, self._vocabulary)
        return labels

    def batch(self, numbers: Numbers) -> pa.RecordBatch:
        labels, offsets, indices, values = synthetic.sparse_rows(self._seed, numbers, self._vocabulary)
        lists = [pa.ListArray.from_arrays(offsets, child) for child in (indices, values)]
        return pa.record_batch([pa.array(labels), *lists], schema=self.schema)


class _DenseSource:
    """Rows of a cloud. `draw(seed, numbers)` says what their targets are and where in the cloud they lie."""

    def __init__(
        self,
        seed: int,
        cloud: synthetic.Cloud,
        draw: Callable[[np.uint64, Numbers], tuple[Targets, NDArray[np.float64]]],
        label: np.dtype[Any],
    ) -> None:
        self.features = len(cloud.direction)
        self.schema = pa.schema(
            {"label": pa.from_numpy_dtype(label), "features": pa.list_(pa.float32(), self.features)}
        )
        self.batch_rows = min(8_192, max(1, _BATCH_BYTES // (4 * self.features)))
        self.row_group_rows = min(100_000, max(1, _ROW_GROUP_BYTES // (4 * self.features)))
        self._seed = np.uint64(seed)
        self._cloud = cloud
        self._draw = draw
        self._label = label

    def targets(self, numbers: Numbers) -> Targets:
        return self._draw(self._seed, numbers)[0]

    def batch(self, numbers: Numbers) -> pa.RecordBatch:
        targets, positions = self._draw(self._seed, numbers)
        rows = synthetic.dense_rows(self._seed, numbers, positions, self._cloud)
        vectors = pa.FixedSizeListArray.from_arrays(rows.ravel(), self.features)
        return pa.record_batch([pa.array(targets.astype(self._label)), vectors], schema=self.schema)


def _dense(seed: int, features: int) -> _Source:
    cloud = synthetic.cloud(seed, features)
    return _DenseSource(seed, cloud, synthetic.logistic_targets, np.dtype(np.int8))


def _regression(seed: int, features: int) -> _Source:
    cloud = synthetic.cloud(seed, features)
    return _DenseSource(seed, cloud, synthetic.regression_targets, np.dtype(np.float64))


def _gaussian(seed: int, features: int) -> _Source:
    # Around the origin, so that the plane between the two means needs no intercept.
    cloud = synthetic.cloud(seed, features)._replace(centre=np.zeros(features))
    return _DenseSource(seed, cloud, synthetic.gaussian_targets, np.dtype(np.int8))


# -------------------------------------------------------------------------------------- orders of row numbers


def _pieces(first: int, stop: int) -> Iterator[Numbers]:
    for start in range(first, stop, _PIECE_ROWS):
        yield np.arange(start, min(start + _PIECE_ROWS, stop))


def _by_class(lowest: int, highest: int, source: _Source, rows: int) -> Iterator[Numbers]:
    for label in (lowest, highest):
        for piece in _pieces(0, rows):
            yield piece[source.targets(piece) == label]


def _by_regression_target(source: _Source, rows: int) -> Iterator[Numbers]:
    """One pass over all targets for each range of them that is sorted in memory."""
    ranges = math.ceil(rows / _SORTED_AT_ONCE_ROWS)
    # The targets are normal, so ranges of equal share are known beforehand.
    bounds = synthetic.REGRESSION_MEAN + synthetic.REGRESSION_SPREAD * ndtri(np.arange(ranges + 1) / ranges)
    for low, high in pairwise(bounds):
        found_numbers, found_targets = [], []
        for piece in _pieces(0, rows):
            targets = source.targets(piece)
            inside = (low <= targets) & (targets < high)
            found_numbers.append(piece[inside])
            found_targets.append(targets[inside])
        yield np.concatenate(found_numbers)[np.argsort(np.concatenate(found_targets), kind="stable")]


def _recut(pieces: Iterator[Numbers], sizes: Iterator[int]) -> Iterator[Numbers]:
    """The same numbers in pieces of the given sizes."""
    left = np.empty(0, np.int64)
    for size in sizes:
        parts = [left]
        missing = size - len(left)
        while missing > 0:
            parts.append(next(pieces))
            missing -= len(parts[-1])
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
        yield joined[:size]
        left = joined[size:]


@dataclass(frozen=True)
class _Kind:
    source: Callable[[int, int], _Source]
    by_target: Callable[[_Source, int], Iterator[Numbers]]
    default_features: int
    least_features: int


_KINDS = {
    # A cosine-normalised row of a single feature is always the same row: at least two.
    "sparse": _Kind(_SparseSource, partial(_by_class, -1, 1), 47_236, 2),
    "dense": _Kind(_dense, partial(_by_class, 0, 1), 28, 1),
    "regression": _Kind(_regression, _by_regression_target, 28, 1),
    "gaussian": _Kind(_gaussian, partial(_by_class, -1, 1), 20, 1),
}
KINDS = tuple(_KINDS)


# ---------------------------------------------------------------------------------------------------- to disk


def _arrow_writer(path: Path, schema: pa.Schema) -> Any:
    return pa.ipc.new_file(str(path), schema)


def _parquet_writer(path: Path, schema: pa.Schema) -> Any:
    # No dictionaries: hardly a value comes twice.
    return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False, write_page_checksum=True)


_WRITERS = {"arrow": _arrow_writer, "parquet": _parquet_writer}
FORMATS = tuple(_WRITERS)


def _shares(rows: int, shards: int) -> list[int]:
    return [rows * (shard + 1) // shards - rows * shard // shards for shard in range(shards)]


def _batch_sizes(share: int, at_once: int) -> Iterator[int]:
    return (min(at_once, share - start) for start in range(0, share, at_once))


def _write_shards(
    source: _Source,
    numbers: Iterator[Numbers],
    folder: Path,
    shares: list[int],
    format: str,
    advance: Callable[[int], None],
) -> int:
    """Write one shard for each share of the rows; return the nonzeros."""
    at_once = source.batch_rows if format == "arrow" else source.row_group_rows
    pieces = _recut(numbers, (size for share in shares for size in _batch_sizes(share, at_once)))
    nonzeros = 0
    for shard, share in enumerate(shares):
        with (
            _whole_or_absent(folder / f"part-{shard:05d}.{format}") as path,
            _WRITERS[format](path, source.schema) as writer,
        ):
            for _ in _batch_sizes(share, at_once):
                nonzeros += _write_batch(source.batch(next(pieces)), writer, advance)
    return nonzeros


def _write_batch(batch: pa.RecordBatch, writer: Any, advance: Callable[[int], None]) -> int:
    """Return the nonzeros. A function of its own, so that no batch is still held while the next is made."""
    writer.write_batch(batch)
    advance(batch.num_rows)
    return len(batch.columns[-1].values)


@contextmanager
def _whole_or_absent(path: Path) -> Iterator[Path]:
    """A hidden path to write to, renamed to `path` when all went well and removed otherwise."""
    hidden = path.with_name(f".{path.name}")
    try:
        yield hidden
        hidden.rename(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


# ---------------------------------------------------------------------------------------------------- options


def _check(rows: int, kind: str, shards: int, format: str, seed: int, features: int | None, test_rows: int) -> None:
    for what, name, known in (("kind", kind, KINDS), ("format", format, FORMATS)):
        if name not in known:
            raise OptionError(f"{what} {name!r} is unknown", f"choose one of {', '.join(known)}")
    least = _KINDS[kind].least_features
    for what, number, first, last in (
        ("row count", rows, 1, synthetic.FIRST_TEST_ROW),
        ("number of test rows", test_rows, 0, synthetic.FIRST_TEST_ROW),
        ("shard count", shards, 1, rows),
        (f"feature count of kind {kind!r}", least if features is None else features, least, _MOST_FEATURES),
        ("seed", seed, 0, (1 << 64) - 1),
    ):
        if not first <= number <= last:
            raise OptionError(f"the {what} {number} is out of range", f"choose one from {first} to {last}")


def _refuse_unless_empty(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file", "name a folder that is absent or empty")
    if folder.exists() and any(folder.iterdir()):
        raise OptionError(f"the folder {folder} is not empty", "name an absent or empty one, or empty it")
