"""Labels in a file of their own, one number for each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.base.files import native_path, reading
from streampgs.packing.options import PackOptions
from streampgs.packing.readers import matrix
from streampgs.packing.readers.numpy_files import damage_named
from streampgs.packing.source import Shape, Source, first_bytes


class Labels:
    """Eight bytes of memory a row; of a .npy file, the labels of one batch only."""

    def __init__(self, path: Path, memory: int) -> None:
        if not path.is_file():
            raise DataError(f"'{path}' does not exist", "name a file with one number a line, or a .npy file")
        self._path = path
        self._numbers: NDArray[Any] | None = None
        if first_bytes(path, len(MAGIC_PREFIX)) == MAGIC_PREFIX:
            self._open_npy()
        else:
            self._numbers = self._parsed(memory)
            self._count = len(self._numbers)

    def _open_npy(self) -> None:
        try:
            with damage_named(self._path), native_path(self._path) as path:
                mapped: Any = np.load(path, mmap_mode="r")
        except ValueError as error:
            raise DataError(f"'{self._path}' cannot be read: {error}", "save a plain array of numbers") from error
        if mapped.ndim != 1 or mapped.dtype.kind not in "biuf":
            raise DataError(
                f"'{self._path}' holds an array of type {mapped.dtype} and shape {mapped.shape}",
                "labels are one axis of numbers",
            )
        self._count, self._dtype, self._offset = len(mapped), mapped.dtype, mapped.offset

    def _parsed(self, memory: int) -> NDArray[Any]:
        parts: list[NDArray[Any]] = [np.empty(0)]
        rows = 0
        shape = Shape(pa.schema({"features": pa.list_(pa.float64(), 1)}))
        for batch in matrix.read(Source(self._path, PackOptions(memory=memory)), shape):
            parts.append(batch.column(0).values.to_numpy())
            rows += batch.num_rows
            if rows > memory // 32:
                raise DataError(
                    f"'{self._path}' holds more than {rows:,} labels, too many for the memory",
                    "raise --memory, or save them as a .npy file, which is read in parts",
                )
        return np.concatenate(parts)

    def column(self, first: int, rows: int) -> pa.Array:
        if first + rows > self._count:
            raise DataError(f"'{self._path}' holds {self._count:,} labels, and there are more rows", "give one a row")
        if self._numbers is not None:
            return pa.array(self._numbers[first : first + rows])
        # Not by the mapping: if the file were shortened meanwhile, the process would be killed.
        offset = self._offset + first * self._dtype.itemsize
        with reading(self._path) as file:
            part = np.fromfile(file, self._dtype, rows, offset=offset)
        if len(part) != rows:
            raise DataError(f"'{self._path}' ends before label {first + rows:,}", "it was shortened; restore it")
        return pa.array(part.astype(part.dtype.newbyteorder("=")))

    def check_all_used(self, rows: int) -> None:
        if rows != self._count:
            raise DataError(
                f"'{self._path}' holds {self._count:,} labels, and there are {rows:,} rows", "give one a row"
            )
