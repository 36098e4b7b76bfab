"""Open a table for training: find its columns, decide its classes, learn its encoding from a sample of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from streampgs.base.errors import DataError
from streampgs.data.label_column import count_labels, first_place
from streampgs.data.sampling import encoded_rows, sampled_rows, some_of
from streampgs.data.selecting import (
    NOT_A_FEATURE,
    computed_labels,
    condition_of,
    notes_of_expressions,
    with_label_expressions,
    with_selected_rows,
)
from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import kind_of
from streampgs.encoding.kinds.category import Category
from streampgs.encoding.kinds.kind import Arrays, Column
from streampgs.encoding.kinds.list import List
from streampgs.encoding.label_choices import extend_labels, learn_labels
from streampgs.encoding.labels import label_specs
from streampgs.encoding.leaks import leak_notes
from streampgs.encoding.learning import changed_shares, grown, learn, null_shares, text_of_nulls, with_values
from streampgs.encoding.plan import (
    ONE_VALUE,
    Plan,
    is_pandas_index,
    is_wanted,
    plan_columns,
    plan_growth,
    refuse_doubles,
    refuse_empty,
)
from streampgs.formats.format import ShardPath
from streampgs.formats.registry import schema_of
from streampgs.kernels.rows import Rows
from streampgs.options.commands import EncodingOptions, ModelOptions
from streampgs.table.catalog import Catalog, Shard, Surveyed, catalog_of, located_shards, survey, whole_shards
from streampgs.table.layout import Columns, OtherType, find_layout, holds_only_features
from streampgs.table.locate import Located
from streampgs.table.partitions import LogSchema, partitions_of, with_partitions

_SAMPLE_BYTES, _GLANCE_BYTES = 32 << 20, 4 << 20
_MOST_ENTRIES = 1 << 21
"""Of rows that encodings are compared by."""


@dataclass(frozen=True)
class SampleOfTable:
    """Rows of a table, from which encodings are learned and compared."""

    batches: Sequence[Arrays]
    options: ModelOptions
    planned: Callable[[EncodingOptions], Plan]

    def learned(self, options: EncodingOptions) -> Encoding:
        return learn(with_values(self.planned(options), self.batches), options, self.batches)

    def rows(self, encoding: Encoding, most: int) -> tuple[Rows, list[Arrays]]:
        """About so many of the rows, as the encoding has those that can be used, and as they were read."""
        some = some_of(self.batches, min(most, int(_MOST_ENTRIES / encoding.entries_per_row)))
        return encoded_rows(some, columns_of(self.options, encoding), self.options.classifies, encoding), some


Choose = Callable[[EncodingOptions, ModelOptions, SampleOfTable, Encoding], tuple[Encoding, list[str]]]
"""From the user's options and their encoding, with curves if they leave them open: the encoding to use, and notes."""


@dataclass(kw_only=True)
class _Learned:
    """Facts learned from a sample of rows."""

    options: ModelOptions
    """The user's choices, completed by the classes in the sample."""
    encoding: Encoding | None = None
    """None: rows hold lists of features."""
    decoder_bytes: int = 0
    """The most memory that decoding a sampled group took; 0: not measured."""
    notes: list[str] = field(default_factory=list)


@dataclass
class OpenTable(_Learned):
    """A table that is ready for training."""

    catalog: Catalog
    located: Located


@dataclass
class GrownTable(_Learned):
    """New shards of a table in training."""

    shards: list[Shard]
    ignored: dict[str, str] = field(default_factory=dict)
    """Columns that are not used, with the reason."""
    missing: list[str] = field(default_factory=list)
    """Columns of the run that the shards lack."""
    joined: list[str] = field(default_factory=list)
    """Columns that the run has used since."""
    null_shares: dict[str, float] = field(default_factory=dict)
    """The shares of nulls in the columns of the run, in a sample of the rows."""
    changed_nulls: dict[str, float] = field(default_factory=dict)
    """The shares that are far from those in the sample that the column was learned from."""


def columns_of(options: ModelOptions, encoding: Encoding | Plan | None) -> Columns:
    """The columns that a model's rows are read from."""
    if not options.labels:
        return Columns(None, encoding=encoding, where=condition_of(options))
    return Columns(
        options.label, options.weight, label_specs(options), encoding, options.offset, condition_of(options),
        computed_labels(options),
    )  # fmt: skip


