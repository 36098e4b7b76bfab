"""Which columns become features, and of which kind: decided from a schema and the user's choices, before rows are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import KINDS, of_family, work_by_column
from streampgs.encoding.kinds.kind import Column, matches
from streampgs.encoding.kinds.vector import Vector
from streampgs.options.commands import EncodingOptions

ONE_VALUE = "the same value in all partitions"
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class Plan:
    columns: tuple[Column, ...]
    left_out: dict[str, str]
    """Columns that are not features, each with the reason."""
    work: dict[str, float] = field(default_factory=dict)
    """By column of the table: the memory for a byte of it while it is encoded."""

    def without(self, left_out: dict[str, str]) -> Plan:
        columns = tuple(column for column in self.columns if column.name not in left_out)
        return replace(self, columns=columns, left_out={**self.left_out, **left_out})


def plan_columns(schema: pa.Schema, options: EncodingOptions, taken: dict[str, str], shard: str) -> Plan:
    """`taken`: columns that have another role, by name."""
    leaves = dict(types.leaves_of(schema))
    _refuse_unmatched(options, leaves, shard)
    plan = _planned(leaves, options, taken)
    refuse_doubles(schema, (*(name for column in plan.columns for name in column.sources), *taken), shard)
    refuse_empty(plan, f"shard '{shard}'")
    return plan


def refuse_empty(plan: Plan, where: str) -> None:
    if not plan.columns:
        listed = ", ".join(f"{name} ({reason})" for name, reason in plan.left_out.items())
        raise DataError(
            f"{where}: no column can be a feature: {listed or 'there are no columns'}",
            "name columns with --features, or write a table with numbers, strings or lists",
        )


def plan_growth(schema: pa.Schema, encoding: Encoding, taken: dict[str, str]) -> Plan:
    """Plan the columns of new shards that the encoding does not know."""
    known = {name for column in encoding.all_columns for name in column.sources}
    known.update(name for name, why in encoding.left_out.items() if why == ONE_VALUE)
    leaves = {name: kind for name, kind in types.leaves_of(schema) if name not in known}
    plan = _planned(leaves, replace(encoding.options, cross=()), taken)
    vectors = [*vectors_of(encoding.all_columns), *vectors_of(plan.columns)]
    return plan.without(
        {
            column.name: f"no feature can follow those of vector '{vectors[0]}'"
            for column in plan.columns
            if encoding.unbounded or column.name in vectors[1:]
        }
    )


def _planned(leaves: dict[str, pa.DataType], options: EncodingOptions, taken: dict[str, str]) -> Plan:
    columns: list[Column] = []
    left_out: dict[str, str] = {}
    for name, kind in leaves.items():
        if name in taken:
            left_out[name] = taken[name]
        elif is_pandas_index(name):
            left_out[name] = "index of pandas"
        elif matches(name, options.ignore) or (options.features and not is_wanted(name, options)):
            left_out[name] = "not in --features" if options.features else "ignored"
        else:
            column = _column(name, kind, options)
            if isinstance(column, str):
                left_out[name] = column
            else:
                columns.append(column)
    for one in KINDS.values():
        columns = one.combined(columns, leaves, options)
    return Plan(tuple(columns), left_out, work_by_column(columns, options))


def refuse_doubles(schema: pa.Schema, names: Iterable[str], shard: str) -> None:
    """Two columns of the same name are ambiguous."""
    counts = Counter(name for name, _ in types.leaves_of(schema))
    for name in names:
        if counts[name] > 1:
            raise DataError(f"shard '{shard}': {counts[name]} columns are called '{name}'", "rename all but one")


def is_pandas_index(name: str) -> bool:
    return _PANDAS_INDEX.fullmatch(name) is not None


def is_wanted(name: str, options: EncodingOptions) -> bool:
    """Whether the options name it as a feature."""
    chosen = (getattr(options, kind.option) for kind in KINDS.values() if kind.option)
    return any(matches(name, patterns) for patterns in (options.features, *chosen))


def _refuse_unmatched(options: EncodingOptions, leaves: dict[str, pa.DataType], shard: str) -> None:
    of_kinds = (name for kind in KINDS.values() for name in (kind.option, *kind.modifiers) if name)
    for option in ("features", "ignore", *of_kinds):
        for pattern in getattr(options, option):
            if not any(matches(name, (pattern,)) for name in leaves):
                raise DataError(
                    f"shard '{shard}': `--{option} {pattern}` matches none of its columns ({', '.join(leaves)})",
                    "check the name; a pattern may hold * and ?",
                )


def _column(name: str, kind: pa.DataType, options: EncodingOptions) -> Column | str:
    """The column, or the reason why it is not a feature."""
    holds = types.class_of(kind)
    for one in KINDS.values():
        if one.option and matches(name, getattr(options, one.option)):
            if holds in one.allowed:
                return Column(name, one.name, str(holds))
            raise OptionError(f"`--{one.option} {name}`: the column is of type {kind}", one.remedy)
    for one in KINDS.values():
        for option, (needed, remedy) in one.modifiers.items():
            if matches(name, getattr(options, option)) and holds not in needed:
                raise OptionError(f"`--{option} {name}`: the column is of type {kind}", remedy)
    if holds == types.NULL:
        return "has only nulls"
    for one in KINDS.values():
        if holds in one.takes:
            return Column(name, one.name, str(holds))
    return f"of type {kind}" + (": --text uses it as text" if holds == types.BINARY else "")


def vectors_of(columns: Iterable[Column]) -> list[str]:
    return [column.name for column, _ in of_family(columns, Vector)]
