"""A table is opened for training: its columns told apart, its labels looked at, its encoding learnt from a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streampgs.data.budget import choose_sizes, group_sizes
from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding, LabelCoding
from streampgs.encoding.growing import grown, plan_growth
from streampgs.encoding.learning import distinct_labels, learn
from streampgs.encoding.plan import CATEGORY, LIST, Plan, PlannedColumn, plan_columns
from streampgs.errors import DataError, OptionError
from streampgs.formats.remote import remote_schema
from streampgs.formats.shard_files import schema_of
from streampgs.losses import CLASSIFYING
from streampgs.options import EncodingOptions, ModelOptions, Resources
from streampgs.order.schedule import Schedule
from streampgs.reading.label_sample import sampled_label_arrays
from streampgs.reading.table_sample import TableSample, sampled_rows
from streampgs.stores.access import RemoteObject
from streampgs.table.catalog import Catalog, Shard, Surveyed, catalog_of, located_shards, survey, whole_shards
from streampgs.table.layout import DENSE, Columns, Layout, TableSays, find_layout, holds_features
from streampgs.table.locate import Located, ShardPath

STREAM_NAME = "standard input"
_NO_FEATURES = Plan((), {})
_MOST_CLASSES = 10_000
_SURELY_TWO_CLASSES = 0.99
_SAMPLE_BYTES, _GLANCE_BYTES = 32 << 20, 4 << 20
_MANY_WORDS, _MOSTLY_DIFFERENT = 5.0, 0.5
_ENOUGH_TO_TELL, _NEARLY_ALL = 500, 0.95


@dataclass
class OpenTable:
    """A table that is ready to be trained on."""

    catalog: Catalog
    located: Located
    options: ModelOptions
    """With what was to be found out about labels found out."""
    encoding: Encoding | None
    decoder_bytes: int
    """What decoding a group takes, where it was looked at."""
    notes: list[str] = field(default_factory=list)


def columns_of(options: ModelOptions, encoding: Encoding | Plan | None) -> Columns:
    """The columns that a model's rows are read from."""
    labels = encoding.labels if isinstance(encoding, Encoding) else ()
    listed = options.classes or ()
    classes: tuple[float, ...] = tuple(label for label in listed if not isinstance(label, str))
    positive = None if isinstance(options.positive, str) else options.positive
    if labels and labels[0].values:  # strings have become numbers by now
        positive = None
        classes = tuple(float(number) for number in range(len(listed))) if options.multiclass else ()
    weights = options.class_weight if isinstance(options.class_weight, tuple) else ()
    return Columns(options.label, options.weight, positive, classes or None, weights, encoding, options.offset)


def open_table(
    sources: Sequence[str],
    options: ModelOptions,
    encoding_options: EncodingOptions,
    judging: bool = True,
    growing: bool = False,
) -> OpenTable:
    """`judging`: look at the labels, and refuse those that do not go with the loss; `growing`: leave out shards that are
    still being written."""
    located = located_shards(sources)
    if growing:
        located.paths = whole_shards(located.paths)
    first = located.paths[0]
    says = located.says.get(first)
    schema = says.schema if says is not None else _schema_of(first)
    wanted = _wanted(schema, str(first), options, encoding_options)
    surveyed = survey(located.paths, columns_of(options, None if wanted is None else _NO_FEATURES), located.says)
    plan = None if wanted is None else _plan(surveyed, options, wanted)
    catalog = _laid_out(surveyed, columns_of(options, plan), sources)
    notes: list[str] = []
    codings: tuple[LabelCoding, ...] = ()
    if judging:
        options, codings = _with_labels(options, _sampled_labels(options, catalog, plan), notes)
    encoding, decoder_bytes = None, 0
    if plan is not None:
        most_bytes = _GLANCE_BYTES if _is_ready(plan, encoding_options, codings) else _SAMPLE_BYTES
        sample = sampled_rows(catalog, columns_of(options, plan), options.seed, most_bytes)
        encoding = learn(plan, encoding_options, sample.batches, codings)
        if _is_ready(plan, encoding_options, codings) and not encoding.columns[0].scale:
            encoding = None  # it can be read in slices, as it lies on disk
        else:
            notes += _hints(encoding, sample.batches)
            decoder_bytes = sample.decoder_bytes
        del sample
        pa.default_memory_pool().release_unused()
        if encoding is None:
            surveyed = survey(located.paths, columns_of(options, None), located.says)
    catalog = _laid_out(surveyed, columns_of(options, encoding), sources)
    return OpenTable(catalog, located, options, encoding, decoder_bytes, notes)