def open_table(
    sources: Sequence[str],
    options: ModelOptions,
    encoding_options: EncodingOptions,
    judging: bool = True,
    growing: bool = False,
    choose: Choose | None = None,
) -> OpenTable:
    """`judging`: read the labels, and refuse those that do not fit the loss; `growing`: leave out shards that are still
    being written; `choose`: decides whether numbers have curves, if the options leave it open."""
    located = located_shards(sources)
    if growing:
        located.paths = whole_shards(located.paths)
    first = located.paths[0]
    schema = located.logs[first].schema if first in located.logs else schema_of(first)
    options = with_label_expressions(options, _named(schema, str(first)))
    wanted = _wanted(schema, str(first), options, encoding_options)
    if wanted is None:
        return _open_ready(located, sources, options, judging)
    choose = choose if options.solver == "pgs" and options.l1 is None and options.kernel is None else None
    with_curves = choose is not None and wanted.numbers == "auto"
    wanted = replace(wanted, numbers="curves") if with_curves else wanted
    surveyed = with_selected_rows(survey(located.paths, None, located.logs), condition_of(options))
    plan = _plan_of_table(surveyed, options, wanted)
    refuse_empty(plan, f"shard '{surveyed[0].shard.path}'")
    _refuse_truth_values_and_numbers(surveyed, plan)
    catalog = catalog_of(_shards(surveyed, columns_of(options, plan)), sources)
    notes = [*notes_of_expressions(options), *_notes_of_folders(surveyed, plan)]
    if judging:
        options, more = learn_labels(options, count_labels(options, catalog, columns_of(options, plan)))
        notes += more
    most_bytes = _GLANCE_BYTES if _may_be_ready(plan, encoding_options, options) else _SAMPLE_BYTES
    sample = sampled_rows(catalog, columns_of(options, plan), options.seed, most_bytes)
    encoding = _learned(plan, wanted, options, sample.batches, notes)
    if judging and encoding is not None:
        notes += leak_notes(encoding.columns, columns_of(options, None).labelled, options.classifies, sample.batches)
    if encoding is not None and choose is not None:
        rows = SampleOfTable(sample.batches, options, partial(_plan_of_table, surveyed, options))
        encoding, of_choices = choose(encoding_options, options, rows, encoding)
        notes += of_choices
    decoder_bytes = sample.decoder_bytes
    del sample
    pa.default_memory_pool().release_unused()
    if encoding is None:
        ready = _open_ready(located, sources, options, judging=False)
        return replace(ready, notes=notes)
    columns = columns_of(options, encoding)
    if not judging:  # the type of the labels is not known
        columns = replace(columns, label_specs=())
    catalog = catalog_of(_shards(surveyed, columns), sources)
    return OpenTable(catalog, located, options=options, encoding=encoding, decoder_bytes=decoder_bytes, notes=notes)


def _open_ready(located: Located, sources: Sequence[str], options: ModelOptions, judging: bool) -> OpenTable:
    """Open a table whose rows are lists of features."""
    surveyed = with_selected_rows(survey(located.paths, columns_of(options, None), located.logs), condition_of(options))
    catalog = catalog_of([one.shard for one in surveyed], sources)
    notes = _notes_of_unused(surveyed)
    if judging:
        options, of_labels = learn_labels(options, count_labels(options, catalog, columns_of(options, None)))
        notes += of_labels
        catalog = catalog_of(_with_classes(catalog.shards, options), sources)
    return OpenTable(catalog, located, options=options, notes=notes)


def grown_table(
    paths: Sequence[ShardPath], logs: Mapping[ShardPath, LogSchema], options: ModelOptions, encoding: Encoding | None
) -> GrownTable:
    """Open new shards; their new columns get features after the known ones, their new classes numbers."""
    if encoding is None:
        found = with_selected_rows(survey(paths, columns_of(options, None), logs), condition_of(options))
        shards = [one.shard for one in found]
        if not sum(shard.rows for shard in shards):
            return GrownTable(shards, options=options)
        options, notes = _with_new_labels(options, Catalog(shards), columns_of(options, None))
        notes += _notes_of_unused(found)
        return GrownTable(_with_classes(shards, options), options=options, notes=notes)
    surveyed = with_selected_rows(survey(paths, None, logs), condition_of(options))
    shards = _shards(surveyed, columns_of(options, encoding))  # refuses columns whose type has changed
    if not sum(shard.rows for shard in shards):
        return GrownTable(shards, options=options, encoding=encoding)
    schema = _all_columns(surveyed)
    plan = plan_growth(schema, encoding, _taken(options))
    whole = Plan((*encoding.all_columns, *plan.columns), {})
    catalog = Catalog(_shards(surveyed, columns_of(options, whole)))
    options, notes = _with_new_labels(options, catalog, columns_of(options, whole))
    most_bytes = _SAMPLE_BYTES if plan.columns else _GLANCE_BYTES
    sample = sampled_rows(catalog, columns_of(options, whole), options.seed, most_bytes)
    shares = null_shares(encoding.all_columns, sample.batches)
    more, left_out = grown(encoding, plan, sample.batches)
    missing = _missing(encoding, schema)
    notes += _notes_of_growth(encoding, more, left_out, missing)
    if more is not encoding:
        notes += hints(more.columns, sample.batches)
    usual = encoding.all_null_shares
    changed = changed_shares(usual, shares, sample.rows, missing)
    notes += text_of_nulls(usual, changed)
    decoder_bytes = sample.decoder_bytes if plan.columns else 0
    del sample
    pa.default_memory_pool().release_unused()
    shards = _shards(surveyed, columns_of(options, more))
    new = [] if more is encoding else [column.name for column in more.columns]
    return GrownTable(
        shards, left_out, missing, new, shares, changed, options=options, encoding=more, decoder_bytes=decoder_bytes,
        notes=notes,
    )  # fmt: skip


