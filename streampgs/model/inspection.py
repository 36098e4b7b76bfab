"""The state of a run, and what a dataset looks like before a run is started on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streampgs.base.checks import encode
from streampgs.base.errors import DataError, OptionError
from streampgs.data.budget import choose_sizes, group_sizes, memory_to_decode
from streampgs.data.open import OpenTable, columns_of, open_table
from streampgs.data.refresh import retired_shards
from streampgs.data.sampling import sampled_labels
from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.engine.worker import clipped_in
from streampgs.formats.allowance import decoding_within, in_opening
from streampgs.formats.registry import schema_of
from streampgs.learn.lane_spec import LaneSpec
from streampgs.losses import LOSSES
from streampgs.model.curves import curves_of, draw_curves
from streampgs.model.l1_path import draw_path, path_of
from streampgs.model.model import Model, model_of
from streampgs.options.commands import DEFAULT_MEMORY, EncodingOptions, InspectOptions, ModelOptions, Resources
from streampgs.options.fields import build
from streampgs.options.solvers import solver_of
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import GroupSizes, Schedule, Sizes, WindowPlan
from streampgs.run.folder import RunFolder, finite_or_null
from streampgs.run.lineages import digest_of, summary_of
from streampgs.run.quality import progressive_of
from streampgs.run.saved import SavedRun, saved_run
from streampgs.run.spool import rows_in_spool
from streampgs.run.undo import restorable
from streampgs.run.words import encoding_choices
from streampgs.selection.judge import WORST
from streampgs.selection.race import Race
from streampgs.selection.returned import nonzeros_and_zeros
from streampgs.table.catalog import Catalog, with_cache
from streampgs.table.layout import Columns
from streampgs.table.partitions import partitions_of, with_partitions

# The mean label of a window of W blocks varies like that of W/ρ independent rows, if labels correlate by ρ inside a block.
# Below this number the accuracy suffers (10 blocks of sorted rows lose 14 points, 64 lose half a point).
_INDEPENDENT_BLOCKS_NEEDED = 32
_WHOLE_CACHE = 1 << 62  # bytes: no limit


def inspected(target: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a run, or the profile of data, with the options of `inspect` by name."""
    chosen, encoding = build("inspect", given, InspectOptions, EncodingOptions)
    if len(target) == 1 and RunFolder(Path(target[0])).exists:
        return inspect_run(Path(target[0]), chosen.top, chosen.path, chosen.curves)
    if chosen.path is not None:
        raise OptionError("--path for data that is not a run", "give the folder of a run with several values of --l1")
    if chosen.curves is not None:
        raise OptionError("--curves for data that is not a run", "give the folder of a run")
    model = ModelOptions(label=chosen.label, where=chosen.where)
    return inspect_data(target, model, encoding, Resources(memory=chosen.memory))


def inspect_run(run: Path, top: int = 0, path: Path | None = None, curves_file: Path | None = None) -> dict[str, Any]:
    """The state of a run at its newest checkpoint. `top`: also that many features with the largest weights, and curves.
    `path`: also a picture of the weights against l1, in this file. `curves_file`: also one of the curves."""
    saved = saved_run(run)
    model = model_of(saved)
    if path is not None:
        draw_path(saved.race, model, path)
    curves = curves_of(model) if top or curves_file is not None else []
    if curves_file is not None:
        draw_curves(curves, curves_file)
    race, record, checkpoint = saved.race, saved.record, saved.checkpoint
    lanes, progress, leading = race.lanes, race.progress, race.leading_lanes()
    table = [_lane_summary(race, lane, model.coefficients) for lane in range(len(lanes))]
    nonzeros = int(np.count_nonzero(model.weights))
    return {
        "run": str(run),
        "checkpoint": str(checkpoint.path),
        "checkpoints": [
            {"rows": one.rows, "path": str(one.path), "before_update": one.before_update}
            for one in restorable(saved.folder, record)
        ],
        "damaged_checkpoints": [f"{path.name}: {why}" for path, why in checkpoint.damaged],
        "ignored_files": saved.folder.lookalikes(),
        "options": encode(record.options),
        "settings": _settings(model.settings),
        "kernel": None if model.kernel is None else {**encode(model.kernel.record), "features": model.kernel.width},
        "limits": asdict(record.limits),
        "t": model.steps,
        "rows": model.rows,
        "epoch": saved.cursor.epoch,
        "stream_rows": None if record.spool is None else rows_in_spool(saved.folder.spool),
        "clipped_values": clipped_in(checkpoint.sections["worker"]),
        "features": model.features if model.kernel is None else lanes.features,
        "dual_sha256": digest_of(saved.lineages),
        **{name: _mean([table[lane][name] for lane in leading]) for name in _MEANS},
        "intercept": float(np.mean(model.intercept_)),
        "nonzeros": nonzeros,
        "zeros": model.coefficients * len(np.atleast_2d(model.weights)) - nonzeros,
        "update": summary_of(saved.lineages),
        "lanes": table,
        "path": path_of(race),
        **({"top": strongest(model, top), "curves": curves[:top]} if top else {}),
        "dropped": [
            _choices(race.candidates[int(number)]) | {"rows": dropped.rows, "merit": _merit(dropped.merit)}
            for number, dropped in progress.dropped.items()
        ],
        "judged": asdict(progress.marks[-1]) if progress.marks else None,
        "seconds_training": checkpoint.sections["meter"].values["seconds_training"],
        "sizes": asdict(record.sizes),
        "catalog": summary(saved.catalog()),
        "retired": _retired(saved),
        "arrivals": [asdict(arrival) for arrival in saved.cursor.arrivals],
    }