@dataclass
class OpenStream:
    """A stream that is ready for training."""

    layout: Layout
    options: ModelOptions
    """The user's choices, completed by what the sample shows about the labels."""
    encoding: Encoding | None
    notes: list[str] = field(default_factory=list)


def open_stream(
    schema: pa.Schema, sample: list[dict[str, pa.Array]], options: ModelOptions, encoding_options: EncodingOptions
) -> OpenStream:
    """Open the table on standard input; its first rows are the sample."""
    wanted = _wanted(schema, STREAM_NAME, options, encoding_options)
    plan = None if wanted is None else plan_columns(schema, wanted, _taken(options), STREAM_NAME)
    find_layout(schema, columns_of(options, plan), STREAM_NAME)
    if not sample:
        raise DataError("the stream has no rows", "let the producer write record batches after the schema")
    notes: list[str] = []
    labels = [_joined_labels(name, [types.leaf(batch, name) for batch in sample]) for name in options.labels]
    options, codings = _with_labels(options, labels, notes)
    encoding = None
    if plan is not None:
        encoding = learn(plan, encoding_options, sample, codings)
        if _is_ready(plan, encoding_options, codings) and not encoding.columns[0].scale:
            encoding = None
        else:
            notes += _hints(encoding, sample)
    layout = find_layout(schema, columns_of(options, encoding), STREAM_NAME)
    if layout.kind == DENSE and layout.width is None:
        layout = replace(layout, width=options.feature_count or _width_of(sample))
    return OpenStream(layout, options, encoding, notes)


def _width_of(sample: list[dict[str, pa.Array]]) -> int:
    """Features of the first dense row that has any."""
    for batch in sample:
        widths = np.diff(types.lists_of(batch["features"])[0])
        if widths.any():
            return int(widths[widths > 0][0])
    raise DataError("no row at the beginning of the stream has features", "write lists of numbers to 'features'")


def _wanted(
    schema: pa.Schema, shard: str, options: ModelOptions, encoding_options: EncodingOptions
) -> EncodingOptions | None:
    """How columns are to become features; None where the table has its features ready, as its first shard tells."""
    labels = [label for label in options.labels if label in schema.names]
    texts = any(types.class_of(schema.field(label).type) == types.STRING for label in labels)
    ready = holds_features(schema)
    dense = ready and "indices" not in schema.names
    if ready and not (encoding_options.given or texts or (dense and encoding_options.standardize == "auto")):
        find_layout(schema, columns_of(options, None), shard)
        return None
    if ready and not encoding_options.given:  # nothing was said of other columns
        wanted = ("features",) if dense else ("indices", "values")
        return replace(encoding_options, features=wanted)
    return encoding_options


def _schema_of(shard: ShardPath) -> pa.Schema:
    return remote_schema(shard) if isinstance(shard, RemoteObject) else schema_of(shard)


def _plan(surveyed: Sequence[Surveyed], options: ModelOptions, wanted: EncodingOptions) -> Plan:
    """What the columns of all shards together become."""
    return plan_columns(_all_columns(surveyed), wanted, _taken(options), str(surveyed[0].shard.path))


def _taken(options: ModelOptions) -> dict[str, str]:
    """Columns that are no features, with their roles."""
    return {name: role for role, name in columns_of(options, None).roles}


def _all_columns(surveyed: Sequence[Surveyed]) -> pa.Schema:
    """Those of all shards, in the order of their coming; where one is of nothing but nulls, the next tells its type."""
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