# Columns.


def _plan_of_table(surveyed: Sequence[Surveyed], options: ModelOptions, wanted: EncodingOptions) -> Plan:
    plan = plan_columns(_all_columns(surveyed), wanted, _taken(options), str(surveyed[0].shard.path))
    alike = [name for name in _of_one_value(surveyed) if not is_wanted(name, wanted)]
    return plan.without({column.name: ONE_VALUE for column in plan.columns if column.name in alike})


def _wanted(
    schema: pa.Schema, shard: str, options: ModelOptions, encoding_options: EncodingOptions
) -> EncodingOptions | None:
    """The options of the encoding; None if the first shard's schema has lists of features that can be read as they are."""
    taken = _taken(options)
    refuse_doubles(schema, taken, shard)
    ready = holds_only_features(schema, taken)
    texts = ready and _has_textual_labels(schema, shard, options)
    dense = ready and "indices" not in schema.names
    if ready and not (encoding_options.given or texts or (dense and encoding_options.standardize == "auto")):
        find_layout(schema, columns_of(options, None), shard)
        return None
    return encoding_options


def _has_textual_labels(schema: pa.Schema, shard: str, options: ModelOptions) -> bool:
    leaves = _named(schema, shard)
    kinds = [leaves[label] for label in options.labels if label in leaves]
    kinds += [label.type_of(leaves) for label in computed_labels(options)]
    return any(types.class_of(kind) == types.STRING for kind in kinds)


def _named(schema: pa.Schema, shard: str) -> dict[str, pa.DataType]:
    """The columns by name, with those in the names of folders."""
    return dict(types.leaves_of(with_partitions(schema, partitions_of(shard, schema))))


def _taken(options: ModelOptions) -> dict[str, str]:
    """Columns that are not features, with their roles."""
    parts = {name: NOT_A_FEATURE for label in computed_labels(options) for name in label.columns}
    return parts | {name: role for role, name in columns_of(options, None).roles}


def _all_columns(surveyed: Sequence[Surveyed]) -> pa.Schema:
    """The columns of all shards in the order of their first appearance. If a shard has only nulls in a column, the next
    one decides the type."""
    found: dict[str, pa.Field] = {}
    doubles: list[pa.Field] = []
    for schema in dict.fromkeys(one.whole_schema for one in surveyed):
        here: set[str] = set()
        for name, kind in types.leaves_of(schema):
            if name in here:
                doubles.append(pa.field(name, kind))
            elif name not in found or types.class_of(found[name].type) == types.NULL:
                found[name] = pa.field(name, kind)
            here.add(name)
    return pa.schema([*found.values(), *doubles])


def _of_one_value(surveyed: Sequence[Surveyed]) -> list[str]:
    """The columns in no file that have the same value in all rows. Rows without them can be evaluated."""
    found: dict[str, list[str]] = {}
    filled = [one for one in surveyed if one.shard.rows]
    for one in filled:
        for constant in one.constants:
            if constant.value is not None:
                found.setdefault(constant.name, []).append(constant.value)
    return [name for name, values in found.items() if len(values) == len(filled) and len(set(values)) == 1]


def _notes_of_folders(surveyed: Sequence[Surveyed], plan: Plan) -> list[str]:
    named = {constant.name for one in surveyed if one.log is None for constant in one.constants}
    used = [f"'{column.name}'" for column in plan.columns if column.name in named]
    text = f"the names of folders are features: {', '.join(used)}; rows without them cannot be evaluated. --ignore leaves out"
    return [f"{text} such a column"] if used else []


