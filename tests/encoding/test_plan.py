"""Which columns become features, of which kind, which are left out and why; refusals and their remedies."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streampgs.base.errors import DataError, OptionError
from streampgs.encoding.plan import Plan, plan_columns
from streampgs.encoding.types import leaves_of
from streampgs.options.commands import EncodingOptions

EVERYTHING = {
    "label": pa.int8(),
    "age": pa.int32(),
    "price": pa.decimal128(8, 2),
    "member": pa.bool_(),
    "born": pa.date32(),
    "seen": pa.timestamp("ns", "UTC"),
    "name": pa.string(),
    "city": pa.dictionary(pa.int8(), pa.large_string()),
    "raw": pa.binary(),
    "four": pa.binary(4),
    "nothing": pa.null(),
    "tags": pa.list_(pa.string_view()),
    "counts": pa.map_(pa.string(), pa.int8()),
    "wide": pa.list_(pa.float16(), 3),
    "nested": pa.list_(pa.list_(pa.int8())),
    "vector": pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    ),
    "user": pa.struct(
        [("id", pa.int64()), ("home", pa.struct([("zip", pa.string()), ("spot", pa.list_(pa.float32()))]))]
    ),
    "months": pa.month_day_nano_interval(),
    "bits": pa.run_end_encoded(pa.int32(), pa.float32()),
}
SCHEMA = pa.schema(list(EVERYTHING.items()))
TAKEN = {"label": "label"}


def plan(schema: pa.Schema = SCHEMA, **options: object) -> Plan:
    return plan_columns(schema, EncodingOptions(**options), TAKEN, "part-0.parquet")


def kinds(found: Plan) -> dict[str, str]:
    return {column.name: column.kind for column in found.columns}


def test_every_type_has_a_kind_or_a_reason():
    found = plan()
    assert kinds(found) == {
        "age": "number",
        "price": "number",
        "member": "number",
        "born": "number",
        "seen": "number",
        "name": "category",
        "city": "category",
        "tags": "token list",
        "counts": "map",
        "wide": "list",
        "vector": "vector",
        "user.id": "number",
        "user.home.zip": "category",
        "user.home.spot": "list",
        "bits": "number",
    }
    assert found.left_out == {
        "label": "label",
        "raw": "of type binary: --text uses it as text",
        "four": "of type fixed_size_binary[4]",
        "nothing": "has only nulls",
        "nested": "of type list<item: list<item: int8>>",
        "months": "of type month_day_nano_interval",
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.map_(pa.int32(), pa.float32()), "vector"),
        (pa.map_(pa.int32(), pa.string()), None),
        (pa.map_(pa.large_string(), pa.bool_()), "map"),
        (pa.list_(pa.struct([("index", pa.int64()), ("value", pa.float32())])), "vector"),
        (pa.list_(pa.struct([("value", pa.float32()), ("index", pa.uint8())])), "vector"),
        (pa.large_list(pa.struct([("word", pa.string()), ("weight", pa.float32())])), "map"),
        (pa.list_(pa.struct([("a", pa.int8()), ("b", pa.int8()), ("c", pa.int8())])), None),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), "token list"),
        (pa.list_(pa.timestamp("s")), None),
        (pa.list_(pa.bool_()), "list"),
        (pa.struct([("indices", pa.list_(pa.int8())), ("values", pa.large_list(pa.int8()))]), "vector"),
        (pa.time64("ns"), "number"),
        (pa.duration("s"), "number"),
        (pa.dictionary(pa.int8(), pa.float32()), "number"),
        (pa.uuid(), None),
        (pa.json_(), "category"),
    ],
    ids=str,
)
def test_the_kind_of_a_type(kind, expected):
    schema = pa.schema([("x", kind), ("y", pa.int8())])
    assert kinds(plan(schema)).get("x") == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (dict(features="age"), {"age"}),
        (dict(features=("a*", "name")), {"age", "name"}),
        (dict(features="?a*e"), {"name"}),
        (dict(features="user"), {"user.id", "user.home.zip", "user.home.spot"}),
        (dict(features="user.*"), {"user.id", "user.home.zip", "user.home.spot"}),
        (dict(features="user.home"), {"user.home.zip", "user.home.spot"}),
        (dict(features="*.zip"), {"user.home.zip"}),
        (dict(features="age", category="user.id", text="raw"), {"age", "user.id", "raw"}),
        (dict(features="*", ignore="*[a-z]"), set()),
        (dict(features=("age", "user"), ignore="user.home"), {"age", "user.id"}),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, set) else str(value),  # sets have no fixed order
)
def test_patterns_name_columns_and_structs_with_all_fields(options, expected):
    if not expected:
        with pytest.raises(DataError, match=r"no column can be a feature"):
            plan(**options)
        return
    found = plan(**options)
    assert set(kinds(found)) == expected
    assert set(kinds(found)) | set(found.left_out) == {name for name, _ in leaves_of(SCHEMA)}
    assert set(found.left_out.values()) == {"label", "not in --features"}


def test_categories_texts_cycles_and_crosses():
    found = plan(
        category=("age", "member"), text=("name", "raw"), cyclic="born", cross=("age,city", ("city", "member"))
    )
    assert kinds(found)["age"] == kinds(found)["member"] == "category"
    assert kinds(found)["name"] == kinds(found)["raw"] == "text"
    assert [column.parts for column in found.columns if column.kind == "cross"] == [("age", "city"), ("city", "member")]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(features="agee"), DataError, r"part-0\.parquet.*--features agee matches none.*age.*\n.*\* and \?"),
        (dict(text="body"), DataError, r"--text body matches none of its columns"),
        (dict(ignore="nowhere"), DataError, r"--ignore nowhere matches none"),
        (dict(category="user.name"), DataError, r"--category user\.name matches none"),
        (dict(cyclic="x*"), DataError, r"--cyclic x\* matches none"),
        (dict(text="age"), OptionError, r"--text age: the column is of type int32\n.*strings"),
        (dict(text="nested"), OptionError, r"--text nested"),
        (dict(category="tags"), OptionError, r"--category tags: .*\n.*strings or numbers"),
        (
            dict(cyclic="age"),
            OptionError,
            r"--cyclic age: the column is of type int32\n.*dates, timestamps and times of day",
        ),
        (
            dict(cross="raw,city"),
            OptionError,
            r"--cross raw,city: column 'raw' is neither a category nor a number\n.*numbers",
        ),
        (dict(cross="city,aeg"), OptionError, r"--cross city,aeg: there is no column 'aeg'\n.*did you mean 'age'\?"),
        (dict(cross="city,nope"), OptionError, r"there is no column 'nope'\n  → The columns are label, age, .*city"),
        (dict(cross="city,name", text="name"), OptionError, r"column 'name' is neither a category nor a number"),
        (dict(cross="city,name", ignore="city"), OptionError, r"column 'city' is neither a category nor a number"),
        (dict(cross="city"), OptionError, r"--cross .*city.*\n.*two columns"),
        (dict(ignore="*"), DataError, r"no column can be a feature: .*age \(ignored\)(.|\n)*--features"),
    ],
    ids=str,
)
def test_refusals_name_a_remedy(options, error, message):
    with pytest.raises(error, match=message):
        plan(**options)


def test_two_columns_of_one_name_are_refused():
    """The name is ambiguous."""
    with pytest.raises(DataError, match=r"2 columns are called 'x'\n.*rename"):
        plan(pa.schema([("x", pa.int8()), ("y", pa.int8()), ("x", pa.string())]))
    nested = pa.schema([("a", pa.struct([("b", pa.int8())])), ("a.b", pa.int8()), ("y", pa.int8())])
    with pytest.raises(DataError, match=r"2 columns are called 'a\.b'"):
        plan(nested)
    assert kinds(plan(nested, ignore="a")) == {"y": "number"}
    with pytest.raises(DataError, match=r"2 columns are called 'label'"):
        plan(pa.schema([("label", pa.int8()), ("y", pa.int8()), ("label", pa.string())]))
