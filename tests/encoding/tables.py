"""Hypothesis strategies for tables of all kinds of columns, as Arrow arrays and as values for the plain twin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import Plan, plan_columns
from streampgs.encoding.rows import FAULTS, FEATURES, INDICES, VALUES
from streampgs.options.commands import EncodingOptions
from tests.encoding.plain_encoding import Feature, Spec, Values

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal32(5, 2), pa.decimal64(10, 2), pa.decimal128(20, 2), pa.decimal256(40, 2)]
TIMES = [
    pa.date32(),
    pa.date64(),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    pa.timestamp("us", "Europe/Berlin"),
    pa.timestamp("ms", "UTC"),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
]
STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
CATEGORIES = [*STRINGS, pa.dictionary(pa.uint32(), pa.large_string()), pa.dictionary(pa.int64(), pa.string_view())]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

names = ["", "a", "b", "Ä", "ä", "x y", "\x00", "long enough to be no small string"]
lines = st.lists(
    st.sampled_from(["One", "two", "ÄRGER", "über", "1", "_", " ", " ", "-", "—", "中文", "😀", ". "]), max_size=8
).map("".join)


@dataclass(frozen=True)
class Column:
    spec: Spec
    array: pa.Array
    plain: list[Any]
    """The values for the twin."""
    options: dict[str, tuple[str, ...]]
    """The EncodingOptions that give the column this role."""


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    rows: int

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, array.type) for name, array in self.arrays.items()])

    @property
    def arrays(self) -> dict[str, pa.Array]:
        """Those of fields inside structs are put together again."""
        found: dict[str, Any] = {}
        for column in self.columns:
            top, dot, inner = column.spec.name.partition(".")
            if dot:
                found.setdefault(top, []).append((inner, column))
            else:
                found[column.spec.name] = column.array
        return {
            name: part if isinstance(part, pa.Array | pa.ChunkedArray) else struct_of(part)
            for name, part in found.items()
        }

    @property
    def specs(self) -> list[Spec]:
        return [column.spec for column in self.columns]

    @property
    def values(self) -> list[Values]:
        return [{column.spec.name: column.plain[r] for column in self.columns} for r in range(self.rows)]

    def options(self, **more: Any) -> EncodingOptions:
        found: dict[str, tuple[str, ...]] = {}
        for column in self.columns:
            for name, value in column.options.items():
                found[name] = found.get(name, ()) + value
        return EncodingOptions(**{**found, **more})


def struct_of(parts: list[tuple[str, Column]]) -> pa.Array:
    """Structs of these fields; every third is null, with arbitrary values in its fields."""
    fields: list[tuple[str, pa.Array]] = []
    inner: dict[str, list[tuple[str, Column]]] = {}
    for name, column in parts:
        top, dot, below = name.partition(".")
        if dot:
            inner.setdefault(top, []).append((below, column))
        else:
            fields.append((name, column.array))
    fields += [(name, struct_of(below)) for name, below in inner.items()]
    rows = len(fields[0][1])
    mask = pa.array([r % 3 == 2 for r in range(rows)], pa.bool_())
    return pa.StructArray.from_arrays([array for _, array in fields], [name for name, _ in fields], mask=mask)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, st.none())


def rows_of(values: st.SearchStrategy[Any], rows: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=rows, max_size=rows)


@st.composite
def number_columns(draw: Any, name: str, rows: int) -> Column:
    kind = draw(st.sampled_from([*INTEGERS, *FLOATS, *DECIMALS, pa.bool_()]))
    if pa.types.is_integer(kind):
        bounds = np.iinfo(kind.to_pandas_dtype())
        value = st.one_of(st.integers(0, 9), st.sampled_from([bounds.min, bounds.max]))
    elif pa.types.is_floating(kind):
        width = kind.bit_width
        value = st.one_of(
            st.floats(-100, 100, width=width), st.just(0.0), st.sampled_from([math.nan, math.inf, -math.inf, -0.0])
        )
    elif pa.types.is_decimal(kind):
        value = st.integers(-99999, 99999).map(lambda cents: Decimal(cents) / 100)
    else:
        value = st.booleans()
    values = draw(rows_of(maybe(value), rows))
    array = pa.array([np.float16(v) if pa.types.is_float16(kind) and v is not None else v for v in values], kind)
    if draw(st.booleans()):
        values = [type(v)(0) if v is not None and draw(st.integers(0, 19)) else v for v in values]
        array = pa.array([np.float16(v) if pa.types.is_float16(kind) and v is not None else v for v in values], kind)
    plain = [None if value is None else float(value) for value in values]
    return Column(Spec(name, "number"), array, plain, {})


@st.composite
def time_columns(draw: Any, name: str, rows: int) -> Column:
    kind = draw(st.sampled_from(TIMES))
    storage = pa.int64() if kind.bit_width == 64 else pa.int32()
    days = pa.types.is_date(kind)
    if pa.types.is_date32(kind):
        per_second = Fraction(1, 86400)
    elif pa.types.is_date64(kind):
        per_second = Fraction(1000)
    else:
        per_second = Fraction(PER_SECOND[kind.unit])
    most = 86399 if pa.types.is_time(kind) else 4 * 10**9
    halves = 86400 * 2 if days else (1 if per_second > 1 else 2)
    half_seconds = st.integers(0 if pa.types.is_time(kind) else -most // halves, 2 * most // halves).map(
        lambda n: n * halves
    )
    drawn = draw(rows_of(maybe(half_seconds), rows))
    ticks = [None if n is None else int(n * per_second / 2) for n in drawn]
    plain = [None if tick is None else float(tick / per_second) for tick in ticks]
    cyclic = not pa.types.is_duration(kind) and draw(st.booleans())
    array = pa.array(ticks, storage).view(kind)
    return Column(Spec(name, "time"), array, plain, {"cyclic": (name,)} if cyclic else {})


@st.composite
def category_columns(draw: Any, name: str, rows: int) -> Column:
    if draw(st.integers(0, 3)) == 0:
        kind = draw(st.sampled_from([*INTEGERS, pa.bool_(), pa.float64()]))
        value = st.booleans() if pa.types.is_boolean(kind) else st.integers(0, 4)
        if pa.types.is_floating(kind):
            value = st.one_of(value.map(float), st.sampled_from([0.5, -1e300, math.nan, math.inf]))
        values = draw(rows_of(maybe(value), rows))
        return Column(Spec(name, "category"), pa.array(values, kind), values, {"category": (name,)})
    kind = draw(st.sampled_from(CATEGORIES))
    values = draw(rows_of(maybe(st.sampled_from(names)), rows))
    return Column(Spec(name, "category"), string_array(values, kind), values, {})


def string_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Dictionaries contain a string that no row has, and are not in the order of the rows."""
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    known = ["unused", *sorted({value for value in values if value is not None}, reverse=True)]
    indices = pa.array([None if value is None else known.index(value) for value in values], kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, pa.array(known, kind.value_type))


