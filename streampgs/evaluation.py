"""A model on other rows: its loss and accuracy, or its predictions, block by block in bounded memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streampgs.data.open import columns_of
from streampgs.errors import DataError, OptionError
from streampgs.kernels.judge_loop import loss_sum_for
from streampgs.kernels.placing_loop import score_rows
from streampgs.losses import LOSSES
from streampgs.model import Model, Vector
from streampgs.reading.bad_rows import counts_by_name
from streampgs.reading.loader import RowRules, WindowFiller
from streampgs.reading.remote import one_by_one
from streampgs.reading.window import Window
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import SPARSE, Columns

_BLOCK_BYTES = 4 << 20
_EXACT_RANKS = 1 << 21
_RANK_BINS = 1 << 17


@dataclass
class _ScoredBlock:
    scores: Vector
    """One of a row, or a column for each class or label."""
    window: Window


def _scored(model: Model, sources: Sequence[str], columns: Columns, skip_bad_rows: bool) -> Iterator[_ScoredBlock]:
    catalog, _ = build_catalog(sources, columns)
    if catalog.kind != model.layout:
        raise DataError(
            f"these shards hold {catalog.kind} rows; the model was trained on {model.layout} ones",
            "give tables of its kind",
        )
    sparse = catalog.kind == SPARSE
    width = None if sparse else model.features
    found = next((shard.layout.width for shard in catalog.shards if shard.layout.width is not None), width)
    if found != width:
        raise DataError(
            f"rows of {found} features for a model of {width}",
            "give tables with the features it was trained on",
        )
    rules = RowRules(columns, model.classifies, skip_bad_rows, width)
    vectors, intercepts = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    with (
        one_by_one(catalog) as (placed, copies),
        closing(WindowFiller(placed, np.empty(0, np.int64), rules, None, copies)) as filler,
    ):
        for window in filler.in_file_order(_BLOCK_BYTES):
            scores = np.empty((len(vectors), window.rows))
            for vector, intercept, into in zip(vectors, intercepts, scores, strict=True):
                score_rows(
                    vector, float(intercept), window.starts, window.stops, window.indices, window.values, sparse, into
                )
            yield _ScoredBlock(scores[0] if model.coef_.ndim == 1 else np.ascontiguousarray(scores.T), window)


class _Ranks:
    """Scores of positive and negative rows, for the area under the ROC curve in bounded memory.

    Up to some millions of rows it is exact. Then the scores seen so far fix bins of equally many rows, and all rows are
    counted by bin; rows of one bin count as ties, which changes the area by less than the number of rows can resolve.
    """

    def __init__(self, exact_rows: int = _EXACT_RANKS) -> None:
        self.exact_rows = exact_rows
        self.waiting: list[tuple[Vector, Vector, Vector]] = []
        self.waiting_rows = 0
        self.edges: Vector | None = None
        self.positive: Vector = np.zeros(0)
        self.negative: Vector = np.zeros(0)

    def add(self, scores: Vector, positive: NDArray[np.bool_], weights: Vector) -> None:
        self.waiting.append((scores.copy(), np.where(positive, weights, 0.0), np.where(positive, 0.0, weights)))
        self.waiting_rows += len(scores)
        if self.waiting_rows >= self.exact_rows:
            self._count_by_bin()

    def area(self) -> float | None:
        """The chance that a positive row scores above a negative one, ties half; None if either is missing."""
        if self.edges is not None:
            self._count_by_bin()
            return _area(self.positive, self.negative)
        if not self.waiting:
            return None
        scores, positive, negative = (np.concatenate(part) for part in zip(*self.waiting, strict=True))
        _, place = np.unique(scores, return_inverse=True)
        return _area(np.bincount(place, positive).astype(np.float64), np.bincount(place, negative).astype(np.float64))

    def _count_by_bin(self) -> None:
        if not self.waiting:
            return
        scores, positive, negative = (np.concatenate(part) for part in zip(*self.waiting, strict=True))
        self.waiting, self.waiting_rows = [], 0
        if self.edges is None:
            ordered = np.sort(scores)
            self.edges = np.unique(ordered[:: max(1, len(ordered) // _RANK_BINS)])
            self.positive = np.zeros(len(self.edges) + 1)
            self.negative = np.zeros(len(self.edges) + 1)
        place = np.searchsorted(self.edges, scores, side="right")
        self.positive += np.bincount(place, positive, minlength=len(self.positive))
        self.negative += np.bincount(place, negative, minlength=len(self.negative))


def _area(positive: Vector, negative: Vector) -> float | None:
    """Of weights in ascending order of their scores."""
    pairs = positive.sum() * negative.sum()
    if pairs == 0.0:
        return None
    below = np.cumsum(negative) - negative
    return float((positive * (below + 0.5 * negative)).sum() / pairs)


def evaluate(model: Model, sources: Sequence[str], skip_bad_rows: bool = False) -> dict[str, Any]:
    """rows and loss; accuracy and auc of a classification, mse and r2 of a regression; of several labels the means,
    and under `labels` the same for each."""
    options = model.options
    columns = columns_of(replace(options, class_weight=None), model.encoding)
    several = len(options.labels) > 1
    sums = [_LabelSums(model) for _ in options.labels]
    classes = _ClassSums(model) if options.multiclass else None
    rows, unknown = 0, 0
    skipped: Counter[int] = Counter()
    for block in _scored(model, sources, columns, skip_bad_rows):
        labels = block.window.labels
        weights = block.window.weights if block.window.weights.size else np.ones(len(labels))
        unknown += int(np.count_nonzero(block.window.indices >= model.features))
        skipped.update(block.window.skipped)
        rows += len(labels)
        if classes is not None:
            classes.add(block.scores, labels, weights)
        else:
            for number, part in enumerate(sums):
                place = (slice(None), number) if several else slice(None)
                part.add(np.ascontiguousarray(block.scores[place]), np.ascontiguousarray(labels[place]), weights)
    result: dict[str, Any] = {"rows": rows}
    if classes is not None:
        result |= classes.result()
    elif several:
        each = {name: part.result() for name, part in zip(options.labels, sums, strict=True)}
        known = [name for name in next(iter(each.values())) if all(part[name] is not None for part in each.values())]
        result |= {name: float(np.mean([part[name] for part in each.values()])) for name in known}
        result["labels"] = each
    else:
        result |= sums[0].result()
    if unknown:
        result["unknown_entries"] = unknown
    if skipped:
        result["skipped_rows"] = counts_by_name(skipped)
    return result


class _LabelSums:
    """What becomes loss, accuracy and auc of one label of two classes, or loss, mse and r2 of a regression."""

    def __init__(self, model: Model) -> None:
        self.shape, self.classifies = model.settings.shape, model.classifies
        self.loss_sum = loss_sum_for(LOSSES[model.settings.loss])
        self.weight = self.loss = self.correct = 0.0
        self.squares = self.label_sum = self.label_squares = 0.0
        self.pivot: float | None = None  # labels are taken relative to one of them: their spread survives a large mean
        self.ranks = _Ranks()

    def add(self, scores: Vector, labels: Vector, weights: Vector) -> None:
        self.weight += float(weights.sum())
        self.loss += self.loss_sum(scores, labels, weights, self.shape)
        if self.classifies:
            self.correct += float(weights[(scores > 0.0) == (labels > 0.0)].sum())
            self.ranks.add(scores, labels > 0.0, weights)
            return
        self.squares += float((weights * (scores - labels) ** 2).sum())
        if self.pivot is None and len(labels):
            self.pivot = float(labels[0])
        centred = labels - (self.pivot or 0.0)
        self.label_sum += float((weights * centred).sum())
        self.label_squares += float((weights * centred * centred).sum())

    def result(self) -> dict[str, float | None]:
        weight = self.weight
        result: dict[str, float | None] = {"loss": self.loss / weight if weight else None}
        if self.classifies:
            return {**result, "accuracy": self.correct / weight if weight else None, "auc": self.ranks.area()}
        spread = self.label_squares - self.label_sum * self.label_sum / weight if weight else 0.0
        return {
            **result,
            "mse": self.squares / weight if weight else None,
            "r2": 1.0 - self.squares / spread if spread > 0.0 else None,
        }


class _ClassSums:
    """What becomes loss and accuracy of more than two classes; the loss is the mean of one-vs-rest losses."""

    def __init__(self, model: Model) -> None:
        self.shape = model.settings.shape
        self.loss_sum = loss_sum_for(LOSSES[model.settings.loss])
        self.weight = self.loss = self.correct = 0.0

    def add(self, scores: Vector, numbers: Vector, weights: Vector) -> None:
        self.weight += float(weights.sum())
        for number in range(scores.shape[1]):
            meant = np.where(numbers == number, 1.0, -1.0)
            own = np.ascontiguousarray(scores[:, number])
            self.loss += self.loss_sum(own, meant, weights, self.shape) / scores.shape[1]
        self.correct += float(weights[scores.argmax(axis=1) == numbers].sum())

    def result(self) -> dict[str, float | None]:
        return {
            "loss": self.loss / self.weight if self.weight else None,
            "accuracy": self.correct / self.weight if self.weight else None,
        }


def predict(model: Model, sources: Sequence[str], out: Path, skip_bad_rows: bool = False) -> int:
    """Write score, prediction and (where the loss has one) probability of every row, in the rows' order. Of more than
    two classes there is a score and a probability for each, `score_3` and `probability_3`; of several labels all
    three for each.

    With `skip_bad_rows` a row that cannot be used gets nulls. The file appears under its name when it is whole.
    """
    writers = {".parquet": _parquet_writer, ".arrow": _arrow_writer, ".csv": _csv_writer}
    writer_kind = writers.get(out.suffix.lower())
    if writer_kind is None:
        raise OptionError(f"--out '{out}' ends in none of {', '.join(writers)}", "the ending decides the format")
    example = _predicted(model, np.zeros((1, len(model.targets))[: 1 + (model.coef_.ndim > 1)]))
    schema = pa.schema([(name, pa.array(values).type) for name, values in example.items()])
    temporary = out.with_name(f".{out.name}.writing")
    rows = 0
    try:
        with writer_kind(temporary, schema) as writer:
            for block in _scored(model, sources, Columns(None, None, encoding=model.encoding), skip_bad_rows):
                batch = pa.RecordBatch.from_arrays(
                    [_in_place(part, block.window.kept) for part in _predicted(model, block.scores).values()],
                    schema=schema,
                )
                writer.write_batch(batch)
                rows += batch.num_rows
        os.replace(temporary, out)
    except OSError as error:
        raise OptionError(
            f"--out '{out}' cannot be written: {error.strerror or error}",
            "name a file in a folder that exists",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _predicted(model: Model, scores: Vector) -> dict[str, NDArray[Any]]:
    """The columns to write."""
    predictions, probabilities = model.predictions(scores), model.probabilities(scores)
    if scores.ndim == 1:
        found = {"score": scores, "prediction": predictions}
        return found if probabilities is None else {**found, "probability": probabilities}
    columns: dict[str, NDArray[Any]] = {} if predictions.ndim > 1 else {"prediction": predictions}
    for number, name in enumerate(model.targets):
        columns[f"score_{name}"] = scores[:, number]
        if predictions.ndim > 1:
            columns[f"prediction_{name}"] = predictions[:, number]
        if probabilities is not None:
            columns[f"probability_{name}"] = probabilities[:, number]
    return columns


def _in_place(values: NDArray[Any], kept: NDArray[np.bool_] | None) -> pa.Array:
    if kept is None:
        return pa.array(values)
    spread = np.zeros(len(kept), values.dtype)
    spread[kept] = values
    return pa.array(spread, mask=~kept)


def _parquet_writer(path: Path, schema: pa.Schema) -> Any:
    return pq.ParquetWriter(path, schema, write_page_checksum=True)


def _arrow_writer(path: Path, schema: pa.Schema) -> Any:
    return pa.ipc.new_file(str(path), schema)


def _csv_writer(path: Path, schema: pa.Schema) -> Any:
    from pyarrow import csv

    return csv.CSVWriter(str(path), schema)
