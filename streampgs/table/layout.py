"""From columns to rows of numbers: which columns hold label, weight and features, and their arrays as numpy.

The one place that knows what a row is made of; encoders of other kinds of tables join here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.encoder import FAULTS, FEATURES, INDICES, OFFSET, VALUES, WEIGHT, label_name
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import kind_of
from streampgs.encoding.kinds.kind import LENGTHS_DIFFER, WIDTH_DIFFERS
from streampgs.encoding.labels import LABEL_NOT_FINITE, LABEL_NULL, LABEL_TOO_LOW, LabelSpec
from streampgs.encoding.plan import Plan, refuse_doubles
from streampgs.errors import DataError
from streampgs.table.partitions import Constant, LogSchema, partitions_of, with_partitions

SPARSE, DENSE = "sparse", "dense"

# Why a row cannot be used, in addition to the reasons of kernels.placing_loop and of labels; 0 is a good row.
WEIGHT_BAD = 19
FEATURES_NULL = 20
OFFSET_BAD = 24


@dataclass(frozen=True)
class Columns:
    """The names that a user chose."""

    label: str | tuple[str, ...] | None = "label"
    """Several: each is learnt by a model of its own."""
    weight: str | None = None
    label_specs: tuple[LabelSpec, ...] = ()
    """One for each label column; empty: the default for all."""
    encoding: Encoding | Plan | None = None
    """How columns become features, where they are not lists of features already; before anything is learnt: a plan."""
    offset: str | None = None
    """A number that is added to a row's score."""

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
        """How many classes are known; None where the labels are not listed, or with several label columns."""
        classes = self.specs[0].classes if len(self.labels) == 1 else None
        return None if classes is None else len(classes)

    @property
    def roles(self) -> list[tuple[str, str]]:
        """(role, name) of each column that is not a feature."""
        others = (("weight", self.weight), ("offset", self.offset))
        return [
            *(("label", name) for name in self.labels),
            *((role, name) for role, name in others if name is not None),
        ]

    @property
    def of_rows(self) -> Columns:
        """The same for rows as they are read: an encoder gives columns names of its own."""
        if self.encoding is None:
            return self
        labels = tuple(label_name(number) for number in range(len(self.labels)))
        weight, offset = (None if self.weight is None else WEIGHT), (None if self.offset is None else OFFSET)
        return replace(self, label=labels or None, weight=weight, offset=offset)


@dataclass(frozen=True)
class Layout:
    """How a shard's columns hold rows. Two shards fit together if their layouts do, whatever their number types."""

    kind: str
    columns: tuple[str, ...]
    """All that are read: label, weight and offset first."""
    has_values: bool = True
    width: int | None = None
    """Features of a dense row, where the schema fixes it."""
    encoding: str | None = None
    """The digest of what makes features of the columns, where they are not lists of features already."""
    partitions: tuple[Constant, ...] = ()
    """Columns that the names of the shard's folders tell, or the log of its table."""
    classes: int | None = None
    """How many of the classes were known when the shard came; None: there are none to be known."""

    @property
    def lists(self) -> str:
        """The column whose lists are the rows' features."""
        return INDICES if self.kind == SPARSE else FEATURES

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(record: dict[str, Any]) -> Layout:
        partitions = tuple(Constant(*constant) for constant in record["partitions"])
        return Layout(**{**record, "columns": tuple(record["columns"]), "partitions": partitions})


def find_layout(schema: pa.Schema, columns: Columns, shard: str, log: LogSchema | None = None) -> Layout:
    if columns.encoding is not None:
        found = _encoded_layout(schema, columns, columns.encoding, shard, log)
    else:
        found = _ready_layout(schema, columns, shard)
    return replace(found, classes=columns.class_count)