@st.composite
def text_columns(draw: Any, name: str, rows: int) -> Column:
    kind = draw(st.sampled_from([*STRINGS, *BINARIES]))
    values = draw(rows_of(maybe(lines), rows))
    plain: list[Any] = values
    if kind in BINARIES:
        plain = values = [None if value is None else value.encode() for value in values]
    return Column(Spec(name, "text"), string_array(values, kind), plain, {"text": (name,)})


@st.composite
def token_columns(draw: Any, name: str, rows: int) -> Column:
    inner = draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
    make = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view]))
    values = draw(rows_of(maybe(st.lists(maybe(st.sampled_from(names)), max_size=5)), rows))
    return Column(Spec(name, "tokens"), pa.array(values, make(inner)), values, {})


@st.composite
def weighed_columns(draw: Any, name: str, rows: int) -> Column:
    weights = maybe(st.integers(-16, 16).map(lambda number: number / 8))
    pairs = st.lists(st.tuples(st.sampled_from(names), weights), max_size=4, unique_by=lambda pair: pair[0])
    values = draw(rows_of(maybe(pairs), rows))
    if draw(st.booleans()):
        kind = pa.map_(draw(st.sampled_from([pa.string(), pa.large_string()])), pa.float32())
        return Column(Spec(name, "weighed"), pa.array(values, kind), values, {})
    structs = [None if pairs is None else [{"key": key, "value": value} for key, value in pairs] for pairs in values]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.float64())]))
    return Column(Spec(name, "weighed"), pa.array(structs, kind), values, {})


LIST_WIDTH = 3


@st.composite
def list_columns(draw: Any, name: str, rows: int) -> Column:
    inner = draw(st.sampled_from([pa.int16(), pa.float32(), pa.float64()]))
    value = st.one_of(st.integers(-9, 9), st.integers(-9, 9).map(lambda number: 1000 * number))
    if inner != pa.int16():
        value = st.one_of(value.map(float), st.sampled_from([math.nan, math.inf]))
    fixed = draw(st.booleans())
    make = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view]))
    whole = st.lists(maybe(value), min_size=LIST_WIDTH, max_size=LIST_WIDTH)
    odd = whole if fixed else st.lists(value, max_size=LIST_WIDTH + 1)
    values = draw(rows_of(maybe(st.one_of(whole, whole, whole, odd)), rows))
    if rows:  # some list is needed to learn from, and of the usual width more than of others
        for row in range(0, rows, 2):
            values[row] = [1, 2, 3]
    kind = pa.list_(inner, LIST_WIDTH) if fixed else make(inner)
    plain = [None if one is None else [None if v is None else float(v) for v in one] for one in values]
    return Column(Spec(name, "list"), pa.array(values, kind), plain, {})


