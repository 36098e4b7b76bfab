"""A table that grows: columns that come later are learnt beside what is known, and get features behind all there are.

What strings known columns hold is not learnt again: new ones are hashed as ever. Features of their own would be taken
from the hashed ones that rows of earlier shards have for the same strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.learning import MOST_FEATURES, Columns, arrays_of, known_numbers, learn
from streampgs.encoding.plan import LIST, NUMBER, VECTOR, Plan, PlannedColumn, plan_more
from streampgs.errors import OptionError
from streampgs.options import MOST_HASH_BITS


def plan_growth(schema: pa.Schema, encoding: Encoding, taken: dict[str, str]) -> Plan:
    """What becomes of the columns of new shards that the encoding does not know."""
    known = {name for column in encoding.all_columns for name in column.sources}
    plan = plan_more(schema, encoding.options, taken, known)
    endless = [column.name for column in encoding.all_columns if column.kind == VECTOR]
    endless += [column.name for column in plan.of_kind(VECTOR)]
    out = {
        column.name: f"no feature can come behind those of vector '{endless[0]}'"
        for column in plan.columns
        if encoding.unbounded or column.name in endless[1:]
    }
    return Plan(tuple(column for column in plan.columns if column.name not in out), {**plan.left_out, **out})


def grown(encoding: Encoding, plan: Plan, sample: Sequence[Columns]) -> tuple[Encoding, dict[str, str]]:
    """The encoding with the plan's columns behind its own, learnt from rows that have them; and which columns of the
    table it leaves out, with the reasons."""
    empty = {c.name: "has nothing but nulls in the sample" for c in plan.columns if not _has_values(c, sample)}
    plan = Plan(tuple(c for c in plan.columns if c.name not in empty), {**plan.left_out, **empty})
    if not plan.columns:
        return encoding, plan.left_out
    more = _learnt(encoding, plan, sample)
    if encoding.first_feature + encoding.unbounded_first + more.unbounded_first > MOST_FEATURES:
        names = ", ".join(column.name for column in plan.columns)
        raise OptionError(f"new columns {names}: more than {MOST_FEATURES:,} features", "start a new run without them")
    new = {column.name for column in plan.columns}
    return (
        replace(
            more,
            options=encoding.options,
            left_out={name: why for name, why in {**encoding.left_out, **plan.left_out}.items() if name not in new},
            dense=encoding.dense and more.dense,
            entries_per_row=encoding.entries_per_row + more.entries_per_row,
            tokens_per_row=encoding.tokens_per_row + more.tokens_per_row,
            bytes_per_row=max(encoding.bytes_per_row, more.bytes_per_row),
            before=encoding,
        ),
        plan.left_out,
    )


def _learnt(encoding: Encoding, plan: Plan, sample: Sequence[Columns]) -> Encoding:
    # A hash of the usual size for each generation would soon be most of the model.
    options = replace(encoding.options, hash_bits=None, cross=())
    return learn(plan, options, sample, encoding.options.hash_bits or MOST_HASH_BITS)


def _has_values(column: PlannedColumn, sample: Sequence[Columns]) -> bool:
    """Whether there is something to be learnt of it."""
    if column.kind == NUMBER:
        return any(known_numbers(array).size for array in arrays_of(sample, column.name))
    if column.kind == LIST:
        return any(np.diff(types.lists_of(array)[0]).any() for array in arrays_of(sample, column.name))
    return any(array.null_count < len(array) for name in column.sources for array in arrays_of(sample, name))
