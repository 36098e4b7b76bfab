"""The columns of a table and their roles: which hold labels, weights, offsets and features."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import kind_of
from streampgs.encoding.labels import LabelSpec
from streampgs.encoding.plan import Plan, is_pandas_index, refuse_doubles
from streampgs.encoding.rows import FEATURES, INDICES
from streampgs.expressions.expression import Expression, check_condition, check_label
from streampgs.table.partitions import Constant, LogSchema, partitions_of, with_partitions

SPARSE: Final = "sparse"
DENSE: Final = "dense"


@dataclass(frozen=True)
class Columns:
    """The columns that a user chose, and what becomes of them."""

    label: str | tuple[str, ...] | None = "label"
    """Several: each has its own model."""
    weight: str | None = None
    label_specs: tuple[LabelSpec, ...] = ()
    """One for each label column; empty: the labels are not known yet, and are read as numbers."""
    encoding: Encoding | Plan | None = None
    """How columns become features: first a plan, then the learned encoding. None: rows hold lists of features."""
    offset: str | None = None
    """A number that is added to a row's score."""
    where: Expression | None = None
    """The condition of the rows; None: all rows."""
    computed: tuple[Expression, ...] = ()
    """The labels that are not columns of the table."""

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (*self.computed, *([] if self.where is None else [self.where]))

    @property
    def labels(self) -> tuple[str, ...]:
        if self.label is None:
            return ()
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def weighted(self) -> bool:
        return self.weight is not None or any(spec.weights for spec in self.label_specs)

    @property
    def specs(self) -> tuple[LabelSpec, ...]:
        return self.label_specs or (LabelSpec(),) * len(self.labels)

    @property
    def labelled(self) -> tuple[tuple[str, LabelSpec], ...]:
        return tuple(zip(self.labels, self.specs, strict=True))

    @property
    def class_count(self) -> int | None:
        """How many classes are known; None: they are not listed, or there are several label columns."""
        classes = self.specs[0].classes if len(self.labels) == 1 else None
        return None if classes is None else len(classes)

    @property
    def unlabelled(self) -> Columns:
        """For rows that are to be predicted: labels and weights are not read."""
        return replace(self, label=None, weight=None, label_specs=(), computed=())

    @property
    def needed(self) -> set[str]:
        """The table's columns that are read, besides those of features."""
        names = {name for _, name in self.roles} - {str(one) for one in self.computed}
        return names.union(*(one.columns for one in self.expressions))

    @property
    def roles(self) -> list[tuple[str, str]]:
        """(role, name) of each column that is not a feature; a label may be computed."""
        others = (("weight", self.weight), ("offset", self.offset))
        return [
            *(("label", name) for name in self.labels),
            *((role, name) for role, name in others if name is not None),
        ]


@dataclass(frozen=True)
class Layout:
    """How the columns of a shard hold its rows. Shards fit together if their layouts do; widths of numbers may differ."""

    kind: Literal["sparse", "dense"]
    columns: tuple[str, ...]
    """The file's columns that are read: label, weight and offset first."""
    width: int | None = None
    """Features of a dense row, if the schema fixes it."""
    encoding: str | None = None
    """The digest of the encoding; None: rows hold lists of features."""
    partitions: tuple[Constant, ...] = ()
    """Columns that the file does not have."""
    classes: int | None = None
    """How many classes were known when the shard joined; None: classes are not listed."""
    where: str | None = None
    """The condition of its rows."""
    computed: tuple[str, ...] = ()
    """The labels that are expressions."""

    @property
    def lists(self) -> str:
        """The column whose lists are the rows' features."""
        return INDICES if self.kind == SPARSE else FEATURES


def find_layout(schema: pa.Schema, columns: Columns, shard: str, log: LogSchema | None = None) -> Layout:
    if columns.encoding is not None:
        found = _encoded_layout(schema, columns, columns.encoding, shard, log)
    else:
        found = _ready_layout(schema, columns, shard)
    where, computed = columns.where, tuple(map(str, columns.computed))
    return replace(
        found, classes=columns.class_count, where=None if where is None else str(where), computed=computed
    )  # fmt: skip


