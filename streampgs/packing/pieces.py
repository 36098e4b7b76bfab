"""What every reader gives: rows with the place that they came from, so that a pack can be gone on with there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from streampgs.packing.byte_streams import Advance


@dataclass
class Piece:
    batch: pa.RecordBatch
    mark: tuple[int, ...]
    """Where its reader can begin anew; empty: at the file's beginning."""
    offset: int
    """Its first row, counted from the mark."""
    faults: dict[str, int] = field(default_factory=dict)
    """Rows that were left out beside it, by reason."""


@dataclass
class Shape:
    """The schema of a pack as known so far: readers convert to it what they can, and else show what there is."""

    schema: pa.Schema

    def type_of(self, column: str) -> pa.DataType | None:
        place = self.schema.get_field_index(column)
        return self.schema.field(place).type if place >= 0 else None


class Reader(Protocol):
    path: Path
    as_text: bool
    """Whether a column that fits no other type is a string."""

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        """The rows from a mark on. Of pieces that end before row `skip` of it the content need not be right."""
        ...