def _laid_out(surveyed: Sequence[Surveyed], columns: Columns, sources: Sequence[str]) -> Catalog:
    return catalog_of(_shards(surveyed, columns), sources)


def _shards(surveyed: Sequence[Surveyed], columns: Columns) -> list[Shard]:
    if columns.encoding is not None:
        return [one.laid_out(columns) for one in surveyed]
    classes = None if columns.classes is None else len(columns.classes)
    return [replace(one.shard, layout=replace(one.shard.layout, classes=classes)) for one in surveyed]


def _is_ready(plan: Plan, options: EncodingOptions, codings: tuple[LabelCoding, ...]) -> bool:
    """Whether a table's features are lists of features already, which need no encoding if their scales are alike."""
    if options.given or any(coding.values for coding in codings):
        return False
    return len(plan.columns) == 1 and plan.columns[0].kind == LIST and plan.columns[0].name == "features"


# Labels.


def _with_labels(
    options: ModelOptions, arrays: list[pa.Array], notes: list[str]
) -> tuple[ModelOptions, tuple[LabelCoding, ...]]:
    """The options with the classes written down, as a sample of each label column shows them; and how labels become
    numbers."""
    textual = [types.class_of(array.type) == types.STRING for array in arrays]
    if any(textual) and not options.classifies:
        name = options.labels[textual.index(True)]
        raise OptionError(
            f"--loss {options.losses[0]} predicts numbers, but label column '{name}' holds strings",
            f"choose one of {', '.join(CLASSIFYING)}, or another --label",
        )
    if not options.classifies:
        return options, tuple(LabelCoding() for _ in arrays)
    if len(arrays) > 1:
        return options, tuple(
            _pair(name, array) if text else LabelCoding()
            for name, array, text in zip(options.labels, arrays, textual, strict=True)
        )
    given = options.classes
    options = _of_strings(options, arrays[0]) if textual[0] else _of_numbers(options, arrays[0])
    if options.multiclass and given is None and not textual[0]:
        notes.append(
            f"the {len(options.classes or ()):,} whole numbers of label column '{options.labels[0]}' are taken as classes; to "
            "predict them as numbers: --loss squared"
        )
    if not textual[0] and len(arrays[0]) and pc.count_distinct(arrays[0]).as_py() == 1:
        notes.append(
            f"label column '{options.labels[0]}' has one value only in the sample: {arrays[0][0].as_py():g}; a model of one "
            "class tells nothing"
        )
    options = _with_class_weights(options, arrays[0])
    coding = LabelCoding()
    if textual[0]:
        if options.classes is None:  # one class against all others
            positive = str(options.positive)
            coding = LabelCoding(("" if positive else "\x00", positive), others=0.0)
        else:
            coding = LabelCoding(tuple(str(label) for label in options.classes))
        if options.classes is not None and not options.multiclass:
            notes.append(f"the positive class is '{options.classes[1]}', the other '{options.classes[0]}'")
    return options, (coding,)


def _sampled_labels(options: ModelOptions, catalog: Catalog, plan: Plan | None) -> list[pa.Array]:
    """Of each label column."""
    columns = columns_of(options, plan)
    groups = group_sizes(catalog, options.row_values)
    schedule = Schedule(options.seed, groups, choose_sizes(groups, Resources()))
    samples = [list(sampled_label_arrays(catalog, schedule, columns, number)) for number in range(len(options.labels))]
    return [_joined_labels(name, sample) for name, sample in zip(options.labels, samples, strict=True)]


def _joined_labels(name: str, sample: list[pa.Array]) -> pa.Array:
    """All the labels that are not null, as float64 or as strings."""
    arrays = [types.undictionaried(types.plain(array)).drop_null() for array in sample]
    arrays = [array for array in arrays if len(array)]
    textual = [types.class_of(array.type) == types.STRING for array in arrays]
    if any(textual) and not all(textual):
        raise DataError(
            f"label column '{name}' holds strings in some shards and numbers in others", "write it in one way"
        )
    if any(textual):
        labels = pa.concat_arrays([array.cast(pa.large_string()) for array in arrays])
        try:
            labels.validate(full=True)
        except pa.ArrowInvalid as fault:
            raise DataError(f"label column '{name}' holds a string that is no UTF-8: {fault}", "mend it") from fault
        return labels
    return pa.array(np.concatenate([np.empty(0), *(types.numbers_of(array) for array in arrays)]).astype(np.float64))


