"""Laws of every kind of column. A kind in the registry is tested without being listed here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import KINDS
from streampgs.encoding.kinds.kind import NumberKind, StringKind
from streampgs.encoding.learning import grown, learn
from streampgs.encoding.plan import plan_columns, plan_growth
from streampgs.options.commands import EncodingOptions
from tests.encoding import tables

# One sample for each type of values. The registry lists the kinds that accept it.
_MAP = [[("b", 0.5), ("a", 2.0)], None, [], [("a", None)], [("c", -1.0), ("a", 0.25)], [("b", 3.0)]]
SAMPLES: dict[str, pa.Array] = {
    types.NUMBER: pa.array([3, None, 0, 7, 12, 3], pa.int32()),
    types.TIME: pa.array([10**9, None, 0, 5 * 10**8, 86399, 1], pa.timestamp("s")),
    types.ZONED: pa.array([10**9, None, 0, 5 * 10**8, 86399, 1], pa.timestamp("s", "UTC")),
    types.TIME_OF_DAY: pa.array([3600, None, 0, 7, 86399, 1], pa.time32("s")),
    types.DURATION: pa.array([-3600, None, 0, 10**6, 86399, 1], pa.duration("s")),
    types.STRING: pa.array(["one two", None, "", "two three two", "Ä", "one two"]),
    types.BINARY: pa.array([b"one two", None, b"", b"two three two", b"\xff", b"one"]),
    types.LIST: pa.array([[1.0, 200.0], None, [3.0, None], [0.0, 0.0], [5.5, -100.0], [1.0, 2.0]]),
    types.TOKENS: pa.array([["a", "b"], None, [], ["a", None, "a"], ["c"], ["b"]]),
    types.MAP: pa.array(_MAP, pa.map_(pa.string(), pa.float64())),
    types.VECTOR: pa.array([[(4, 1.0)], None, [], [(0, 2.0), (9, 0.5)], [(1, None)], [(2, 3.0)]], pa.map_(pa.int32(), pa.float64())),
}  # fmt: skip
ROWS = 6
# The options and the type of values for a kind whose columns are made of one or two others.
MADE_OF: dict[str, tuple[dict[str, Any], str]] = {
    "curve": ({"numbers": "curves"}, types.NUMBER),
    "surface": ({"cross": (("x", "y"),)}, types.NUMBER),
    "cross": ({"cross": (("x", "y"),)}, types.STRING),
}


@dataclass(frozen=True)
class Case:
    kind: str
    holds: str
    options: EncodingOptions

    @property
    def of_kind(self) -> dict[str, pa.Array]:
        """`x`, and `y` if the kind combines two columns."""
        one = SAMPLES[self.holds]
        return {"x": one, "y": one.take(pa.array([1, 2, 3, 4, 5, 0]))} if self.options.cross else {"x": one}

    @property
    def arrays(self) -> dict[str, pa.Array]:
        """A column of numbers, then the columns of the kind."""
        return {"other": pa.array(np.arange(ROWS) + 0.5), **self.of_kind}

    def learned(self, arrays: dict[str, pa.Array]) -> Encoding:
        return learn(plan_columns(schema_of(arrays), self.options, {}, "a table"), self.options, [arrays])


def cases() -> list[Case]:
    found = []
    for name, kind in KINDS.items():
        assert kind.takes or kind.option or name in MADE_OF, f"add the options for a column of kind {name} to MADE_OF"
        chosen: list[tuple[str, dict[str, Any]]] = [(holds, {}) for holds in kind.takes]
        chosen += [(holds, {str(kind.option): ("x",)}) for holds in kind.allowed]
        chosen += [(holds, {option: ("x",)}) for option, (allowed, _) in kind.modifiers.items() for holds in allowed]
        if name in MADE_OF:
            chosen.append((MADE_OF[name][1], MADE_OF[name][0]))
        for holds, options in chosen:
            more: dict[str, Any] = {"ngrams": (1, 2), "char_ngrams": (2, 3)} if "text" in options else {}
            found.append(Case(name, holds, EncodingOptions(**options, **more, hash_bits=12)))
    flagged = [Case(c.kind, c.holds, EncodingOptions(**{**vars(c.options), "null_flags": True})) for c in found]
    vocabulary = [Case(c.kind, c.holds, EncodingOptions(**{**vars(c.options), "vocabulary": True})) for c in found]
    return [*found, *flagged, *vocabulary]


def schema_of(arrays: dict[str, pa.Array]) -> pa.Schema:
    return pa.schema([(name, array.type) for name, array in arrays.items()])


def rows_of(encoding: Encoding, arrays: dict[str, pa.Array]) -> list[Any]:
    """The fault or the entries of each row."""
    count = len(next(iter(arrays.values())))
    return tables.encoded(encoding, arrays, count)


def _name(case: Case) -> str:
    return f"{case.kind} of {case.holds}{' flags' * case.options.null_flags}{' words' * case.options.vocabulary}"


every_case = pytest.mark.parametrize("case", cases(), ids=_name)
# A cross is planned when a run starts and cannot join later; tests/encoding/test_curves.py has curves that join.
every_joining_case = pytest.mark.parametrize("case", [case for case in cases() if case.kind not in MADE_OF], ids=_name)


def test_every_kind_has_a_plain_twin():
    """tests/encoding/test_encoder.py compares columns of `tables.KINDS` and crosses with a plain encoder, and
    tests/encoding/test_curves.py curves and surfaces with plain shares."""
    roles = {"time": "number", "tokens": "token list", "weighed": "map"}
    assert {roles.get(role, role) for role in tables.KINDS} | {"cross", "curve", "surface"} == set(KINDS)


def test_every_type_of_values_has_a_sample():
    taken = {holds for kind in KINDS.values() for holds in (*kind.takes, *kind.allowed)}
    assert taken <= SAMPLES.keys()
    for holds, array in SAMPLES.items():
        assert types.class_of(array.type) == holds


@every_case
def test_a_column_is_planned_as_its_kind(case):
    plan = plan_columns(schema_of(case.of_kind), case.options, {}, "a table")
    (column,) = (column for column in plan.columns if column.kind == case.kind)
    assert set(column.sources) <= case.of_kind.keys()
    kind = KINDS[case.kind]
    assert all(kind.fits(column, holds) for holds in (case.holds, types.NULL))


@every_case
def test_a_row_does_not_depend_on_its_batch(case):
    encoding = case.learned(case.of_kind)
    whole = rows_of(encoding, case.of_kind)
    alone = [
        rows_of(encoding, {name: array.slice(r, 1) for name, array in case.of_kind.items()})[0] for r in range(ROWS)
    ]
    assert alone == whole
    encoder = Encoder(encoding, reusing=True)
    for first, stop in ((0, 4), (4, 6), (1, 5)):
        part = {name: array.slice(first, stop - first) for name, array in case.of_kind.items()}
        assert tables.encoded(encoding, part, stop - first, encoder) == whole[first:stop]


@every_case
def test_a_shard_may_hold_only_nulls_or_lack_the_column(case):
    encoding = case.learned(case.arrays)
    nulls = {name: pa.nulls(3) for name in case.of_kind}
    typed = {name: pa.nulls(3, array.type) for name, array in case.of_kind.items()}
    other = {"other": case.arrays["other"][:3]}
    for arrays in (other | nulls, other | typed, other):
        rows = rows_of(encoding, arrays)
        assert all(isinstance(row, tuple) for row in rows)
        assert np.isfinite([np.frombuffer(bits, np.float32)[0] for row in rows for _, bits in row]).all()


@every_case
def test_features_have_names_and_stay_in_bounds(case):
    encoding = case.learned(case.of_kind)
    used = {index for row in rows_of(encoding, case.of_kind) if isinstance(row, tuple) for index, _ in row}
    assert used
    if encoding.features is not None:
        assert max(used) < encoding.features
    names = [encoding.name_of(index) for index in sorted(used)]
    assert all(name[0] in case.of_kind or name.startswith("hashed ") for name in names)
    if isinstance(KINDS[case.kind], StringKind):
        assert sum(name.startswith("hashed ") for name in names) <= len(names) // 2
        assert all(encoding.sign_of(index) in (-1, 1) for index in used)
    if isinstance(KINDS[case.kind], NumberKind):
        assert len({encoding.name_of(index) for index in range(encoding.unbounded_first)}) == encoding.unbounded_first


@every_case
def test_the_sample_gives_the_cost_of_a_row(case):
    encoding = case.learned(case.of_kind)
    entries = [len(row) for row in rows_of(encoding, case.of_kind) if isinstance(row, tuple)]
    if len(entries) == ROWS:
        assert encoding.entries_per_row == pytest.approx(max(1.0, np.mean(entries)))
    assert encoding.work_bytes_per_row >= 8.0 * encoding.entries_per_row
    assert encoding.bytes_per_row > 0.0


@every_case
def test_only_a_kind_that_declares_a_fault_finds_faults(case):
    encoding = case.learned(case.of_kind)
    faults = {row for row in rows_of(encoding, case.of_kind) if isinstance(row, int)}
    assert faults <= {KINDS[case.kind].fault}


@every_joining_case
def test_a_column_may_join_later(case):
    other = {"other": case.arrays["other"]}
    options = EncodingOptions(hash_bits=12)
    before = learn(plan_columns(schema_of(other), options, {}, "a table"), options, [other])
    before = Encoding.from_record({**before.to_record()[0], "options": vars(case.options)}, before.to_record()[1])
    both = other | {"x": case.arrays["x"]}
    after, left_out = grown(before, plan_growth(schema_of(both), before, {}), [both])
    assert not left_out
    assert [column.kind for column in after.columns] == [case.kind]
    assert after.as_of(before.digest) is before
    start = before.unbounded_first
    assert [after.name_of(feature) for feature in range(start)] == [before.name_of(feature) for feature in range(start)]
    for row, old in zip(rows_of(after, both), rows_of(before, other), strict=True):
        if isinstance(row, tuple):
            assert [entry for entry in row if entry[0] < start] == [entry for entry in old if entry[1] != bytes(4)]
    assert rows_of(before, both) == rows_of(before, other)


@every_joining_case
def test_a_column_of_nulls_does_not_join(case):
    other = {"other": case.arrays["other"]}
    before = Case("number", types.NUMBER, EncodingOptions()).learned(other)
    both = other | {"x": pa.nulls(ROWS, case.arrays["x"].type)}
    after, left_out = grown(before, plan_growth(schema_of(both), before, {}), [both])
    assert after is before
    assert "x" in left_out


# The stored form.


@every_case
def test_an_encoding_survives_its_stored_form(case):
    encoding = case.learned(case.arrays)
    record, arrays = encoding.to_record()
    again = Encoding.from_record(json.loads(json.dumps(record)), {name: array.copy() for name, array in arrays.items()})
    assert again.digest == encoding.digest
    assert again.columns == encoding.columns
    assert rows_of(again, case.arrays) == rows_of(encoding, case.arrays)


@every_case
def test_parts_that_loops_could_not_use_are_refused(case):
    record, arrays = case.learned(case.arrays).to_record()
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"hash_bits": 0}, {}),
        ({"hash_bits": 40}, {}),
        ({"columns": [{**record["columns"][0], "width": "1"}]}, {}),
        ({}, {"words": np.zeros(3)}),
        ({}, {"named": np.zeros((1, 1), np.int64)}),
        ({}, {"rarity x": np.zeros(1, np.float32)}),
    ]
    for values, others in changes:
        with pytest.raises((ValueError, LookupError)):
            Encoding.from_record({**record, **values}, {**arrays, **others})
