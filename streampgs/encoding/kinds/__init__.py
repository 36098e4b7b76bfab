"""The kinds of columns. A new kind is a file in this folder and a place in `_ALL`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from streampgs.encoding.kinds.category import Category, Cross
from streampgs.encoding.kinds.curve import Curve
from streampgs.encoding.kinds.kind import Column, Kind
from streampgs.encoding.kinds.list import List
from streampgs.encoding.kinds.number import Number
from streampgs.encoding.kinds.surface import Surface
from streampgs.encoding.kinds.text import Text, TokenList
from streampgs.encoding.kinds.vector import Map, Vector
from streampgs.options.commands import EncodingOptions

# Curves and crosses are made of columns that the kinds before them have planned.
_ALL: tuple[Kind, ...] = (
    Number(),
    List(),
    Text(),
    Category(),
    TokenList(),
    Map(),
    Vector(),
    Curve(),
    Surface(),
    Cross(),
)
KINDS = {kind.name: kind for kind in _ALL}

Family = TypeVar("Family", bound=Kind)


def kind_of(column: Column) -> Kind:
    return KINDS[column.kind]


def of_family(columns: Iterable[Column], family: type[Family]) -> list[tuple[Column, Family]]:
    """The columns whose kind belongs to the family, each with its kind."""
    return [(column, kind) for column in columns if isinstance(kind := KINDS[column.kind], family)]


def work_by_column(columns: Iterable[Column], options: EncodingOptions) -> dict[str, float]:
    """By column of the table: the memory for a byte of it while it is encoded."""
    found: dict[str, float] = {}
    for column in columns:
        for name in column.sources:
            found[name] = found.get(name, 0.0) + kind_of(column).work(options)
    return found