def strongest(model: Model, count: int) -> list[dict[str, Any]]:
    """The features with the largest weights, by name, for each class or label. The weight is added to the score of a row
    that has the feature: the sign that hashing gave the feature is taken out."""
    found: list[dict[str, Any]] = []
    for target, weights in zip(model.targets, np.atleast_2d(model.weights), strict=True):
        for at in map(int, np.argsort(-np.abs(weights), kind="stable")[:count]):
            feature, weight = model.place_of(at), float(weights[at])
            if weight:
                name, sign = model.name_of(feature), model.sign_of(feature)
                found.append({"target": target, "feature": feature, "name": name, "weight": weight * sign})
    return found


_MEANS = ("gap", "progressive_loss", "progressive_accuracy")


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _settings(spec: LaneSpec) -> dict[str, Any]:
    shared = {name: getattr(spec.own, name) for name in spec.own.shared}
    parameter = LOSSES[spec.loss].parameter
    of_loss = {parameter.name: spec.label_shape} if parameter is not None and parameter.help else {}
    solver = solver_of(spec.learner)
    return {"solver": solver, "loss": spec.loss, **of_loss, **spec.choices, "batch": spec.batch, **shared}


def _choices(spec: LaneSpec) -> dict[str, Any]:
    """By which candidates differ."""
    return {"loss": spec.loss, **spec.choices}


def _lane_summary(race: Race, lane: int, weights: int) -> dict[str, Any]:
    """`weights`: how many it has, with those of features that no row has shown."""
    spec, (loss, accuracy) = race.lanes.specs[lane], progressive_of(race.lanes, [lane])
    nonzeros, _ = nonzeros_and_zeros(race.lanes, [lane])
    place, marks = lane // len(race.targets), race.progress.marks
    return {
        "target": spec.target.name,
        **_choices(spec),
        "leads": place == race.leader(),
        "progressive_loss": loss,
        "progressive_accuracy": accuracy,
        "merit": _merit(marks[-1].merits[place]) if marks else None,
        "gap": race.lanes.certificate(lane) if race.lanes.steps else None,
        "nonzeros": nonzeros,
        "zeros": weights - nonzeros,
        "intercept": finite_or_null(race.lanes.predictor(lane)[1]),
    }


def _merit(merit: float | None) -> float | None:
    """None for a candidate that has diverged, or was dropped early."""
    return merit if merit is not None and merit < WORST else None


def _retired(saved: SavedRun) -> dict[str, int]:
    """The shards of the catalog that are not trained on any more."""
    catalog = saved.catalog()
    numbers = retired_shards(catalog, [span for arrival in saved.cursor.arrivals for span in arrival.retired])
    return {"shards": len(numbers), "rows": sum(catalog.shards[number].rows for number in numbers)}


def summary(catalog: Catalog) -> dict[str, Any]:
    return {
        "shards": len(catalog.shards),
        "rows": catalog.rows,
        "left_out": catalog.left_out,
        "groups": catalog.groups,
        "entries": int(catalog.group_entries.sum()),
        "bytes": sum(shard.fingerprint.size for shard in catalog.shards),
        "formats": sorted({shard.format for shard in catalog.shards}),
        "layout": catalog.kind,
        "columns": list(dict.fromkeys(name for shard in catalog.shards for name in shard.layout.columns)),
        "digest": catalog.digest(),
    }


