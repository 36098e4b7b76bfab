"""Labels that lie in a file of their own, one number for each row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.errors import DataError
from streampgs.packing.byte_streams import first_bytes
from streampgs.packing.options import PackOptions
from streampgs.packing.pieces import Shape
from streampgs.packing.text import MatrixReader

_NPY_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class _Stored:
    """Numbers in a file, read where they are wanted: of a mapped one that is shortened meanwhile, the process would die."""

    path: Path
    dtype: np.dtype[Any]
    count: int
    first_byte: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        wanted = rows.stop - rows.start
        found = np.fromfile(self.path, self.dtype, wanted, offset=self.first_byte + rows.start * self.dtype.itemsize)
        if len(found) != wanted:
            raise DataError(
                f"'{self.path}' ends before label {rows.stop:,}", "it was shortened while in use; restore it"
            )
        return found


class Labels:
    """Eight bytes a row of memory, unless it is a .npy file, of which parts are read."""

    def __init__(self, path: Path, memory: int) -> None:
        if not path.is_file():
            raise DataError(f"'{path}' does not exist", "name a file with one number a line, or a .npy file")
        self._path = path
        if first_bytes(path, len(_NPY_MAGIC)) == _NPY_MAGIC:
            self._numbers: _Stored | NDArray[Any] = self._stored()
        else:
            self._numbers = self._parsed(memory)

    def _stored(self) -> _Stored:
        try:
            numbers: Any = np.load(self._path, mmap_mode="r")
        except (ValueError, EOFError) as error:
            raise DataError(f"'{self._path}' cannot be read: {error}", "save a plain array of numbers") from error
        if numbers.ndim != 1 or numbers.dtype.kind not in "biuf":
            raise DataError(
                f"'{self._path}' holds an array of type {numbers.dtype} and shape {numbers.shape}",
                "labels are one axis of numbers",
            )
        return _Stored(self._path, numbers.dtype, len(numbers), numbers.offset)

    def _parsed(self, memory: int) -> NDArray[Any]:
        parts: list[NDArray[Any]] = []
        reader = MatrixReader(self._path, PackOptions(memory=memory))
        shape = Shape(pa.schema({"features": pa.list_(pa.float64(), 1)}))
        size = 0
        for piece in reader.pieces(shape, (), 0, lambda _: None):
            parts.append(piece.batch.column(0).values.to_numpy())
            size += parts[-1].nbytes
            if size > memory // 4:
                raise DataError(
                    f"'{self._path}' holds more than {size // 8:,} labels, too many for the memory",
                    "raise --memory, or save them as a .npy file, which is not read at once",
                )
        return np.concatenate(parts) if parts else np.empty(0)

    def __len__(self) -> int:
        return len(self._numbers)

    def column(self, first: int, rows: int) -> pa.Array:
        if first + rows > len(self):
            raise DataError(
                f"'{self._path}' holds {len(self):,} labels, and there are more rows",
                "one label for each row is wanted",
            )
        part = np.asarray(self._numbers[first : first + rows])
        return pa.array(part.astype(part.dtype.newbyteorder("=")))

    def check_all_used(self, rows: int) -> None:
        if rows != len(self):
            raise DataError(
                f"'{self._path}' holds {len(self):,} labels, and there are {rows:,} rows",
                "one label for each row is wanted",
            )