def _ready_layout(schema: pa.Schema, columns: Columns, shard: str) -> Layout:
    """The layout of a table that has its features in lists."""
    names = schema.names
    used = []
    for role, name in columns.roles:
        if names.count(name) != 1:
            raise DataError(
                f"shard '{shard}': no {role} column '{name}' among its columns ({', '.join(names)})",
                f"name it with --{role} COLUMN",
            )
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise DataError(
                f"shard '{shard}': {role} column '{name}' is of type {kind}",
                "it must hold numbers or booleans",
            )
        used.append(name)
    for name in ("indices", "values", "features"):
        if names.count(name) > 1:
            raise DataError(f"shard '{shard}': {names.count(name)} columns are called '{name}'", "rename all but one")
    if "indices" in names:
        if not _is_list_of(schema.field("indices").type, pa.types.is_integer):
            raise DataError(
                f"shard '{shard}': column 'indices' is of type {schema.field('indices').type}",
                "it must be a list of integers: the numbers of a row's features",
            )
        has_values = "values" in names
        if has_values and not _is_list_of(schema.field("values").type, _is_number):
            raise DataError(
                f"shard '{shard}': column 'values' is of type {schema.field('values').type}",
                "it must be a list of floats or integers, as long as 'indices'",
            )
        return Layout(SPARSE, (*used, "indices", *(["values"] if has_values else [])), has_values)
    if "features" in names:
        kind = schema.field("features").type
        fixed = pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type)
        if not fixed and not _is_list_of(kind, _is_number):
            raise DataError(
                f"shard '{shard}': column 'features' is of type {kind}",
                "it must be a list of floats or integers",
            )
        return Layout(DENSE, (*used, "features"), width=kind.list_size if fixed else None)
    raise DataError(
        f"shard '{shard}': no features among its columns ({', '.join(names)})",
        "a table needs 'indices' (and 'values') for sparse rows, or 'features' for dense ones",
    )


def holds_features(schema: pa.Schema) -> bool:
    """Whether a table has its features ready: lists of indices and values, or of features."""
    if "indices" in schema.names:
        return _is_list_of(schema.field("indices").type, pa.types.is_integer)
    return "features" in schema.names and bool(
        _is_list_of(schema.field("features").type, _is_number)
        or (
            pa.types.is_fixed_size_list(schema.field("features").type)
            and _is_number(schema.field("features").type.value_type)
        )
    )


def _encoded_layout(
    schema: pa.Schema, columns: Columns, encoding: Encoding | Plan, shard: str, log: LogSchema | None
) -> Layout:
    """The layout of a table whose columns are to be encoded. One that it lacks is read as if it were all null; what it
    has must be of the expected sort."""
    partitions = partitions_of(shard, schema) if log is None else log.lacking(schema)
    leaves = dict(types.leaves_of(with_partitions(schema, partitions)))
    for role, name in columns.roles:
        _check_role(role, name, leaves, shard)
    for name, spec in zip(columns.labels, columns.specs, strict=True) if isinstance(encoding, Encoding) else ():
        _check_label_kind(name, leaves[name], spec.textual, shard)
    needed = {name for _, name in columns.roles}
    for column in encoding.all_columns if isinstance(encoding, Encoding) else encoding.columns:
        for name in column.sources:
            if name not in leaves:
                continue
            found = types.class_of(leaves[name])
            if not kind_of(column).fits(column, found):
                raise DataError(
                    f"shard '{shard}': column '{name}' is of type {leaves[name]}; a {column.holds} is expected",
                    f"write it as in the data that were trained on, or train without it (train --ignore {name})",
                )
            needed.add(name)
    refuse_doubles(schema, needed & leaves.keys(), shard)
    partitions = tuple(constant for constant in partitions if constant.name in needed)
    tops = tuple(field.name for field in schema if _is_needed(field.name, needed))
    tops = tops or tuple(schema.names[:1])  # how many rows there are is told by columns alone
    if isinstance(encoding, Plan):
        return Layout(SPARSE, tops, partitions=partitions)
    kind, width = (DENSE, encoding.features) if encoding.dense else (SPARSE, None)
    return Layout(kind, tops, width=width, encoding=encoding.digest, partitions=partitions)


def refuse_missing(schemas: Mapping[str, pa.Schema], columns: Columns) -> None:
    """Of the shards by name: a single one may lack a column that features come from, but not all of them."""
    if columns.encoding is None:
        return
    leaves: dict[str, None] = {}
    for schema in dict.fromkeys(schemas.values()):
        leaves |= dict.fromkeys(name for name, _ in types.leaves_of(schema))
    encoding = columns.encoding
    first = encoding.generations[-1] if isinstance(encoding, Encoding) else encoding  # what came later may be missing
    missing = [name for column in first.columns for name in column.sources if name not in leaves]
    if missing:
        where = f"shard '{next(iter(schemas))}'" if len(schemas) == 1 else f"{len(schemas)} shards"
        raise DataError(
            f"{where}: no column '{missing[0]}' among the columns ({', '.join(leaves)})",
            "the model's features come from it: add it to the table, or train anew without it (train --ignore "
            f"{missing[0]})",
        )