def inspect_data(
    sources: Sequence[str], options: ModelOptions, encoding_options: EncodingOptions, resources: Resources
) -> dict[str, Any]:
    """The catalog, the columns, the windows that training would use, and whether the windows can mix the shards."""
    with decoding_within(in_opening(resources.budget)):
        table = _opened(sources, options, encoding_options)
        catalog, located = table.catalog, table.located
        columns = columns_of(table.options, table.encoding)
        shards, _ = with_cache(catalog.shards, 0, 0 if resources.no_cache else _WHOLE_CACHE)
        catalog = Catalog(shards)
        groups = group_sizes(catalog, columns.weighted + (columns.offset is not None))
        if resources.budget == DEFAULT_MEMORY:
            resources = replace(resources, memory=max(DEFAULT_MEMORY, memory_to_decode(table.decoder_bytes)))
        sizes = choose_sizes(groups, resources, table.decoder_bytes)
        schedule = Schedule(0, groups, sizes)
        arrivals = (Arrival(0, 0, len(catalog.shards), catalog.groups),)
        first = schedule.window(Cursor(arrivals))
        later = schedule.window(Cursor(arrivals, epoch=1))
        clustering, block_rows = label_clustering(catalog, groups, sizes, columns) if columns.labels else (None, None)
        return {
            "catalog": summary(catalog),
            "columns": _columns(table, columns),
            "ignored_files": len(located.ignored),
            "encoding": {} if table.encoding is None else encoding_choices(table.encoding),
            "window_bytes": sizes.window_bytes,
            "block_bytes": sizes.block_bytes,
            "blocks_per_window_first_epoch": first.blocks,
            "blocks_per_window_later": later.blocks,
            "rows_per_window": later.pieces.rows(),
            "clustering": clustering,
            "clustering_block_rows": block_rows,
            "warnings": _mixing_warnings(schedule, {"the first epoch's": first, "later": later}, clustering or 0.0),
        }


@dataclass(frozen=True)
class _Unlabelled(ModelOptions):
    """For a table whose label is not known."""

    @property
    def labels(self) -> tuple[str, ...]:
        return ()


def _opened(sources: Sequence[str], options: ModelOptions, encoding_options: EncodingOptions) -> OpenTable:
    """Without a label if the user named none and the table has no column of the usual name."""
    try:
        return open_table(sources, options, encoding_options, judging=False)
    except DataError:
        if options.label != ModelOptions.label:
            raise
        table = open_table(sources, _Unlabelled(where=options.where), encoding_options, judging=False)
        if any(
            column["name"] == options.label for column in _columns(table, columns_of(table.options, table.encoding))
        ):
            raise
        return table


def _columns(table: OpenTable, columns: Columns) -> list[dict[str, str]]:
    """Name, type and use of each column, in the order of the files."""
    uses = {name: role for role, name in columns.roles}
    if isinstance(columns.encoding, Encoding):
        for column in columns.encoding.all_columns:
            uses |= {name: column.kind for name in column.sources if name not in uses}
        uses |= {name: f"not used: {why}" for name, why in columns.encoding.left_out.items() if name not in uses}
    found: dict[str, str] = {}
    for shard in table.catalog.shards:
        if found and uses.keys() <= found.keys():
            break
        log = table.located.logs.get(shard.path)
        schema = schema_of(shard.path) if log is None else log.schema
        if log is None:
            schema = with_partitions(schema, partitions_of(str(shard.path), schema))
        for name, kind in types.leaves_of(schema):
            found.setdefault(name, str(kind))
    usual = "features" if columns.encoding is None else "not used"
    return [{"name": name, "type": kind, "use": uses.get(name, usual)} for name, kind in found.items()]


def _mixing_warnings(schedule: Schedule, windows: dict[str, WindowPlan], clustering: float) -> list[str]:
    """About windows that mix too few blocks, by the name of the window."""
    part = {name: plan for name, plan in windows.items() if plan.blocks < schedule.part_length(plan.start)}
    warnings = []
    for name, plan in part.items():
        if clustering * _INDEPENDENT_BLOCKS_NEEDED > plan.blocks:
            needed = int(np.ceil(clustering * _INDEPENDENT_BLOCKS_NEEDED))
            remedy = "" if name == "later" else ", write smaller row groups, or train for more than one epoch"
            warnings.append(
                f"labels are clustered inside blocks ({clustering:.2f}), and {name} windows mix only {plan.blocks} blocks: "
                f"at least {needed} are needed. Increase --memory{remedy}"
            )
        elif plan.blocks < _INDEPENDENT_BLOCKS_NEEDED and not warnings:
            warnings.append(f"{name} windows mix only {plan.blocks} blocks; 64 or more are safe")
    return warnings


def label_clustering(catalog: Catalog, groups: GroupSizes, sizes: Sizes, columns: Columns) -> tuple[float, int]:
    """The intraclass correlation of the labels inside a block (0 well mixed, 1 sorted), and the mean rows of a block.

    By analysis of variance over a sample of blocks.
    """
    counts, means, spreads = [], [], []
    for labels in sampled_labels(catalog, Schedule(0, groups, sizes), columns):
        counts.append(len(labels))
        means.append(labels.mean())
        spreads.append(((labels - labels.mean()) ** 2).sum())
    n = np.array(counts, np.float64)
    if len(n) < 2 or n.sum() <= len(n):
        return 0.0, int(n.mean()) if len(n) else 0
    mean = float((n * means).sum() / n.sum())
    between = float((n * (np.array(means) - mean) ** 2).sum()) / (len(n) - 1)
    within = float(np.sum(spreads)) / (n.sum() - len(n))
    usual = (n.sum() - (n**2).sum() / n.sum()) / (len(n) - 1)
    total = between + (usual - 1.0) * within
    return (max(0.0, float((between - within) / total)) if total > 0.0 else 0.0), int(n.mean())
