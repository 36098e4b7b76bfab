"""Which labels are expressions, and how many rows of each group fulfil --where."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from streampgs.base.errors import DataError, OptionError
from streampgs.encoding import types
from streampgs.encoding.plan import Plan
from streampgs.expressions.bounds import Bounds, Outcomes, outcomes
from streampgs.expressions.expression import Expression, condition, expression_of
from streampgs.expressions.parser import Column
from streampgs.formats.format import OpenShard
from streampgs.options.commands import ModelOptions
from streampgs.reading.decode import opened, raw_slices
from streampgs.stores.access import ASKERS, RemoteObject
from streampgs.table.catalog import Shard, Surveyed
from streampgs.table.layout import Columns
from streampgs.table.partitions import partition_columns

_READERS = 2
_ROWS_AT_ONCE = 1 << 16
NOT_A_FEATURE = "the label is made of it"


def condition_of(options: ModelOptions) -> Expression | None:
    return None if options.where is None else condition(options.where)


def computed_labels(options: ModelOptions) -> tuple[Expression, ...]:
    return tuple(expression_of("--label", text) for text in options.label_expressions)


def with_label_expressions(options: ModelOptions, columns: Collection[str]) -> ModelOptions:
    """A label that is not the name of a column is an expression. This is decided when a run starts, and recorded."""
    found = []
    for label in options.labels:
        if label in columns:
            continue
        try:
            if not isinstance(expression_of("--label", label).tree, Column):
                found.append(label)
        except OptionError as error:
            raise DataError(f"no label column '{label}'; as an expression, {error.found}", error.remedy) from error
    return replace(options, label_expressions=tuple(found)) if found else options


def notes_of_expressions(options: ModelOptions) -> list[str]:
    notes = []
    for label in computed_labels(options):
        names = ", ".join(f"'{name}'" for name in label.columns)
        notes.append(f"the label is {label}: not used as features: {names}")
    return notes


def with_selected_rows(surveyed: Sequence[Surveyed], where: Expression | None) -> list[Surveyed]:
    """The shards with the number of rows that fulfil the condition in each group. Only the columns of the condition are
    read, of groups whose statistics do not decide it."""
    if where is None:
        return list(surveyed)
    columns = Columns(None, encoding=Plan((), {}), where=where)
    remote = any(isinstance(one.shard.path, RemoteObject) for one in surveyed)
    with ThreadPoolExecutor(ASKERS if remote else _READERS, "streampgs-where") as pool:
        return list(pool.map(lambda one: _counted(one, columns, where), surveyed))


def _counted(one: Surveyed, columns: Columns, where: Expression) -> Surveyed:
    all_rows, bare, rows = one.shard.group_rows, one.laid_out(columns), []
    leaves = dict(types.leaves_of(one.whole_schema))
    with opened(bare) as file:
        for group, every in enumerate(all_rows):
            possible = outcomes(where, leaves, _bounds(file, group, bare, where))
            if Outcomes.TRUE not in possible:
                rows.append(0)
            elif possible is Outcomes.TRUE:
                rows.append(every)
            else:
                rows.append(sum(batch.num_rows for batch in raw_slices(bare, group, _ROWS_AT_ONCE, columns)))
    entries = tuple(
        math.ceil(count * chosen / max(1, every))
        for count, chosen, every in zip(one.shard.group_entries, rows, all_rows, strict=True)
    )
    return replace(one, shard=replace(one.shard, group_rows=tuple(rows), group_entries=entries, file_rows=all_rows))


def _bounds(file: OpenShard, group: int, shard: Shard, where: Expression) -> dict[str, Bounds]:
    """From the statistics of the file, and of columns in the names of folders."""
    found = file.bounds(group, where.columns)
    for constant in shard.layout.partitions:
        [values] = partition_columns([constant], 2).values()
        found[constant.name] = Bounds(None, True) if values.null_count else Bounds(values, False)
    return found