def _pair(name: str, labels: pa.Array) -> LabelCoding:
    found = sorted(distinct_labels([labels]).to_pylist())
    if len(found) != 2:
        raise DataError(
            f"label column '{name}' holds {len(found):,} different strings",
            "of several label columns each must have two classes",
        )
    return LabelCoding(tuple(found))


def _of_strings(options: ModelOptions, labels: pa.Array) -> ModelOptions:
    if options.classes is not None:
        if not isinstance(options.classes[0], str):
            return replace(options, classes=tuple(_number_text(label) for label in options.classes))
        return options
    found = sorted(distinct_labels([labels]).to_pylist())
    positive = None if options.positive is None else _number_text(options.positive)
    if positive is not None:
        if positive not in found:
            raise DataError(
                f"no sampled row has the label '{positive}'; the labels are {_listed(found)}", "check --positive"
            )
        others = [label for label in found if label != positive]
        if len(others) == 1:
            return replace(options, positive=None, classes=(others[0], positive))
        return replace(options, positive=positive)
    if len(found) < 2:
        raise DataError(
            f"label column '{options.labels[0]}' has one value only in the sample: {_listed(found)}",
            "a classifier needs two classes: name them with --classes A,B, or name another --label",
        )
    if len(found) > _MOST_CLASSES:
        raise DataError(
            f"label column '{options.labels[0]}' has {len(found):,} different strings", "name another --label"
        )
    return replace(options, classes=tuple(found))


def _number_text(label: Any) -> str:
    """How a number that was given on the command line looked like there."""
    return str(int(label)) if isinstance(label, float) and label == int(label) else str(label)


def _of_numbers(options: ModelOptions, array: pa.Array) -> ModelOptions:
    if isinstance(options.positive, str) or (options.classes is not None and isinstance(options.classes[0], str)):
        raise DataError(
            f"label column '{options.labels[0]}' holds numbers, not strings like "
            f"'{options.positive if options.classes is None else options.classes[0]}'",
            "give numbers with --positive or --classes",
        )
    if options.positive is not None or options.classes is not None:
        return options
    labels = np.asarray(types.numbers_of(array), np.float64)
    labels = labels[np.isfinite(labels)]
    found = np.unique(labels)
    if (
        -1.0 not in found
        and 0.0 in found
        and 1.0 in found
        and np.isin(labels, (0.0, 1.0)).mean() >= _SURELY_TWO_CLASSES
    ):
        return replace(options, classes=(0.0, 1.0))  # predictions are to be what the table has
    if np.isin(labels, (-1.0, 0.0, 1.0)).mean() >= _SURELY_TWO_CLASSES if len(labels) else True:
        return options  # two classes, and perhaps a few rows that shall be named
    if len(found) == 2:
        return replace(options, classes=tuple(found.tolist()))
    if len(found) > _MOST_CLASSES or not np.array_equal(found, np.round(found)):
        odd = next((label for label in found.tolist() if label != round(label)), found[-1])
        raise OptionError(
            f"--loss {','.join(options.losses)} is for classes, but label column '{options.labels[0]}' has "
            f"{len(found):,} different values in the sample, like {odd:g}",
            "predict numbers with --loss squared; or name the positive class with --positive VALUE",
        )
    return replace(options, classes=tuple(found.tolist())) if len(found) > 2 else options


