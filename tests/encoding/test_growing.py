"""Columns that join later: old features keep number and meaning, and new ones are as if learned alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.learning import grown, learn
from streampgs.encoding.plan import plan_columns, plan_growth
from streampgs.options.commands import EncodingOptions
from tests.encoding.tables import KINDS, Column, Table, encoded, tables
from tests.encoding.test_encoder import choices

BOUNDED = tuple(kind for kind in KINDS if kind != "vector")
EXAMPLES = 60


def part(table: Table, columns: tuple[Column, ...]) -> Table:
    return Table(columns, table.rows)


def grown_by(encoding: Encoding, table: Table) -> Encoding:
    found, _ = grown(encoding, plan_growth(table.schema, encoding, {}), [table.arrays])
    return found


@st.composite
def growing_tables(draw: Any) -> tuple[Table, Table, EncodingOptions]:
    """A table, the same table with more columns, and the options of the run."""
    whole = draw(tables(kinds=BOUNDED))
    flat = whole.columns
    options = draw(choices(whole))
    first = draw(st.integers(1, len(flat)))
    crossed = {name for pair in options.cross for name in pair}
    old = [c for c in flat[:first] if c.spec.name not in crossed] + [c for c in flat if c.spec.name in crossed]
    new = [c for c in flat[first:] if c.spec.name not in crossed]
    return part(whole, tuple(old or new)), part(whole, tuple(old + new)), options


def learnt_of(old: Table, whole: Table, options: EncodingOptions) -> Encoding:
    """Some of the options name columns that join later."""
    own = old.options()
    first = replace(options, text=own.text, category=own.category, cyclic=own.cyclic, **_grams(own, options))
    plan = plan_columns(old.schema, first, {}, "a table")
    return learn(plan, options, [old.arrays])


def _grams(own: EncodingOptions, options: EncodingOptions) -> dict[str, Any]:
    return {} if own.text else {"ngrams": None, "char_ngrams": None}


@settings(max_examples=EXAMPLES)
@given(growing_tables())
def test_rows_without_the_new_columns_do_not_change(drawn):
    """To the last bit, with the grown encoding and with the generation that was known when they joined."""
    old, whole, options = drawn
    before = learnt_of(old, whole, options)
    after = grown_by(before, whole)
    rows = encoded(before, old.arrays, old.rows)
    then = after.as_of(before.digest)
    assert then is not None
    assert encoded(then, whole.arrays, old.rows) == rows
    if not after.dense and not before.dense:
        assert encoded(after, old.arrays, old.rows) == rows
    for row, longer in zip(rows, encoded(after, old.arrays, old.rows), strict=True):
        if isinstance(row, int):
            assert row == longer
        else:
            assert _filled(longer) == _filled(row)


def _filled(row: Any) -> list[Any]:
    return [(index, bits) for index, bits in row if np.frombuffer(bits, np.float32)[0] != 0.0]


@settings(max_examples=EXAMPLES)
@given(growing_tables())
def test_a_row_is_its_old_entries_and_then_those_of_the_new_columns(drawn):
    old, whole, options = drawn
    before = learnt_of(old, whole, options)
    after = grown_by(before, whole)
    new = part(whole, tuple(c for c in whole.columns if c.spec.name in {n.name for n in after.columns}))
    if after is before or not new.columns:
        return
    alone = replace(after, before=None)
    added = encoded(alone, new.arrays, new.rows)
    start = before.unbounded_first
    for row, first, more in zip(
        encoded(after, whole.arrays, whole.rows), encoded(before, old.arrays, old.rows), added, strict=True
    ):
        if isinstance(row, int):
            assert row in (first, more)
        else:
            assert _filled(row) == _filled([*first, *((index + start, bits) for index, bits in more)])


@settings(max_examples=EXAMPLES)
@given(growing_tables())
def test_features_keep_their_names_and_the_encoding_its_digest(drawn):
    old, whole, options = drawn
    before = learnt_of(old, whole, options)
    after = grown_by(before, whole)
    start = before.unbounded_first
    assert [after.name_of(feature) for feature in range(start)] == [before.name_of(f) for f in range(start)]
    assert [after.sign_of(feature) for feature in range(start)] == [before.sign_of(f) for f in range(start)]
    if after is not before:
        alone = replace(after, before=None)
        behind = range(after.unbounded_first)
        assert [after.name_of(start + feature) for feature in behind] == [alone.name_of(f) for f in behind]
        assert after.features == start + after.unbounded_first
        record, arrays = after.to_record()
        assert Encoding.from_record(record, arrays, before).digest == after.digest != before.digest


def flat(table: Table) -> Table:
    """The same values in columns outside structs."""
    columns = []
    for column in table.columns:
        name = column.spec.name.replace(".", "-")
        array = types.leaf(table.arrays, column.spec.name)
        own = dict.fromkeys(column.options, (name,))
        columns.append(replace(column, spec=replace(column.spec, name=name), array=array, options=own))
    return Table(tuple(columns), table.rows)


def numbers(**columns: list[Any]) -> dict[str, pa.Array]:
    return {name: pa.array(values) for name, values in columns.items()}


def test_a_table_may_grow_several_times():
    """Each generation after the one before; a row is read with the columns that were known when it joined."""
    tables = [numbers(a=[1.0, 2.0]), numbers(a=[1.0, 2.0], b=["x", "y"]), numbers(b=["x", "y"], c=[[1, 2], [3, 4]])]
    options = EncodingOptions(standardize="off", hash_bits=4)
    encoding = learn(plan_columns(schema_of(tables[0]), options, {}, "a table"), options, [tables[0]])
    ends = [encoding.features]
    for table in tables[1:]:
        encoding, _ = grown(encoding, plan_growth(schema_of(table), encoding, {}), [table])
        ends.append(encoding.features)
    assert ends == [1, 17, 19]
    assert [column.name for column in encoding.all_columns] == ["a", "b", "c"]
    rows = encoded(encoding, tables[0] | tables[2], 2)
    assert [index for index, _ in rows[0]] == [0, rows[0][1][0], 17, 18]
    assert encoding.name_of(rows[0][1][0]) == "b=x"
    assert encoding.name_of(18) == "c[1]"
    assert [generation.features for generation in encoding.generations] == [19, 17, 1]


def schema_of(table: dict[str, pa.Array]) -> pa.Schema:
    return pa.schema([(name, array.type) for name, array in table.items()])


def first_encoding(table: dict[str, pa.Array], **options: Any) -> Encoding:
    chosen = EncodingOptions(**options)
    return learn(plan_columns(schema_of(table), chosen, {}, "a table"), chosen, [table])


def test_one_vector_may_join_later_as_the_last_column():
    encoding = first_encoding(numbers(old=[1.0, 2.0]), standardize="off")
    vectors = {name: pa.array([[(0, 1.0)], [(7, 2.0)]], pa.map_(pa.int32(), pa.float64())) for name in ("v", "w")}
    table = numbers(old=[1.0, 2.0], more=[3.0, 4.0]) | vectors
    after, left_out = grown(encoding, plan_growth(schema_of(table), encoding, {}), [table])
    assert list(left_out) == ["w"]
    assert after.features is None
    rows = encoded(after, table, 2)
    assert [[index for index, _ in row] for row in rows] == [[0, 1, 2], [0, 1, 9]]
    assert after.name_of(9) == "v[7]"
