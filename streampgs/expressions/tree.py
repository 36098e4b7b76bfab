"""The tree of an expression, and errors that point into its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from streampgs.base.errors import OptionError

_LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Column:
    name: str
    at: int
    """Its place in the text, counted from 0."""


@dataclass(frozen=True)
class Constant:
    value: bool | int | float | str
    at: int


@dataclass(frozen=True)
class Apply:
    """An operator or a function."""

    name: str
    args: tuple[Node, ...]
    at: int

    @cached_property
    def depth(self) -> int:
        return 1 + max(arg.depth if isinstance(arg, Apply) else 0 for arg in self.args)


Node = Column | Constant | Apply


@dataclass(frozen=True)
class Source:
    """An option and its text, for errors."""

    flag: str
    text: str

    def error(self, fault: str, at: int, remedy: str) -> OptionError:
        return OptionError(f"{self}: {fault}, at character {at + 1}", remedy)

    def __str__(self) -> str:
        return f'`{self.flag} "{shown(self.text)}"`'


def shown(text: str) -> str:
    """For errors."""
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def columns_of(node: Node) -> Iterator[str]:
    """The names of the columns in the tree, in the order of the text."""
    if isinstance(node, Column):
        yield node.name
    elif isinstance(node, Apply):
        for arg in node.args:
            yield from columns_of(arg)