def _with_class_weights(options: ModelOptions, labels: pa.Array) -> ModelOptions:
    """'balanced' as numbers: each class as heavy as the others in the sample."""
    if options.class_weight is None:
        return options
    if options.class_weight != "balanced":
        expected = len(options.classes) if options.classes is not None else 2
        if len(options.class_weight) != expected:
            raise OptionError(
                f"--class-weight {','.join(map(str, options.class_weight))} for {expected} classes",
                "give a number for each class, in the order of the classes",
            )
        return options
    if options.classes is not None:
        counts = [_count(labels, label) for label in options.classes]
    else:
        positives = _count(labels, options.positive if options.positive is not None else 1.0)
        counts = [len(labels) - positives, positives]
    if min(counts) == 0:
        raise DataError("--class-weight balanced, but a class has no row in the sample", "give the weights as numbers")
    total = sum(counts)
    return replace(options, class_weight=tuple(total / (len(counts) * count) for count in counts))


def _count(labels: pa.Array, label: float | str) -> int:
    if isinstance(label, str):
        return int(sum(text == label for text in labels.to_pylist()))
    return int(np.count_nonzero(np.asarray(types.numbers_of(labels), np.float64) == label))


def _listed(found: Sequence[Any]) -> str:
    return ", ".join(f"'{label}'" for label in found[:6]) + (", …" if len(found) > 6 else "")


# A table that has grown.


@dataclass
class GrownTable:
    """What new shards bring to a table that is being trained on."""

    shards: list[Shard]
    options: ModelOptions
    encoding: Encoding | None
    decoder_bytes: int
    notes: list[str]


def grown_table(
    paths: Sequence[ShardPath], says: Mapping[ShardPath, TableSays], options: ModelOptions, encoding: Encoding | None
) -> GrownTable:
    """The new shards at these paths; with their new columns behind the known ones, and their new classes."""
    surveyed = survey(paths, columns_of(options, None if encoding is None else _NO_FEATURES), says)
    shards = _shards(surveyed, columns_of(options, encoding))  # what is of another sort than it was is refused
    if not sum(shard.rows for shard in shards):
        return GrownTable(shards, options, encoding, 0, [])
    notes: list[str] = []
    if encoding is None:
        options, _ = _with_new_labels(options, (), _sampled_labels(options, Catalog(shards), None), notes)
        return GrownTable(_shards(surveyed, columns_of(options, None)), options, None, 0, notes)
    plan = plan_growth(_all_columns(surveyed), encoding, _taken(options))
    known = tuple(PlannedColumn(c.name, c.kind, c.holds, c.parts) for c in encoding.all_columns)
    whole = Plan((*known, *plan.columns), {})
    catalog = Catalog(_shards(surveyed, columns_of(options, whole)))
    options, codings = _with_new_labels(options, encoding.labels, _sampled_labels(options, catalog, whole), notes)
    sample = TableSample()
    if plan.columns:
        sample = sampled_rows(catalog, columns_of(options, whole), options.seed, _SAMPLE_BYTES)
    more, left_out = grown(encoding, plan, sample.batches, codings)
    notes += _notes_of_growth(encoding, more, left_out, _all_columns(surveyed))
    if more is not encoding:
        notes += _hints(more, sample.batches)
    decoder_bytes = sample.decoder_bytes
    del sample
    pa.default_memory_pool().release_unused()
    return GrownTable(_shards(surveyed, columns_of(options, more)), options, more, decoder_bytes, notes)


def _notes_of_growth(before: Encoding, after: Encoding, left_out: dict[str, str], schema: pa.Schema) -> list[str]:
    notes = []
    if after is not before and after.columns:
        new = ", ".join(f"'{column.name}' ({column.kind})" for column in after.columns)
        notes.append(f"new columns: {new}; rows of the shards before count as null there")
    news = [f"'{name}' ({why})" for name, why in left_out.items() if before.left_out.get(name) != why]
    if news:
        notes.append(f"new columns that are left out: {', '.join(news)}")
    missing = [f"'{name}'" for column in before.all_columns for name in column.sources if name not in schema.names]
    if missing:
        notes.append(f"the new shards lack columns, which count as null there: {', '.join(dict.fromkeys(missing))}")
    return notes