def _shards(surveyed: Sequence[Surveyed], columns: Columns) -> list[Shard]:
    try:
        return [one.laid_out(columns) for one in surveyed]
    except OtherType as error:
        for one in surveyed:  # a shard that decided about the type
            kind = dict(types.leaves_of(one.whole_schema)).get(error.column)
            if kind is not None and types.class_of(kind) == error.expected:
                error.say(f"{error.found}, as shard '{one.shard.path}' has {kind}", error.remedy)
                break
        raise


def _refuse_truth_values_and_numbers(surveyed: Sequence[Surveyed], plan: Plan) -> None:
    """As categories, true and 1 would be two values; as numbers they are one."""
    for column in plan.columns:
        if column.kind != Category.name:
            continue
        found: dict[bool, Surveyed] = {}
        for one in surveyed:
            kind = dict(types.leaves_of(one.whole_schema)).get(column.name)
            if kind is not None and types.class_of(kind) == types.NUMBER:
                found.setdefault(pa.types.is_boolean(types.storage_of(kind)), one)
        if len(found) > 1:
            raise DataError(
                f"column '{column.name}' holds truth values in shard '{found[True].shard.path}' and numbers in shard "
                f"'{found[False].shard.path}', which are different categories",
                f"write it with one type, or train without it (`--ignore {column.name}`)",
            )


def _with_classes(shards: Sequence[Shard], options: ModelOptions) -> list[Shard]:
    """Each shard keeps the number of classes that are known when it joins."""
    classes = columns_of(options, None).class_count
    return [replace(shard, layout=replace(shard.layout, classes=classes)) for shard in shards]


# Labels and encoding.


def _with_new_labels(options: ModelOptions, catalog: Catalog, columns: Columns) -> tuple[ModelOptions, list[str]]:
    def place_of(number: int, values: Sequence[Any]) -> str:
        return first_place(catalog, columns, options.labels[number], values)

    return extend_labels(options, count_labels(options, catalog, columns) if options.classifies else [], place_of)


def _may_be_ready(plan: Plan, encoding_options: EncodingOptions, options: ModelOptions) -> bool:
    """Whether the rows are lists of features that need no encoding unless their scales differ."""
    if encoding_options.given or any(spec.textual for spec in label_specs(options)):
        return False
    return len(plan.columns) == 1 and plan.columns[0].kind == List.name and plan.columns[0].name == "features"


def _learned(
    plan: Plan,
    encoding_options: EncodingOptions,
    options: ModelOptions,
    sample: Sequence[dict[str, pa.Array]],
    notes: list[str],
) -> Encoding | None:
    """None: the rows can be read in slices, as they are on disk."""
    plan = with_values(plan, sample)
    refuse_empty(plan, "the sample of rows")
    encoding = learn(plan, encoding_options, sample)
    if _may_be_ready(plan, encoding_options, options) and not encoding.columns[0].scale:
        return None
    notes += hints(encoding.columns, sample)
    return encoding


def _missing(encoding: Encoding, schema: pa.Schema) -> list[str]:
    """The columns of an encoding that the schema lacks."""
    there = set(schema.names)
    names = (name for column in encoding.all_columns for name in column.sources if name not in there)
    return list(dict.fromkeys(names))


def _notes_of_growth(before: Encoding, after: Encoding, left_out: dict[str, str], missing: list[str]) -> list[str]:
    notes = []
    if after is not before and after.columns:
        new = ", ".join(f"'{column.name}' ({column.kind})" for column in after.columns)
        notes.append(f"new columns: {new}; rows of earlier shards count as null there")
    news = [f"'{name}' ({why})" for name, why in left_out.items() if before.left_out.get(name) != why]
    if news:
        notes.append(f"new columns that are not used: {', '.join(news)}")
    if missing:
        listed = ", ".join(f"'{name}'" for name in missing)
        notes.append(f"the new shards lack columns, which count as null there: {listed}")
    return notes


def _notes_of_unused(surveyed: Sequence[Surveyed]) -> list[str]:
    """The other columns of shards whose rows are lists of features."""
    names: dict[str, None] = {}
    for one in surveyed:
        used = set(one.shard.layout.columns)
        names |= dict.fromkeys(name for name in one.schema.names if name not in used)
    unused = [f"'{name}'" for name in names if not is_pandas_index(name)]
    return [f"columns that are not used, because rows are lists of features: {', '.join(unused)}"] if unused else []


def hints(columns: Sequence[Column], sample: Sequence[dict[str, pa.Array]]) -> list[str]:
    """What the user may have overlooked."""
    return [hint for column in columns for hint in kind_of(column).hints(column, sample)]