@st.composite
def vector_columns(draw: Any, name: str, rows: int) -> Column:
    value = maybe(st.integers(-16, 16).map(lambda number: number / 8))
    entries = st.lists(st.tuples(st.integers(0, 2000), value), max_size=4, unique_by=lambda entry: entry[0])
    drawn = draw(rows_of(maybe(entries), rows))
    form = draw(st.sampled_from(["map", "pairs", "swapped", "spark", "lists"]))
    plain: list[Any] = [None if one is None else ([i for i, _ in one], [v for _, v in one]) for one in drawn]
    if form == "map":
        kind = pa.map_(draw(st.sampled_from([pa.int32(), pa.int64()])), pa.float64())
        return Column(Spec(name, "vector"), pa.array(drawn, kind), plain, {})
    if form in ("pairs", "swapped"):
        fields = [("index", pa.int64()), ("value", pa.float32())]
        kind = pa.list_(pa.struct(fields if form == "pairs" else fields[::-1]))
        values = [None if one is None else [{"index": i, "value": v} for i, v in one] for one in drawn]
        return Column(Spec(name, "vector"), pa.array(values, kind), plain, {})
    rows_as_structs: list[Any] = []
    for r, one in enumerate(plain):
        dense = form == "spark" and one is not None and draw(st.booleans())
        if one is None:
            rows_as_structs.append(None)
        elif dense:
            rows_as_structs.append({"type": 1, "size": None, "indices": None, "values": one[1]})
            plain[r] = (list(range(len(one[1]))), one[1])
        else:
            torn = form == "lists" and draw(st.integers(0, 7)) == 0
            if torn:
                one = plain[r] = ([*one[0], 2001], one[1])
            rows_as_structs.append({"type": 0, "size": 2002, "indices": one[0], "values": one[1]})
    fields = [("type", pa.int8()), ("size", pa.int32())] if form == "spark" else []
    kind = pa.struct([*fields, ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))])
    if form == "lists":
        for one in rows_as_structs:
            if one is not None:
                del one["type"], one["size"]
    return Column(Spec(name, "vector"), pa.array(rows_as_structs, kind), plain, {})


KINDS = {
    "number": number_columns,
    "time": time_columns,
    "category": category_columns,
    "text": text_columns,
    "tokens": token_columns,
    "weighed": weighed_columns,
    "list": list_columns,
    "vector": vector_columns,
}


@st.composite
def tables(draw: Any, most_rows: int = 12, kinds: tuple[str, ...] = tuple(KINDS)) -> Table:
    """A few columns, some of them inside structs; at most one vector."""
    rows = draw(st.integers(1, most_rows))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    chosen = [kind for k, kind in enumerate(chosen) if kind != "vector" or "vector" not in chosen[:k]]
    columns = []
    for number, kind in enumerate(chosen):
        inside = draw(st.sampled_from(["", "", "", "s.", "s.deep.", "t."]))
        column = draw(KINDS[kind](f"{inside}{kind}{number}", rows))
        if inside:  # where the struct is null, so are its fields
            plain = [None if r % 3 == 2 else value for r, value in enumerate(column.plain)]
            column = replace(column, plain=plain)
        columns.append(column)
    return Table(tuple(columns), rows)


# Encoded rows.


def encoded(encoding: Encoding, arrays: dict[str, Any], rows: int, encoder: Encoder | None = None) -> list[Any]:
    """For each row its fault, or its entries in order with the bits of their values."""
    batch = (encoder or Encoder(encoding)).encode(arrays, rows, (), None).to_batch()
    assert batch.num_rows == rows
    batch.validate(full=True)
    faults = batch[FAULTS].to_pylist() if FAULTS in batch.schema.names else [0] * rows
    if encoding.dense:
        assert batch.schema.names[0] == FEATURES
        lists = batch[FEATURES].to_pylist()
        found = [list(enumerate(values)) for values in lists]
    else:
        pairs = zip(batch[INDICES].to_pylist(), batch[VALUES].to_pylist(), strict=True)
        found = [list(zip(indices, values, strict=True)) for indices, values in pairs]
    return [
        fault or tuple((i, np.float32(v).tobytes()) for i, v in row) for fault, row in zip(faults, found, strict=True)
    ]


def called(encoding: Encoding, row: tuple[tuple[int, bytes], ...]) -> dict[Feature, float]:
    """A row's entries by the names of features, without zeros; no feature occurs twice."""
    found: dict[Feature, float] = {}
    for index, bits in row:
        value = float(np.frombuffer(bits, np.float32)[0])
        feature = feature_at(encoding, index)
        assert feature not in found, f"{feature} twice"
        if value != 0.0:
            found[feature] = value
    return found


def feature_at(encoding: Encoding, index: int) -> Feature:
    if index >= encoding.unbounded_first:
        assert encoding.unbounded
        return "vector", index - encoding.unbounded_first
    if index >= encoding.hashed_first:
        place = index - encoding.hashed_first
        return ("word", place) if place < len(encoding.words) else ("slot", place - len(encoding.words))
    (found,) = (
        (column.name, index - encoding.first_of[column.name])
        for column in encoding.columns
        if column.kind in ("number", "list") and 0 <= index - encoding.first_of[column.name] < column.width
    )
    return found


def learnt(table: Table, options: EncodingOptions) -> Encoding:
    return learn(planned(table, options), options, [table.arrays])


def planned(table: Table, options: EncodingOptions) -> Plan:
    return plan_columns(table.schema, options, {}, "a table")
