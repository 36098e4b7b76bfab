"""Labels in a file of their own, one number for each row. They are held in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.base.faults import naming_faults
from streampgs.base.files import native_path, reading


def labels_in(path: Path, memory: int) -> NDArray[Any]:
    try:
        with naming_faults(path), reading(path) as file:
            is_npy = file.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX
            if path.stat().st_size > memory // 4:
                raise DataError(f"'{path}' does not fit into a quarter of --memory", "raise --memory")
            file.seek(0)
            labels = np.load(file) if is_npy else _lines(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"'{path}' cannot be read: {error}", "name a file with one number a line, or a .npy file"
        ) from error
    if labels.ndim != 1 or labels.dtype.kind not in "biuf":
        raise DataError(f"'{path}' is of type {labels.dtype} and shape {labels.shape}", "save one axis of numbers")
    return labels


def _lines(path: Path) -> NDArray[Any]:
    with native_path(path) as name:
        table = pa.csv.read_csv(
            name,
            read_options=pa.csv.ReadOptions(column_names=["label"]),
            convert_options=pa.csv.ConvertOptions(column_types={"label": pa.float64()}, null_values=[]),
        )
    numbers: NDArray[Any] = table.column(0).to_numpy()
    return numbers