def _with_computed(leaves: dict[str, pa.DataType], columns: Columns, shard: str) -> dict[str, pa.DataType]:
    """The columns that labels and features come from. Expressions are checked."""
    try:
        for one in columns.computed:
            check_label(one, leaves)
        if columns.where is not None:
            check_condition(columns.where, leaves)
    except OptionError as error:
        raise DataError(f"shard '{shard}': {error.found}", error.remedy) from error
    return {**leaves, **{str(one): one.type_of(leaves) for one in columns.computed}}


def _ready_layout(schema: pa.Schema, columns: Columns, shard: str) -> Layout:
    """The layout of a table that holds lists of features."""
    partitions = tuple(one for one in partitions_of(shard, schema) if one.name in columns.needed)
    leaves = _with_computed(dict(types.leaves_of(with_partitions(schema, partitions))), columns, shard)
    computed = set(map(str, columns.computed))
    for role, name in columns.roles:
        if name not in computed and schema.names.count(name) != 1:
            raise NoColumn(role, name, schema.names, shard)
        kind = leaves[name] if name in computed else schema.field(name).type
        if not (_is_number(kind) or pa.types.is_boolean(kind)):
            raise DataError(
                f"shard '{shard}': {role} column '{name}' is of type {kind}", "it must hold numbers or booleans"
            )
    refuse_doubles(schema, _LISTS, shard)
    sparse = "indices" in schema.names
    lists = [name for name in (("indices", "values") if sparse else ("features",)) if name in schema.names]
    if not lists:
        raise DataError(
            f"shard '{shard}': no features among its columns ({', '.join(schema.names)})",
            "a table needs 'indices' (and 'values') for sparse rows, or 'features' for dense ones",
        )
    for name in lists:
        allowed, remedy = _LISTS[name]
        if not allowed(schema.field(name).type):
            raise DataError(f"shard '{shard}': column '{name}' is of type {schema.field(name).type}", remedy)
    roles = [name for _, name in columns.roles if name not in computed]
    more = [name for name in schema.names if is_needed(name, columns.needed) and name not in (*roles, *lists)]
    used = (*roles, *more, *lists)
    if sparse:
        return Layout(SPARSE, used, partitions=partitions)
    kind = schema.field("features").type
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    return Layout(DENSE, used, width=width, partitions=partitions)


def holds_features(schema: pa.Schema) -> bool:
    """Whether a table holds lists of features: `indices` and perhaps `values`, or `features`."""
    name = "indices" if "indices" in schema.names else "features"
    return name in schema.names and _LISTS[name][0](schema.field(name).type)


def holds_only_features(schema: pa.Schema, taken: Collection[str]) -> bool:
    """Whether all columns are lists of features or have another role."""
    others = set(schema.names) - set(taken) - {name for name in schema.names if is_pandas_index(name)}
    return holds_features(schema) and others <= ({"indices", "values"} if "indices" in schema.names else {"features"})


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_list_of_integers(kind: pa.DataType) -> bool:
    return _is_list_of_numbers(kind) and bool(pa.types.is_integer(kind.value_type))


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_number(kind.value_type)


def _is_vector(kind: pa.DataType) -> bool:
    return _is_list_of_numbers(kind) or (pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type))


_LISTS = {
    "indices": (_is_list_of_integers, "it must be a list of integers: the numbers of a row's features"),
    "values": (_is_list_of_numbers, "it must be a list of floats or integers, as long as 'indices'"),
    "features": (_is_vector, "it must be a list of floats or integers"),
}


