"""A model on rows that it was not trained on: its metrics, or its predictions, block by block in bounded memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from streampgs.data.open import columns_of
from streampgs.errors import OptionError
from streampgs.losses import Vector
from streampgs.metrics import Metrics
from streampgs.model import Model
from streampgs.reading.bad_rows import counts_by_name
from streampgs.reading.loader import one_pass
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window
from streampgs.scoring import check_layout, window_scores
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import SPARSE, Columns

_BLOCK_BYTES = 4 << 20
_WRITERS: dict[str, Callable[[Path, pa.Schema], Any]] = {
    ".parquet": partial(pq.ParquetWriter, write_page_checksum=True),
    ".arrow": pa.ipc.new_file,
    ".csv": csv.CSVWriter,
}


def _scored(
    model: Model, sources: Sequence[str], columns: Columns, skip_bad_rows: bool
) -> Iterator[tuple[Vector, Window]]:
    """The score of each row (of several classes or labels a column for each), block by block."""
    catalog = build_catalog(sources, columns)
    sparse = catalog.kind == SPARSE
    for layout in {shard.layout for shard in catalog.shards}:
        check_layout(layout, model.layout, model.features, "the shards hold rows")
    width = None if sparse else model.features
    rules = RowRules(columns, model.classifies, skip_bad_rows, width)
    with one_pass(catalog, rules) as filler:
        for window in filler.in_file_order(_BLOCK_BYTES):
            yield window_scores(model.coef_, model.intercept_, window, sparse), window


def evaluate(model: Model, sources: Sequence[str], skip_bad_rows: bool = False) -> dict[str, Any]:
    """The number of rows, and all metrics that apply to the model. With several labels: the means of the metrics, and
    under `labels` the metrics of each label."""
    options = model.options
    columns = columns_of(replace(options, class_weight=None), model.encoding)
    each = [Metrics(model.task) for _ in options.labels]
    rows = unknown = 0
    skipped: Counter[int] = Counter()
    for scores, window in _scored(model, sources, columns, skip_bad_rows):
        weights = window.weights if window.weights.size else np.ones(window.rows)
        rows += window.rows
        unknown += int(np.count_nonzero(window.indices >= model.features))
        skipped.update(window.skipped)
        for number, metrics in enumerate(each):
            place = (slice(None), number) if len(each) > 1 else slice(None)
            metrics.add(np.ascontiguousarray(scores[place]), np.ascontiguousarray(window.labels[place]), weights)
    result: dict[str, Any] = {"rows": rows, **_results(options.labels, each)}
    if unknown:
        result["unknown_entries"] = unknown
    if skipped:
        result["skipped_rows"] = counts_by_name(skipped)
    return result


def _results(labels: Sequence[str], each: Sequence[Metrics]) -> dict[str, Any]:
    found = [metrics.results() for metrics in each]
    if len(found) == 1:
        return found[0]
    values = {name: [of_label[name] for of_label in found] for name in found[0]}
    means = {name: float(np.mean(some)) for name, some in values.items() if None not in some}
    return {**means, "labels": dict(zip(labels, found, strict=True))}


def predict(model: Model, sources: Sequence[str], out: Path, skip_bad_rows: bool = False) -> int:
    """Write the score, the prediction and (if the loss has one) the probability of every row, in the order of the rows.
    With more than two classes each has its score and probability, `score_3` and `probability_3`; with several labels
    each has all three.

    With `skip_bad_rows` a row that cannot be used gets nulls. The file gets its name when it is complete.
    """
    writer_of = _WRITERS.get(out.suffix.lower())
    if writer_of is None:
        raise OptionError(
            f"--out '{out}' does not end in one of {', '.join(_WRITERS)}", "the ending decides the format"
        )
    example = _predicted(model, np.zeros((1, len(model.targets))[: 1 + (model.coef_.ndim > 1)]))
    schema = pa.schema([(name, pa.array(values).type) for name, values in example.items()])
    temporary = out.with_name(f".{out.name}.writing")
    columns = Columns(None, None, encoding=model.encoding, offset=model.options.offset)
    rows = 0
    try:
        with writer_of(temporary, schema) as writer:
            for scores, window in _scored(model, sources, columns, skip_bad_rows):
                arrays = [_in_place(part, window.kept) for part in _predicted(model, scores).values()]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
                rows += len(arrays[0])
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
