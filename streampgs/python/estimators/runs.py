"""Training from files: of shards that the user names, or of rows that are too many for the memory budget."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.encoding.rows import OFFSET, WEIGHT, RowBlock, label_name
from streampgs.model.model import Model
from streampgs.options.commands import EncodingOptions
from streampgs.options.fields import options_of
from streampgs.packing.shards import write_shards
from streampgs.python.api import train
from streampgs.python.estimators.features import Features, is_arrow, is_sparse
from streampgs.python.estimators.training import Given
from streampgs.run.report import Report

_NONE = np.empty(0)


def trained_run(data: Any, run: str | Path | None, options: dict[str, Any]) -> tuple[Model, Report]:
    """The model of a run on shards. Without a folder for the run, it is removed when training has ended."""
    if run is not None:
        report = train(data, run=run, **options)
        return Model.load(run), report
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        report = train(data, run=Path(folder) / "run", **options)
        return Model.load(Path(folder) / "run"), report


def trained_from_files(given: Given, features: Features, options: dict[str, Any]) -> tuple[Model, Report, int]:
    """Train on rows that are written to temporary files first, as features: what becomes of columns is the same as in
    memory. The last number is that of rows with a clipped number."""
    clipped: list[int] = []
    columns = {"label": label_name(0), "weight": WEIGHT, "offset": OFFSET}
    absent = [name for name, cells in (("weight", given.all_weights), ("offset", given.offsets)) if cells is None]
    options = {name: value for name, value in options.items() if name not in options_of(EncodingOptions)}
    options |= {name: column for name, column in columns.items() if name not in absent}
    options |= {"standardize": "off", "feature_count": features.features, "progress": False}
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        write_shards(_batches(given, features, clipped), Path(folder) / "rows")
        return *trained_run(str(Path(folder) / "rows"), None, options), sum(clipped)


def _batches(given: Given, features: Features, clipped: list[int]) -> Iterator[pa.RecordBatch]:
    weights, offsets, counted = given.all_weights, given.offsets, np.zeros(len(given.labels), np.bool_)
    counted[given.counted] = True
    if weights is not None:
        weights = weights / weights[counted].mean()  # as in memory: sigma is for rows of weight 1
    first = 0
    for rows in features.rows(given.rows):
        cut = slice(first, first + len(rows))
        block = RowBlock(
            np.zeros(len(rows), np.uint8), given.labels[cut, np.newaxis], _NONE if weights is None else weights[cut],
            _NONE if offsets is None else offsets[cut], rows.bounds, rows.indices, rows.values,
            features.features if rows.indices is None else None,
        )  # fmt: skip
        clipped.append(rows.clipped)
        first = cut.stop
        yield block.to_batch().drop_columns(["faults"]).filter(pa.array(counted[cut]))


def bytes_in_memory(given: Given) -> int:
    """What the rows take as the model reads them, about."""
    if is_arrow(given.rows):
        return int(given.rows.nbytes)
    if is_sparse(given.rows):
        return 8 * int(given.rows.nnz)
    return 4 * int(np.prod(given.rows.shape))
