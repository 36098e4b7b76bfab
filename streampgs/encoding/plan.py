"""Which columns become features, and as what: told from a schema and the user's choices, before any row is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pyarrow as pa

from streampgs.encoding import types
from streampgs.errors import DataError, OptionError
from streampgs.options import EncodingOptions

NUMBER, CATEGORY, TEXT, TOKENS, WEIGHED_TOKENS = "number", "category", "text", "tokens", "weighed tokens"
LIST, VECTOR, CROSS = "list", "vector", "cross"

_KINDS = {
    types.NUMBER: NUMBER,
    types.TIME: NUMBER,
    types.STRING: CATEGORY,
    types.TOKENS: TOKENS,
    types.WEIGHED_TOKENS: WEIGHED_TOKENS,
    types.LIST: LIST,
    types.VECTOR: VECTOR,
}
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_PAIR = ("indices", "values")


@dataclass(frozen=True)
class PlannedColumn:
    """One source of features."""

    name: str
    """Of fields of structs with the struct's name and a dot before it."""
    kind: str
    holds: str
    """What sort of things: one of the words of `types`. Another shard's column must hold the same."""
    parts: tuple[str, ...] = ()
    """Of a cross: the two columns; of a vector in two columns: their names."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The table's columns that it is made of."""
        return self.parts or (self.name,)


@dataclass(frozen=True)
class Plan:
    columns: tuple[PlannedColumn, ...]
    left_out: dict[str, str]
    """Columns that are no features, each with the reason."""

    def of_kind(self, *kinds: str) -> list[PlannedColumn]:
        return [column for column in self.columns if column.kind in kinds]


def plan_columns(schema: pa.Schema, options: EncodingOptions, taken: dict[str, str], shard: str) -> Plan:
    """`taken`: columns that have another role, by name."""
    leaves = dict(types.leaves_of(schema))
    _refuse_strangers(options, leaves, shard)
    columns, left_out = _told_apart(leaves, options, taken)
    known = {column.name: column for column in columns}
    for first, second in options.cross:
        for name in (first, second):
            if name not in known or known[name].kind != CATEGORY:
                raise OptionError(
                    f"--cross {first},{second}: column '{name}' is no category",
                    "cross columns of strings, or of numbers that are named with --category",
                )
        columns.append(PlannedColumn(f"{first}×{second}", CROSS, types.STRING, (first, second)))
    refuse_doubles(schema, (*known, *taken), shard)
    if not columns:
        listed = ", ".join(f"{name} ({reason})" for name, reason in left_out.items())
        raise DataError(
            f"shard '{shard}': no column that could be a feature: {listed or 'it has none at all'}",
            "name columns with --features, or write a table with numbers, strings or lists",
        )
    return Plan(tuple(columns), left_out)


def plan_more(schema: pa.Schema, options: EncodingOptions, taken: dict[str, str], known: Container[str]) -> Plan:
    """Of the columns that are not known yet, in a table that has grown."""
    leaves = {name: kind for name, kind in types.leaves_of(schema) if name not in known}
    columns, left_out = _told_apart(leaves, options, taken)
    return Plan(tuple(columns), left_out)


def _told_apart(
    leaves: dict[str, pa.DataType], options: EncodingOptions, taken: dict[str, str]
) -> tuple[list[PlannedColumn], dict[str, str]]:
    """What becomes features, and what is left out with the reason."""
    columns: list[PlannedColumn] = []
    left_out: dict[str, str] = {}
    for name, kind in leaves.items():
        if name in taken:
            left_out[name] = taken[name]
        elif _PANDAS_INDEX.fullmatch(name):
            left_out[name] = "pandas' index"
        elif matches(name, options.ignore) or (options.features and not _is_wanted(name, options)):
            left_out[name] = "not asked for" if options.features else "ignored"
        else:
            planned = _planned(name, kind, options)
            if isinstance(planned, str):
                left_out[name] = planned
            else:
                columns.append(planned)
    return _with_pair(columns), left_out


def refuse_doubles(schema: pa.Schema, names: Iterable[str], shard: str) -> None:
    """Of two columns of one name either could be meant."""
    counts = Counter(name for name, _ in types.leaves_of(schema))
    for name in names:
        if counts[name] > 1:
            raise DataError(f"shard '{shard}': {counts[name]} columns are called '{name}'", "rename all but one")


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """A pattern that names a struct means all its fields."""
    return any(fnmatchcase(name, pattern) or name == pattern or name.startswith(pattern + ".") for pattern in patterns)


def _is_wanted(name: str, options: EncodingOptions) -> bool:
    return matches(name, (*options.features, *options.text, *options.category))


def _refuse_strangers(options: EncodingOptions, leaves: dict[str, pa.DataType], shard: str) -> None:
    for option in ("features", "ignore", "text", "category", "cyclic"):
        for pattern in getattr(options, option):
            if not any(matches(name, (pattern,)) for name in leaves):
                raise DataError(
                    f"shard '{shard}': --{option} {pattern} matches none of its columns ({', '.join(leaves)})",
                    "check the name; a pattern may hold * and ?",
                )


def _planned(name: str, kind: pa.DataType, options: EncodingOptions) -> PlannedColumn | str:
    """The column's part, or the reason why it has none."""
    holds = types.class_of(kind)
    if matches(name, options.text):
        if holds in (types.STRING, types.BINARY):
            return PlannedColumn(name, TEXT, str(holds))
        raise OptionError(f"--text {name}: the column is of type {kind}", "text is in columns of strings")
    if matches(name, options.category):
        if holds in (types.NUMBER, types.STRING):
            return PlannedColumn(name, CATEGORY, str(holds))
        raise OptionError(f"--category {name}: the column is of type {kind}", "categories are strings or numbers")
    if matches(name, options.cyclic) and holds != types.TIME:
        raise OptionError(f"--cyclic {name}: the column is of type {kind}", "it is for dates and timestamps")
    if holds is None or holds == types.BINARY:
        return f"of type {kind}" + (": --text takes it as text" if holds == types.BINARY else "")
    if holds == types.NULL:
        return "has nothing but nulls"
    return PlannedColumn(name, _KINDS[holds], holds)


def _with_pair(columns: list[PlannedColumn]) -> list[PlannedColumn]:
    """Lists `indices` and `values` beside each other are one vector."""
    lists = [column for column in columns if column.name in _PAIR and column.kind == LIST]
    if len(lists) < 2:
        return columns
    return [c for c in columns if c not in lists] + [PlannedColumn("values", VECTOR, types.LIST, _PAIR)]