def _with_new_labels(
    options: ModelOptions, codings: tuple[LabelCoding, ...], labels: Sequence[pa.Array], notes: list[str]
) -> tuple[ModelOptions, tuple[LabelCoding, ...]]:
    """The options, and how labels become numbers, with classes that a sample of new shards' labels shows."""
    if not options.classifies:
        return options, codings
    found = [
        _strange_labels(options, array, codings[number] if codings else LabelCoding())
        for number, array in enumerate(labels)
    ]
    new = found[0]
    if options.multiclass and new and all(isinstance(label, str) or label == round(label) for label in new):
        return _with_more_classes(options, codings, new, notes)
    for name, strange in zip(options.labels, found, strict=True):
        if strange and options.on_bad_row != "skip":
            known = _listed(options.classes) if options.classes is not None else "two classes"
            raise DataError(
                f"new shards have other labels in column '{name}' than the run knows ({known}): {_listed(strange)}",
                "start a new run on all the data, or take the new shards away; resume --on-bad-row skip leaves out such rows",
            )
    return options, codings


def _strange_labels(options: ModelOptions, labels: pa.Array, coding: LabelCoding) -> list[float | str]:
    """Those that are no classes so far, in ascending order."""
    if coding.values:
        others = coding.others != LabelCoding().others  # one class against all others, whatever they are
        return [] if others else sorted(set(distinct_labels([labels]).to_pylist()) - set(coding.values))
    if options.positive is not None:
        return []
    found = np.unique(np.asarray(types.numbers_of(labels), np.float64))
    known = options.classes if options.classes is not None else (-1.0, 0.0, 1.0)
    return [*found[np.isfinite(found) & ~np.isin(found, known)].tolist()]


def _with_more_classes(
    options: ModelOptions, codings: tuple[LabelCoding, ...], new: list[float | str], notes: list[str]
) -> tuple[ModelOptions, tuple[LabelCoding, ...]]:
    assert options.classes is not None
    classes = (*options.classes, *new)
    if len(classes) > _MOST_CLASSES:
        raise DataError(
            f"with the new shards label column '{options.labels[0]}' has {len(classes):,} classes",
            "mend the labels, or take the new shards away",
        )
    weights = options.class_weight
    if isinstance(weights, tuple):
        weights = (*weights, *[1.0] * len(new))
        notes.append("rows of new classes weigh 1 each: --class-weight was given before they came")
    notes.append(
        f"{len(new):,} new classes ({_listed(new)}), beside {len(options.classes):,}: each has a model of its own from now on"
    )
    if codings and codings[0].values:
        codings = (replace(codings[0], values=tuple(str(label) for label in classes)),)
    joined = options.joined_classes + len(new)
    return replace(options, classes=classes, joined_classes=joined, class_weight=weights), codings


# Advice.


def _hints(encoding: Encoding, sample: Sequence[dict[str, pa.Array]]) -> list[str]:
    """What a user may have overlooked."""
    hints: list[str] = []
    for column in encoding.columns:
        if column.holds == types.STRING and column.kind == CATEGORY:
            arrays = (types.leaf_if_there(batch, column.name) for batch in sample)
            texts = types.undictionaried(next(array for array in arrays if array is not None)).drop_null()[:1000]
            data, bounds = types.bytes_of(texts)
            known = [data[start:stop].tobytes() for start, stop in pairwise(bounds.tolist())]  # may be no UTF-8
            words = float(np.mean([len(text.split()) for text in known])) if known else 0.0
            if len(known) >= _ENOUGH_TO_TELL and len(set(known)) > _NEARLY_ALL * len(known) and words < _MANY_WORDS:
                hints.append(
                    f"nearly every row has a value of its own in column '{column.name}', which is taken as a category: "
                    f"--ignore {column.name} leaves it out"
                )
            if words >= _MANY_WORDS and len(set(known)) > _MOSTLY_DIFFERENT * len(known):
                hints.append(
                    f"column '{column.name}' looks like text, but is taken as a category: --text {column.name} takes its words"
                )
    return hints
