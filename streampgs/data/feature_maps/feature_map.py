"""What a map of rows is, and what a feature map is.

A feature map gives each row of features a dense row of kernel features, a pure function of that row and of the record. So
nothing about it but the record is saved, and rows are mapped again whenever they are read: files, caches and streams hold the
short rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from streampgs.base.checks import encode, require
from streampgs.base.stage import Bundle
from streampgs.kernels.rows import AnyRows, Rows
from streampgs.options.commands import MOST_DEGREE, MOST_KERNEL_FEATURES

_MOST_INPUTS = 1 << 31
_ROWS_AT_ONCE = 1 << 10

MappedRows = NDArray[np.float32]
_NO_ROWS: MappedRows = np.empty((0, 0), np.float32)


@dataclass(frozen=True)
class MapRecord:
    """All that decides the kernel features of a row."""

    kernel: Literal["rbf", "polynomial"]
    gamma: Annotated[float, Meta(gt=0.0)]
    degree: Annotated[int, Meta(ge=1, le=MOST_DEGREE)]
    most: Annotated[int, Meta(ge=1, le=MOST_KERNEL_FEATURES)]
    """At most so many kernel features."""
    seed: int
    layout: Annotated[str, Meta(pattern="^(sparse|dense)$")]
    """The layout of the rows that are mapped."""
    first_inputs: Annotated[int, Meta(ge=0, le=_MOST_INPUTS)]
    """Features of such rows when the run started."""
    inputs: Annotated[int, Meta(ge=0, le=_MOST_INPUTS)]
    """By now. Others add nothing."""

    exact: bool = False
    """Whether they are the kernels with support rows."""

    def __post_init__(self) -> None:
        require(self.first_inputs <= self.inputs, f"{self.inputs} features after {self.first_inputs}")


class RowMap(ABC):
    """From the rows that are read to the rows that a solver takes."""

    width: int
    """How many features the mapped rows have."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """How many features the rows have that are mapped."""

    @property
    def table_bytes(self) -> int:
        """The memory of the map itself."""
        return 0

    def grow(self, inputs: int) -> None:
        """The rows have more features than before."""

    @abstractmethod
    def taken(self, window: AnyRows) -> AnyRows:
        """The mapped rows of a window that is trained on next, valid until the next call. The map may learn from them."""

    @abstractmethod
    def mapped(self, window: AnyRows) -> AnyRows: ...

    @abstractmethod
    def state(self) -> Bundle: ...


class FeatureMap(RowMap):
    """The kinds of maps set `width`, and override `map_rows` and `name_of`."""

    def __init__(self, record: MapRecord) -> None:
        self.record = record
        self._room = _NO_ROWS

    @property
    def inputs(self) -> int:
        return self.record.inputs

    def grow(self, inputs: int) -> None:
        if inputs > self.record.inputs:
            self.record = replace(self.record, inputs=inputs)
            self._extend()

    def state(self) -> Bundle:
        return Bundle({"record": encode(self.record)}, self.arrays())

    def taken(self, window: AnyRows) -> AnyRows:
        self.learn(window)
        return self.mapped(window, reuse=True)

    @property
    def text(self) -> str:
        """In words."""
        record = self.record
        degree = f", degree {record.degree}" if record.kernel == "polynomial" else ""
        return f"{record.kernel}{degree}, gamma {record.gamma:.4g}, {self.width:,} features ({self.how})"

    how: ClassVar[str]
    """How the kernel is approximated, in words."""

    def name_of(self, place: int, name_of_input: Callable[[int], str]) -> str:
        return f"kernel feature {place}"

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its part of a checkpoint, besides the record."""
        return {}

    def learn(self, window: Rows) -> None:
        """From the rows of a window, before they are trained on."""

    @abstractmethod
    def map_rows(self, window: Rows, out: MappedRows) -> None:
        """The kernel features of all rows of a window."""

    def _extend(self) -> None:
        """Extend the tables of the map to the features of the record, if it has any."""

    # The rest is the same for all.

    @property
    def is_sparse(self) -> bool:
        return self.record.layout == "sparse"

    def entries(self, window: Rows) -> tuple[Any, ...]:
        """The rows as the loops take them."""
        return window.starts, window.stops, window.indices, window.values, self.is_sparse

    def mapped(self, window: AnyRows, reuse: bool = False) -> AnyRows:
        """The rows with kernel features. `reuse`: it is valid until the next call."""
        width, rows = self.width, len(window)
        room = self._room if reuse else _NO_ROWS
        if room.shape[0] < rows or room.shape[1] != width:
            self._room = room = _NO_ROWS  # free the old memory before the new is allocated
            room = np.empty((rows, width), np.float32)
            self._room = room if reuse else self._room
        self.map_rows(window, room[:rows])
        starts = np.arange(rows, dtype=np.int64) * width
        return replace(
            window, starts=starts, stops=starts + width, indices=np.empty(0, np.uint32),
            values=room[:rows].reshape(-1), features=width,
        )  # fmt: skip

    def pieces(self, window: Rows) -> Iterator[Rows]:
        """The same for a few rows at a time, so that kernel features take little memory. Each piece is valid until the
        next."""
        for first in range(0, len(window), _ROWS_AT_ONCE):
            yield self.mapped(window.at(slice(first, first + _ROWS_AT_ONCE)), reuse=True)