def _encoded_layout(
    schema: pa.Schema, columns: Columns, encoding: Encoding | Plan, shard: str, log: LogSchema | None
) -> Layout:
    """The layout of a table whose columns are encoded. A column that it lacks is read as null; the others must have the
    expected type."""
    partitions = partitions_of(shard, schema) if log is None else log.lacking(schema)
    leaves = _with_computed(dict(types.leaves_of(with_partitions(schema, partitions))), columns, shard)
    for role, name in columns.roles:
        _check_role(role, name, leaves, shard)
    for name, spec in zip(columns.labels, columns.label_specs, strict=False) if isinstance(encoding, Encoding) else ():
        _check_label_kind(name, leaves[name], spec.textual, shard)
    needed = columns.needed
    for column in encoding.all_columns if isinstance(encoding, Encoding) else encoding.columns:
        for name in column.sources:
            if name not in leaves:
                continue
            found = types.class_of(leaves[name])
            if not kind_of(column).fits(column, found):
                raise _other_type(shard, name, leaves[name], column.holds)
            needed.add(name)
    refuse_doubles(schema, needed & leaves.keys(), shard)
    partitions = tuple(constant for constant in partitions if constant.name in needed)
    tops = tuple(field.name for field in schema if is_needed(field.name, needed))
    tops = tops or tuple(schema.names[:1])  # some column is needed to count the rows
    if isinstance(encoding, Plan):
        return Layout(SPARSE, tops, partitions=partitions)
    if encoding.dense:
        return Layout(DENSE, tops, width=encoding.features, encoding=encoding.digest, partitions=partitions)
    return Layout(SPARSE, tops, encoding=encoding.digest, partitions=partitions)


class OtherType(DataError):
    """A column that is of another type than expected."""

    def __init__(self, shard: str, name: str, kind: pa.DataType, expected: str, remedy: str, role: str = "") -> None:
        super().__init__(f"shard '{shard}': {role}column '{name}' is of type {kind}; a {expected} is expected", remedy)
        self.column = name
        self.expected = expected


def _other_type(shard: str, name: str, kind: pa.DataType, expected: str) -> OtherType:
    remedy = "write it with the type of the training data"
    if {types.class_of(kind), expected} == {types.TIME, types.ZONED}:
        remedy = "give the times of all shards a time zone, or none"
    return OtherType(shard, name, kind, expected, f"{remedy}, or train without it (`--ignore {name}`)")


def refuse_missing(schemas: Mapping[str, pa.Schema], columns: Columns) -> None:
    """Refuse shards (schemas by name) that all lack a column which features come from."""
    if columns.encoding is None:
        return
    leaves: dict[str, None] = {}
    for schema in dict.fromkeys(schemas.values()):
        leaves |= dict.fromkeys(name for name, _ in types.leaves_of(schema))
    encoding = columns.encoding
    first = encoding.generations[-1] if isinstance(encoding, Encoding) else encoding  # later columns may be missing
    missing = [name for column in first.columns for name in column.sources if name not in leaves]
    if missing:
        where = f"shard '{next(iter(schemas))}'" if len(schemas) == 1 else f"{len(schemas)} shards"
        raise DataError(
            f"{where}: no column '{missing[0]}' among the columns ({', '.join(leaves)})",
            f"features of the model come from it: add it to the table, or train a new model without it (`--ignore "
            f"{missing[0]}`)",
        )


def is_needed(column: str, names: set[str]) -> bool:
    return column in names or any(name.startswith(column + ".") for name in names)


class NoColumn(DataError):
    """A table without the column of a role."""

    def __init__(self, role: str, name: str, names: Iterable[str], shard: str) -> None:
        super().__init__(
            f"shard '{shard}': no {role} column '{name}' among its columns ({', '.join(names)})",
            f"name it with `--{role} COLUMN`; a trained model needs the column that it was trained with",
        )
        self.role = role
        self.name = name


def _check_role(role: str, name: str, leaves: dict[str, pa.DataType], shard: str) -> None:
    if name not in leaves:
        raise NoColumn(role, name, leaves, shard)
    allowed = (types.NUMBER, types.STRING, types.NULL) if role == "label" else (types.NUMBER, types.NULL)
    if types.class_of(leaves[name]) not in allowed:
        raise DataError(
            f"shard '{shard}': {role} column '{name}' is of type {leaves[name]}",
            "it must hold numbers, booleans or strings" if role == "label" else "it must hold numbers",
        )


def _check_label_kind(name: str, kind: pa.DataType, textual: bool, shard: str) -> None:
    held, expected = types.class_of(kind), types.STRING if textual else types.NUMBER
    if held not in (expected, types.NULL):
        remedy = "write it with the type of the shards that the model was trained on"
        raise OtherType(shard, name, kind, expected, remedy, "label ")
