"""Training from files: of shards that the user names, or of rows that are too many for the memory budget."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.api import train
from streampgs.estimators.features import is_arrow, is_sparse
from streampgs.estimators.training import Given
from streampgs.model import Model
from streampgs.packing.shards import write_shards
from streampgs.reading.in_memory import batches_of


def trained_run(data: Any, run: str | Path | None, options: dict[str, Any]) -> Model:
    """The model of a run on shards. Without a folder for the run, it is removed when training has ended."""
    if run is not None:
        train(data, run=run, **options)
        return Model.load(run)
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        train(data, run=Path(folder) / "run", **options)
        return Model.load(Path(folder) / "run")


def trained_from_files(given: Given, options: dict[str, Any]) -> Model:
    """Train on rows that are written to temporary files first."""
    names = given.rows.column_names if is_arrow(given.rows) else []
    label, weight = _free("label", names), _free("weight", names)
    given = replace(given, weights=given.weights_with_factors(), factors=None)
    options = {**options, "label": label} | ({} if given.weights is None else {"weight": weight})
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        write_shards(_batches(given, label, weight), Path(folder) / "rows")
        return trained_run(str(Path(folder) / "rows"), None, {**options, "progress": False})


def _batches(given: Given, label: str, weight: str) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in batches_of(given.rows):
        rows = slice(first, first + batch.num_rows)
        kept = None
        batch = batch.append_column(label, pa.array(given.labels[rows]))
        if given.weights is not None:
            batch = batch.append_column(weight, pa.array(given.weights[rows]))
            kept = pa.array(given.weights[rows] > 0.0)
        first = rows.stop
        yield batch if kept is None else batch.filter(kept)


def _free(name: str, taken: list[str]) -> str:
    while name in taken:
        name += "_"
    return name


def bytes_in_memory(given: Given) -> int:
    """What the rows take as the model reads them, about."""
    if is_arrow(given.rows):
        return int(given.rows.nbytes)
    if is_sparse(given.rows):
        return 8 * int(given.rows.nnz)
    return 4 * int(np.prod(given.rows.shape))