def _is_needed(column: str, names: set[str]) -> bool:
    return column in names or any(name.startswith(column + ".") for name in names)


def _check_role(role: str, name: str, leaves: dict[str, pa.DataType], shard: str) -> None:
    if name not in leaves:
        raise DataError(
            f"shard '{shard}': no {role} column '{name}' among its columns ({', '.join(leaves)})",
            f"name it with --{role} COLUMN",
        )
    allowed = (types.NUMBER, types.STRING, types.NULL) if role == "label" else (types.NUMBER, types.NULL)
    if types.class_of(leaves[name]) not in allowed:
        raise DataError(
            f"shard '{shard}': {role} column '{name}' is of type {leaves[name]}",
            "it must hold numbers, booleans or strings" if role == "label" else "it must hold numbers",
        )


def _check_label_kind(name: str, kind: pa.DataType, textual: bool, shard: str) -> None:
    held, expected = types.class_of(kind), types.STRING if textual else types.NUMBER
    if held not in (expected, types.NULL):
        raise DataError(
            f"shard '{shard}': label column '{name}' is of type {kind}; {expected}s are expected",
            "write it as in the shards that the model was trained on",
        )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_list_of(kind: pa.DataType, of: Any) -> bool:
    return bool((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and of(kind.value_type))


@dataclass
class RowArrays:
    """Some consecutive rows as numpy arrays."""

    reasons: NDArray[np.uint8]
    """Why a row cannot be used, as far as can be told without looking at its features; 0: no reason yet."""
    labels: NDArray[np.float64] | None
    """Of two classes: -1 or +1; of more: the class's number. A column for each label where there are several."""
    raw_labels: NDArray[np.float64] | None
    """As the table has them."""
    weights: NDArray[np.float64] | None
    score_offsets: NDArray[np.float64] | None
    offsets: NDArray[np.int64]
    """Row r has entries [offsets[r], offsets[r+1])."""
    indices: NDArray[Any]
    values: NDArray[Any]
    """Empty: all ones."""

    def __len__(self) -> int:
        return len(self.reasons)


_NO_INDICES = np.empty(0, np.int32)
_ONES = np.empty(0, np.float32)


def rows_of(
    arrays: dict[str, pa.Array],
    layout: Layout,
    columns: Columns,
    classifies: bool,
    width: int | None,
    sparse: bool = False,
) -> RowArrays:
    """The rows that the columns' arrays hold. `width` is what every dense row must have; `sparse`: with indices, even
    where they go without saying."""
    count = len(next(iter(arrays.values())))
    reasons = np.zeros(count, np.uint8)
    if FAULTS in arrays and layout.encoding is not None:
        reasons[:] = arrays[FAULTS].to_numpy(zero_copy_only=False)
    if layout.kind == SPARSE:
        offsets, indices, values = _sparse_rows(arrays[INDICES], arrays.get(VALUES), reasons)
    else:
        offsets, values = _dense_rows(arrays[FEATURES], width, reasons)
        indices = np.tile(np.arange(width, dtype=np.int32), count) if sparse and width is not None else _NO_INDICES
    weights = None
    if columns.weight is not None and columns.weight in arrays:
        weights = _float64(arrays[columns.weight])
        reasons[~(np.isfinite(weights) & (weights >= 0.0))] = WEIGHT_BAD
    score_offsets = None
    if columns.offset is not None and columns.offset in arrays:
        score_offsets = _float64(arrays[columns.offset])
        reasons[~np.isfinite(score_offsets)] = OFFSET_BAD
    labels = raw_labels = None
    if columns.labels and columns.labels[0] in arrays:
        raw = [_float64(arrays[name]) for name in columns.labels]
        meant = [
            _labels(arrays[name], as_read, spec, classifies, layout.classes, reasons)
            for name, as_read, spec in zip(columns.labels, raw, columns.specs, strict=True)
        ]
        raw_labels, labels = _side_by_side(raw), _side_by_side(meant)
        if columns.specs[0].weights and classifies:
            factors = columns.specs[0].factors(labels)
            weights = factors if weights is None else weights * factors
    return RowArrays(reasons, labels, raw_labels, weights, score_offsets, offsets, indices, values)


def _labels(
    array: pa.Array,
    codes: NDArray[np.float64],
    spec: LabelSpec,
    classifies: bool,
    known_classes: int | None,
    reasons: NDArray[np.uint8],
) -> NDArray[np.float64]:
    finite = np.isfinite(codes)
    reasons[~finite] = LABEL_NOT_FINITE
    if array.null_count:
        reasons[array.is_null().to_numpy(zero_copy_only=False)] = LABEL_NULL
    if not classifies:
        reasons[finite & (codes < spec.lowest)] = LABEL_TOO_LOW
        return codes
    targets, unknown, reason = spec.targets(codes, known_classes)
    reasons[finite & unknown] = reason
    return targets


def _side_by_side(columns: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _float64(array: pa.Array) -> NDArray[np.float64]:
    """Nulls become NaN, whatever the type of number."""
    if array.null_count or pa.types.is_boolean(array.type):
        array = pc.fill_null(array.cast(pa.float64(), safe=False), np.nan)
    return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)


def _entries(child: pa.Array, whole: bool) -> NDArray[Any]:
    """A list's child as numbers of one of the few types that loops are compiled for; null becomes -1 or NaN, which
    the loops refuse."""
    if child.null_count:
        child = pc.fill_null(child.cast(pa.int64() if whole else pa.float64(), safe=False), -1 if whole else np.nan)
    entries: NDArray[Any] = child.to_numpy(zero_copy_only=False)
    if whole:
        return entries if entries.dtype in (np.int32, np.int64) else entries.astype(np.int64)
    if entries.dtype in (np.float32, np.float64):
        return entries
    return entries.astype(np.float32 if entries.dtype == np.float16 else np.float64)


def _offsets(lists: pa.Array) -> NDArray[np.int64]:
    return np.asarray(lists.offsets.to_numpy(), np.int64)


def _mark_nulls(lists: pa.Array, reasons: NDArray[np.uint8]) -> None:
    if lists.null_count:
        reasons[lists.is_null().to_numpy(zero_copy_only=False)] = FEATURES_NULL


def _sparse_rows(
    index_lists: pa.Array, value_lists: pa.Array | None, reasons: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    _mark_nulls(index_lists, reasons)
    offsets = _offsets(index_lists)
    indices = _entries(index_lists.values, whole=True)
    if value_lists is None:
        return offsets, indices, _ONES
    _mark_nulls(value_lists, reasons)
    value_offsets = _offsets(value_lists)
    values = _entries(value_lists.values, whole=False)
    if not np.array_equal(offsets, value_offsets):
        lengths = np.diff(offsets)
        differ = np.diff(value_offsets) != lengths
        reasons[differ & (reasons == 0)] = LENGTHS_DIFFER
        # Each value to the place of its index; rows whose lengths differ get zeros, and are not used.
        source = np.repeat(value_offsets[:-1] - offsets[:-1], lengths) + np.arange(offsets[0], offsets[-1])
        source[np.repeat(differ, lengths)] = -1
        aligned = np.zeros(offsets[-1], values.dtype)
        aligned[offsets[0] :] = np.where(source >= 0, values[np.maximum(source, 0)], 0) if values.size else 0
        values = aligned
    elif not values.size:
        values = np.empty(1, np.float32)  # rows without entries, not rows of ones
    return offsets, indices, values


def _dense_rows(
    lists: pa.Array, width: int | None, reasons: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    _mark_nulls(lists, reasons)
    if pa.types.is_fixed_size_list(lists.type):
        own = lists.type.list_size
        offsets = (lists.offset + np.arange(len(lists) + 1, dtype=np.int64)) * own
    else:
        offsets = _offsets(lists)
    values = _entries(lists.values, whole=False)
    if width is None:
        return offsets, values
    differ = np.diff(offsets) != width
    if not differ.any():
        return np.arange(len(lists) + 1, dtype=np.int64) * width, values[offsets[0] : offsets[-1]]
    reasons[differ & (reasons == 0)] = WIDTH_DIFFERS
    padded = np.zeros((len(lists), width), values.dtype)
    for r in np.flatnonzero(~differ):
        padded[r] = values[offsets[r] : offsets[r + 1]]
    return np.arange(len(lists) + 1, dtype=np.int64) * width, padded.ravel()
