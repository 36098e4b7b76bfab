"""New columns of a growing table: they are learned on their own and get features after all that exist.

Strings of known columns are not learned again. New ones are hashed as before: a feature of its own would take a string away
from the hashed feature that it has in earlier shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import kind_of
from streampgs.encoding.kinds.kind import LARGEST_FEATURE, Arrays
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import Plan, plan_more, vectors_of
from streampgs.errors import OptionError
from streampgs.options import MOST_HASH_BITS


def plan_growth(schema: pa.Schema, encoding: Encoding, taken: dict[str, str]) -> Plan:
    """Plan the columns of new shards that the encoding does not know."""
    known = {name for column in encoding.all_columns for name in column.sources}
    plan = plan_more(schema, encoding.options, known, taken)
    vectors = [*vectors_of(encoding.all_columns), *vectors_of(plan.columns)]
    return plan.without(
        {
            column.name: f"no feature can come after those of vector '{vectors[0]}'"
            for column in plan.columns
            if encoding.unbounded or column.name in vectors[1:]
        }
    )


def grown(encoding: Encoding, plan: Plan, sample: Sequence[Arrays]) -> tuple[Encoding, dict[str, str]]:
    """The encoding with the plan's columns after its own, learned from rows that have them; and the columns of the new
    shards that are left out, with the reasons."""
    plan = plan.without(
        {c.name: "has only nulls in the sample" for c in plan.columns if not kind_of(c).has_values(c, sample)}
    )
    if not plan.columns:
        return encoding, plan.left_out
    # With the usual hash for each generation, most of the model would soon be hashed features.
    options = replace(encoding.options, hash_bits=None, cross=())
    more = learn(plan, options, sample, encoding.options.hash_bits or MOST_HASH_BITS)
    if encoding.first_feature + encoding.unbounded_first + more.unbounded_first > LARGEST_FEATURE:
        names = ", ".join(column.name for column in plan.columns)
        raise OptionError(
            f"new columns {names}: more than {LARGEST_FEATURE:,} features", "start a new run without them"
        )
    new = {column.name for column in plan.columns}
    return (
        replace(
            more,
            options=encoding.options,
            left_out={name: why for name, why in {**encoding.left_out, **plan.left_out}.items() if name not in new},
            entries_per_row=encoding.entries_per_row + more.entries_per_row,
            tokens_per_row=encoding.tokens_per_row + more.tokens_per_row,
            bytes_per_row=max(encoding.bytes_per_row, more.bytes_per_row),
            before=encoding,
        ),
        plan.left_out,
    )
