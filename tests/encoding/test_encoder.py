"""Encoding rows, against a plain twin that works cell by cell; and facts that an encoded row must not depend on."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampgs.encoding.encoder import Encoder
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import plan_columns
from streampgs.options.commands import EncodingOptions
from tests.encoding.plain_encoding import OnlyRoundingLeft, Spec, plain_encode, plain_learn
from tests.encoding.tables import KINDS, Table, called, encoded, learnt, tables

# Each kind of column alone, and all kinds together.
EACH_KIND = pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), tuple(KINDS)], ids=[*KINDS, "all"])
EXAMPLES = 30


@st.composite
def choices(draw: Any, table: Table) -> EncodingOptions:
    """Few hashed features, so that strings share them."""
    more: dict[str, Any] = {}
    if any(column.spec.role == "text" for column in table.columns):
        more["ngrams"] = draw(st.sampled_from([None, (1, 1), (1, 2), (2, 3)]))
        more["char_ngrams"] = draw(st.sampled_from([None, (1, 1), (2, 3)]))
    categories = [column.spec.name for column in table.columns if column.spec.role == "category"]
    if len(categories) >= 2 and draw(st.booleans()):
        more["cross"] = ((categories[0], categories[1]), (categories[1], categories[1]))
    return table.options(
        **more,
        text_weights=draw(st.sampled_from(["tf-idf", "tf", "binary"])),
        standardize=draw(st.sampled_from(["auto", "on", "off"])),
        null_flags=draw(st.booleans()),
        vocabulary=draw(st.booleans()),
        hash_bits=draw(st.sampled_from([1, 3, 10])),
        hash_seed=draw(st.sampled_from([0, 1, 2**32 - 1])),
    )


def specs_of(table: Table, options: EncodingOptions) -> list[Spec]:
    return [*table.specs, *(Spec(f"{a}×{b}", "cross", (a, b)) for a, b in options.cross)]


def alike(found: dict[Any, float], expected: dict[Any, float]) -> bool:
    """Up to the rounding to float32 and to values that cancel out."""
    return all(
        found.get(feature, 0.0) == pytest.approx(expected.get(feature, 0.0), rel=1e-5, abs=2e-6, nan_ok=True)
        for feature in found.keys() | expected.keys()
    )


@EACH_KIND
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_rows_are_encoded_as_by_the_twin(kinds, data):
    table = data.draw(tables(kinds=kinds))
    options = data.draw(choices(table))
    encoding = learnt(table, options)
    plain = plain_learn(specs_of(table, options), options, table.values)
    for row, values in zip(encoded(encoding, table.arrays, table.rows), table.values, strict=True):
        try:
            expected = plain_encode(plain, values)
        except OnlyRoundingLeft:
            continue
        if isinstance(expected, int):
            assert row == expected
        else:
            assert not isinstance(row, int), f"fault {row} of {values}"
            found = called(encoding, row)
            assert alike(found, expected), f"{values}: {found} and not {expected}"


# Facts that a row must not depend on.


def cuts(data: Any, rows: int) -> list[tuple[int, int]]:
    """Consecutive parts of a table; some may be empty."""
    places = sorted(data.draw(st.lists(st.integers(0, rows), max_size=4)))
    return list(itertools.pairwise([0, *places, rows]))


@EACH_KIND
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_order_and_number_of_columns_and_chunks_do_not_matter(kinds, data):
    table = data.draw(tables(kinds=kinds))
    options = data.draw(choices(table))
    encoding = learnt(table, options)
    whole = encoded(encoding, table.arrays, table.rows)
    arrays = dict(data.draw(st.permutations([*table.arrays.items(), ("extra", pa.nulls(table.rows))])))
    for name in arrays:
        if data.draw(st.booleans()):
            parts = [arrays[name].slice(first, stop - first) for first, stop in cuts(data, table.rows)]
            arrays[name] = pa.chunked_array(parts, arrays[name].type)
    assert encoded(encoding, arrays, table.rows) == whole


WIDER = {
    **{kind: pa.int64() for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())},
    pa.float16(): pa.float64(),
    pa.float32(): pa.float64(),
    pa.string(): pa.large_string(),
    pa.large_string(): pa.string_view(),
    pa.binary(): pa.large_binary(),
    pa.date32(): pa.date64(),
    pa.timestamp("s"): pa.timestamp("us"),
    pa.timestamp("ms"): pa.timestamp("us", "America/Lima"),
    pa.time32("ms"): pa.time64("us"),
    pa.duration("s"): pa.duration("ms"),
    pa.duration("ms"): pa.duration("us"),
}


def widened(array: Any) -> Any:
    """The same values in a wider type, or another form of it."""
    kind = array.type
    if kind in WIDER:
        return array.cast(WIDER[kind])
    if pa.types.is_dictionary(kind):
        return array.dictionary_decode() if not pa.types.is_string_view(kind.value_type) else array
    if pa.types.is_list(kind) and not pa.types.is_struct(kind.value_type):
        return array.cast(pa.large_list(WIDER.get(kind.value_type, kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return array.cast(pa.list_(WIDER.get(kind.value_type, kind.value_type)))
    return array


@EACH_KIND
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_the_width_of_a_type_does_not_matter(kinds, data):
    """Shards of one table may hold int32 or double, and strings with or without a dictionary."""
    table = data.draw(tables(kinds=kinds))
    options = data.draw(choices(table))
    encoding = learnt(table, options)
    arrays = {name: widened(array) for name, array in table.arrays.items()}
    assert encoded(encoding, arrays, table.rows) == encoded(encoding, table.arrays, table.rows)
    doubles = {
        name: array.cast(pa.float64()) if pa.types.is_integer(array.type) and array.type.bit_width < 64 else array
        for name, array in table.arrays.items()
    }
    assert encoded(encoding, doubles, table.rows) == encoded(encoding, table.arrays, table.rows)


@given(table=tables(most_rows=3), data=st.data())
def test_every_part_of_the_encoding_changes_the_digest(table, data):
    encoding = learnt(table, data.draw(choices(table)))
    others = [
        replace(encoding, hash_bits=encoding.hash_bits + 1),
        replace(encoding, options=replace(encoding.options, hash_seed=77)),
        replace(encoding, columns=(replace(encoding.columns[0], centre=(1e-300,)), *encoding.columns[1:])),
        replace(encoding, words=np.append(encoding.words, np.uint64(1))),
        *(
            replace(encoding, rarities={**encoding.rarities, name: np.nextafter(rarity, np.float32(9.0))})
            for name, rarity in encoding.rarities.items()
        ),
    ]
    digests = [encoding.digest, *(other.digest for other in others)]
    assert len(set(digests)) == len(digests)


def test_a_text_that_is_not_utf8_does_not_change_the_others():
    """Parquet readers do not check that strings are UTF-8."""
    texts = ["Ärger".encode(), b"\xff\xc4 bad", "ÜBER ärger".encode(), b""]
    offsets = np.cumsum([0, *(len(text) for text in texts)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    bad = pa.StringArray.from_buffers(len(texts), buffers[1], buffers[2])
    good = pa.array([None if text == texts[1] else text.decode() for text in texts])
    options = EncodingOptions(text=("t",), hash_bits=20)
    encoding = learn(plan_columns(pa.schema([("t", pa.string())]), options, {}, "a table"), options, [{"t": good}])
    found, expected = (encoded(encoding, {"t": array}, len(texts)) for array in (bad, good))
    assert [found[0], *found[2:]] == [expected[0], *expected[2:]]
    assert len(found[1]) == 2
    assert [encoded(encoding, {"t": bad[r : r + 1]}, 1)[0] for r in range(len(texts))] == found


# The features of the words and of the characters of a text are joined and scaled to length 1. The sum of these squares has
# another last bit if a sixteenth square is added, even 0, and the last value is one that this bit rounds up.


def test_dictionaries_may_change_from_batch_to_batch():
    """As between the row groups of a Parquet file; the dictionary itself may contain null."""
    batches = [["a", "b"], ["b", "a"], ["c", None, "b"], ["b", "a", "a"], []]
    words = [word for batch in batches for word in batch]
    options = EncodingOptions(vocabulary=True)
    plan = plan_columns(pa.schema([("c", pa.string())]), options, {}, "a table")
    encoding = learn(plan, options, [{"c": pa.array(words)}])
    expected = iter(encoded(encoding, {"c": pa.array(words)}, len(words)))
    encoder = Encoder(encoding)
    for batch in batches:
        array = pa.DictionaryArray.from_arrays(pa.array(range(len(batch)), pa.int8()), pa.array(batch, pa.string()))
        found = encoded(encoding, {"c": array}, len(batch), encoder)
        assert found == [next(expected) for _ in batch]
