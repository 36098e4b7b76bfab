"""The kernels of a row with support rows: the kernel exactly, for the solver `kernel`.

The first different rows that are read are supports, until there are as many as are allowed. They are saved with the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.data.feature_maps.feature_map import FeatureMap, MappedRows, MapRecord
from streampgs.kernels import support_loop as loops
from streampgs.kernels.rows import Rows

Arrays = Mapping[str, NDArray[Any]]


class Supports(FeatureMap):
    how = "support rows, exact"

    def __init__(self, record: MapRecord, arrays: Arrays | None = None) -> None:
        super().__init__(record)
        self._rows: list[tuple[NDArray[np.uint32], NDArray[np.float32]]] = []
        self._known: set[bytes] = set()
        if arrays is not None:
            _check(arrays, record)
            for first, stop in zip(arrays["bounds"][:-1].tolist(), arrays["bounds"][1:].tolist(), strict=True):
                self._add(arrays["indices"][first:stop], arrays["values"][first:stop])
        self._arrange()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The supports, as a checkpoint holds them."""
        indices, values = ([row[part] for row in self._rows] for part in (0, 1))
        bounds = np.cumsum([0, *map(len, values)])
        return {"bounds": bounds, "indices": _joined(indices, np.uint32), "values": _joined(values, np.float32)}

    @property
    def table_bytes(self) -> int:
        return 4 * int(self._factors.nbytes + self._owners.nbytes)

    def name_of(self, place: int, name_of_input: Callable[[int], str]) -> str:
        return f"support {place}"

    def learn(self, window: Rows) -> None:
        """The rows of a window become supports. Those that are supports already do not, so that it makes no difference how
        often a window is opened."""
        before = len(self._rows)
        for r in range(len(window)):
            if len(self._rows) == self.record.most:
                break
            start, stop = int(window.starts[r]), int(window.stops[r])
            indices = window.indices[start:stop] if self.is_sparse else np.arange(stop - start, dtype=np.uint32)
            self._add(indices, window.values[start:stop])
        if len(self._rows) > before:
            self._arrange()

    def _add(self, indices: NDArray[np.uint32], values: NDArray[np.float32]) -> None:
        key = indices.tobytes() + values.tobytes()
        if key not in self._known:
            self._known.add(key)
            self._rows.append((indices.copy(), values.copy()))

    def _arrange(self) -> None:
        """Put the entries in the order of their features, for the loop."""
        self.width = len(self._rows)
        arrays = self.arrays()
        lengths = np.diff(arrays["bounds"])
        owners = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((owners, arrays["indices"]))
        self._features, firsts = np.unique(arrays["indices"][order].astype(np.int64), return_index=True)
        self._bounds = np.append(firsts, len(order)).astype(np.int64)
        self._owners, self._factors = owners[order].astype(np.int64), arrays["values"][order]
        squares = [float(np.square(values.astype(np.float64)).sum()) for _, values in self._rows]
        self._squares = np.array(squares, np.float64)

    def map_rows(self, window: Rows, out: MappedRows) -> None:
        record = self.record
        degree = record.degree if record.kernel == "polynomial" else 0
        loops.kernel_rows(
            *self.entries(window), record.inputs, self._features, self._bounds, self._owners, self._factors, self._squares,
            record.gamma, degree, out,
        )  # fmt: skip


def _joined(parts: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _check(arrays: Arrays, record: MapRecord) -> None:
    """ValueError unless the loop can rely on these supports."""
    bounds, indices, values = (arrays[name] for name in ("bounds", "indices", "values"))
    types = [bounds.dtype == np.int64, indices.dtype == np.uint32, values.dtype == np.float32]
    require(all(types) and all(one.ndim == 1 for one in (bounds, indices, values)), "supports of other types")
    count = len(bounds) - 1
    require(1 <= count <= record.most, f"{count} supports")
    require(bounds[0] == 0 and bounds[-1] == len(values) == len(indices), "supports that do not fit")
    require(bool((np.diff(bounds) >= 0).all()), "supports of negative length")
    require(not indices.size or int(indices.max()) < record.inputs, "supports of unknown features")
    require(bool(np.isfinite(values).all()), "supports that are not finite")
