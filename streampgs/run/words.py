"""The choices of a run in words: the lines that are printed before the first step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from streampgs.base.errors import counted, sized
from streampgs.data.budget import BLOCKS_NEEDED, Forecast
from streampgs.data.findings import unused_columns
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import KINDS
from streampgs.encoding.kinds.curve import Curve
from streampgs.encoding.kinds.number import Number
from streampgs.encoding.scales import LARGEST_NUMBER
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.options.commands import Limits, ModelOptions
from streampgs.options.fields import options_of
from streampgs.options.solvers import SOLVERS, SolverOptions, solver_of
from streampgs.order.arrivals import owed_until
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Schedule, WindowPlan
from streampgs.reading.packed_rows import packed_row_bytes
from streampgs.reading.window import Window
from streampgs.run.models import Models
from streampgs.run.record import RunRecord
from streampgs.run.shard_input import ShardInput
from streampgs.selection.mixture import Judgement, Result
from streampgs.selection.race import Race
from streampgs.table.catalog import Catalog

_NAMES_SHOWN = 6
_CLIPPED_SHOWN = 5
_ENDS = ("epochs", "rows", "seconds", "converged", "end of stream")


def _data_choices(data: ShardInput, models: Models, window: Window) -> dict[str, str]:
    features = models.maps.inputs(models.features)
    record, table = data.record, data.table
    size = {"data": f"{_size(table.used)}, {table.used.kind}, {counted(features, 'feature')}"}
    if SOLVERS[record.options.solver].needs.columns:
        return {**size, "rows": "all in memory, read once"}
    left = None
    if record.limits.epochs is not None and table.cursor.part == 0:  # the passes of an update visit the same rows again
        left = max(record.limits.epochs, owed_until(table.cursor)) - table.cursor.epoch
    cache = _cache_choice(table.used, record.cache, left, window if models.maps.kernel is None else None)
    return {**size, "window": _window_choice(table.schedule, window), "cache": cache}


def _size(catalog: Catalog) -> str:
    left_out = f" ({counted(catalog.left_out, 'row')} left out by --where)" if catalog.left_out else ""
    return f"{counted(len(catalog.shards), 'shard')}, {counted(catalog.rows, 'row')}{left_out}"


def _window_choice(schedule: Schedule, window: Window) -> str:
    sizes, blocks = schedule.sizes, _plan(window).blocks
    share = f"{counted(blocks, 'block')} of up to {sizes.block_bytes / 1e3:,.0f} kB"
    if _is_whole_epoch(schedule, window):
        share = f"all the data, {counted(blocks, 'block')}"
    size = sizes.window_bytes / 1e6
    return f"{size:,.1f} MB; the first mixes {len(window):,} rows from {share}"


def _is_whole_epoch(schedule: Schedule, window: Window) -> bool:
    plan = _plan(window)
    return schedule.part_length(plan.start) <= len(plan.pieces.group)


def _plan(window: Window) -> WindowPlan:
    assert isinstance(window.span, WindowPlan)
    return window.span


def few_blocks_hints(data: ShardInput, window: Window) -> list[str]:
    if SOLVERS[data.record.options.solver].needs.columns:  # the order of rows does not matter
        return []
    blocks = _plan(window).blocks
    if blocks >= BLOCKS_NEEDED or _is_whole_epoch(data.table.schedule, window):
        return []
    return [
        f"the first window mixes only {counted(blocks, 'block')}. If your files are sorted, for example by date, give a "
        f"larger --memory, so that it mixes {BLOCKS_NEEDED} or more; `streampgs inspect DATA` tells whether they are"
    ]


def announced(data: ShardInput, models: Models, window: Window, forecast: Forecast) -> dict[str, str]:
    """Every choice, in the order in which it is printed."""
    rest, encoding = _data_choices(data, models, window), data.form.encoding
    return {
        "data": rest.pop("data"),
        **({} if encoding is None else encoding_choices(encoding)),
        **({} if models.maps.kernel is None else {"kernel": models.maps.kernel.text}),
        "model": model_choice(models.lanes.specs, models.form.options, len(models.race.targets)),
        "solver": solver_choice(models.lanes.specs, len(models.race.targets)),
        **rest,
        "memory": memory_choice(forecast),
    }


def large_model_hints(forecast: Forecast, memory: int, encoding: Encoding | None) -> list[str]:
    if forecast.model <= memory or encoding is None or not encoding.has_hashed:
        return []
    return [
        f"the models in training take {forecast.model / 1e6:,.0f} MB in addition to --memory: `--hash-bits "
        f"{max(1, encoding.hash_bits - 4)}`, or a known --sigma, makes it less"
    ]


def model_choice(lanes: Sequence[LaneSpec], options: ModelOptions, targets: int) -> str:
    """The prediction in words, and the choices that are still open."""
    candidates = lanes[::targets]
    parts = [_listed("", (lane.loss for lane in candidates)) + " loss"]
    if options.classes is not None and options.multiclass:
        parts.append(f"{len(options.classes)} classes ({_shortened(map(_label_text, options.classes))})")
    elif options.classes is not None:
        parts.append(f"{_label_text(options.classes[1])} against {_label_text(options.classes[0])}")
    elif targets > 1:
        parts.append(f"{targets} labels ({_shortened(options.labels)})")
    if len(candidates) > 1:
        parts.append(f"{len(candidates)} candidates")
    return ", ".join([*parts, *_varied(candidates, ("sigma",))])


def solver_choice(lanes: Sequence[LaneSpec], targets: int) -> str:
    """The other numbers of the candidates, and what they share."""
    first = lanes[0]
    others = [name for name in first.choices if name != "sigma"]
    solver = SOLVERS[solver_of(first.learner)]
    shared = [f"{_flag(first, name)} {getattr(first.own, name)}" for name in first.own.shared if name in solver.options]
    batch = [f"batch {first.batch}"] if solver.steps_on_rows else []
    numbers = [*batch, f"intercept {first.intercept:g}", *shared, f"seed {first.seed}"]
    return ", ".join([solver_of(first.learner), *_varied(lanes[::targets], others), *numbers])


def _varied(candidates: Sequence[LaneSpec], names: Iterable[str]) -> list[str]:
    known = candidates[0].choices
    return [_numbers(name, [lane.choices[name] for lane in candidates]) for name in names if name in known]


def _flag(spec: LaneSpec, name: str) -> str:
    """The name of a solver's option on the command line; or of a number that has no option."""
    taken = name in SOLVERS[solver_of(spec.learner)].options
    return options_of(SolverOptions)[name].flag.removeprefix("--") if taken else name


def clipped_notes(counts: Mapping[str, int], examples: Mapping[str, tuple[str, float]]) -> list[str]:
    """One note about clipped values: the columns with the most values first, and an example."""
    columns = sorted(counts, key=lambda name: (-counts[name], name))
    if not columns:
        return []
    shown = [f"{counts[name]:,} of '{name}'" for name in columns[:_CLIPPED_SHOWN]]
    if columns[0] in examples:
        row, value = examples[columns[0]]
        shown[0] += f" (such as {value:g}: {row})"
    if len(columns) > _CLIPPED_SHOWN:
        shown.append(f"and some of {counted(len(columns) - _CLIPPED_SHOWN, 'more column')}")
    return [
        f"values beyond {LARGEST_NUMBER:g} standard deviations were clipped there: {', '.join(shown)}. Are they right? Then "
        "train on logarithms of these columns instead (`streampgs pack --sql` computes them)"
    ]


def chosen_text(winner: LaneSpec, rows: int) -> str:
    return f"after {rows:,} rows {_choices_text(winner)} is the best of the candidates"


def _choices_text(spec: LaneSpec) -> str:
    return ", ".join([spec.loss, *(f"{name} {value:.4g}" for name, value in spec.choices.items() if value is not None)])


def cross_validated_text(race: Race) -> str:
    rows, chosen = counted(race.progress.marks[-1].judged, "row"), race.leading()
    differ = len({replace(each, sigma=1.0, own=None) for each in race.candidates}) > 1
    best = _choices_text(chosen) if differ else f"sigma {chosen.sigma:.3g}"
    how = "judged on the validation rows" if race.validation is not None else f"judged on {rows} not trained on"
    return f"{best} is the best of {counted(len(race.candidates), 'candidate')}, {how}"


def judged_texts(judged: Judgement) -> list[str]:
    """How well the model predicted the newest rows, and whether that is drift."""
    if judged.before is None:
        return ["all new rows have weight 0: they cannot tell how good the model is"]
    last = "" if judged.last is None else f" (last time {judged.last:.4f})"
    drift = judged.drift
    return [
        f"{counted(judged.rows, 'new row')} before training on them: loss {result_text(judged.before)}{last}",
        *([] if drift is None else [f"the newest data differ: loss {drift.loss:.4f} after {drift.before:.4f}"]),
    ]


def result_text(result: Result) -> str:
    accuracy = "" if result.accuracy is None else f", accuracy {result.accuracy:.4f}"
    return f"{result.loss:.4f}{accuracy}"


def encoding_choices(encoding: Encoding) -> dict[str, str]:
    """What the columns become, and which are left out and why."""
    by_kind: dict[str, list[str]] = {}
    for column in encoding.all_columns:
        by_kind.setdefault(column.kind, []).append(column.name)
    parts = [
        f"{len(names)} {kind if len(names) == 1 else KINDS[kind].plural}"
        + ("" if kind == Curve.name else f" ({_shortened(names)})")
        for kind, names in by_kind.items()
    ]
    if any(column.scale for column in encoding.all_columns if column.kind == Number.name):
        parts.append("numbers standardized")
    scaled = [column.name for column in encoding.all_columns if column.scale and column.kind != Number.name]
    if scaled:
        parts.append(f"also scaled: {_shortened(scaled)}")
    if encoding.has_hashed:
        words = sum(len(generation.words) for generation in encoding.generations)
        known = f"{words:,} known words, the others " if words else ""
        parts.append(f"{known}hashed to {encoding.hashed_features:,} features")
    choices = {"columns": ", ".join(parts)}
    left_out = unused_columns(encoding.left_out)
    if left_out:
        choices["left out"] = _shortened(f"{name} ({reason})" for name, reason in left_out.items())
    return choices


def resume_command(run: Path, on_stream: bool = False, options: str = "") -> str:
    """The command that continues a run, marked as in messages."""
    words = ["producer | " * on_stream + f"streampgs resume {quote(str(run))}", "-" * on_stream, options]
    return f"`{' '.join(filter(None, words))}`"


def waiting_text(shards: int, limit: str, cursor: Cursor, run: Path) -> str:
    wait = "1 new shard waits" if shards == 1 else f"{shards:,} new shards wait"
    epoch = cursor.epoch + (not cursor.begins_epoch)
    place = (
        "; to train on them" if cursor.begins_epoch else f" in the middle of epoch {epoch}; to complete it with them"
    )
    resume = resume_command(run, options=f"--epochs {epoch}")
    return f"{wait}, because the limit of {limit} is reached{place}: {resume}"


def unmoved_text(rows: int, run: Path) -> str:
    """A line search may need more passes than an update has."""
    return (
        f"{counted(rows, 'row')} visited, but no step was found that improves the model: it is as before; to continue: "
        f"{resume_command(run, options='--epochs +3')}"
    )


def stopped_early(stopped_by: str, rows: int, run: Path, on_stream: bool) -> str:
    row = "next" if rows else "first"
    return f"stopped by {stopped_by} before the {row} row; continue with: {resume_command(run, on_stream)}"


def missed_gap(gap: float | None, stopped_by: str, record: RunRecord, run: Path) -> list[str]:
    """A note if training has ended above --target-gap, and not because the user stopped it."""
    target, on_stream = record.limits.target_gap, record.spool is not None
    if target is None or stopped_by not in _ENDS or (gap is not None and gap <= target):
        return []
    found = "is not known yet" if gap is None or math.isinf(gap) else f"is {gap:.3g}"
    more = f"--{stopped_by} +N" if stopped_by in ("rows", "seconds") else "--epochs +N"
    remedy = resume_command(run, on_stream, "" if stopped_by == "end of stream" else more)
    faster = "; a new run with `--beta column` takes larger steps" if record.options.beta == "global" else ""
    ended = f"the certified gap {found}, and training ended by {stopped_by}"
    return [f"`--target-gap {target:g}` was not reached: {ended}; to continue: {remedy}{faster}"]


def nothing_to_do(limit: str, limits: Limits, run: Path) -> str:
    """Why a run does not continue, and the command with which it does."""
    if limit in ("epochs", "converged"):
        done = "the certified gap is small" if limit == "converged" else f"{counted(limits.epochs or 0, 'epoch')} done"
        longer = resume_command(run, options="--epochs +1")
        return f"no new rows, and {done}; to train longer on the same rows: {longer}"
    value = getattr(limits, limit.replace("-", "_"), None)
    reached = f"--{limit}" if value is None else f"`--{limit} {value:.10g}`"
    more = resume_command(run, options=f"--{limit} +N" if limit in ("rows", "seconds") else f"--{limit} OTHER")
    return f"the limit {reached} of the run is already reached; to continue: {more}"


def _label_text(label: float | str) -> str:
    return f"'{label}'" if isinstance(label, str) else f"{label:g}"


def _listed(name: str, values: Iterable[str]) -> str:
    return name + "/".join(dict.fromkeys(values))


def _numbers(name: str, values: Sequence[float | None]) -> str:
    """A few values in full, or their range."""
    known = [value for value in values if value is not None]
    different = sorted(set(known))
    if not known:
        return f"no {name}"
    if name == "p":
        return _listed("p ", (f"{value:g}" for value in known))
    low, high = different[0], different[-1]
    return f"{name} {low:.6g}" if low == high else f"{name} {low:.3g} to {high:.3g}"


def _shortened(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed) if len(listed) <= _NAMES_SHOWN else ", ".join([*listed[:_NAMES_SHOWN], "…"])


def _cache_choice(catalog: Catalog, folder: str | None, epochs_left: int | None, rows: Rows | None) -> str:
    """`rows`: some rows as the cache has them, if there are any."""
    decoded_choice = _decoded_choice(catalog, folder, epochs_left, rows)
    if not catalog.remote:
        return decoded_choice
    size = sum(remote.size for remote in catalog.remote)
    copies = f"{len(catalog.remote):,} remote shards ({size / 1e6:,.1f} MB) are copied to {folder} when they are needed"
    decoded = any(shard.decoded for shard in catalog.shards)
    return f"{copies}; {decoded_choice}" if decoded else copies


def _decoded_choice(catalog: Catalog, folder: str | None, epochs_left: int | None, rows: Rows | None) -> str:
    decoded = sum(shard.decoded for shard in catalog.shards)
    kept = sum(shard.cached for shard in catalog.shards)
    if not decoded:
        return "not needed: all shards can be read in slices"
    if not kept:
        return "none: shards are decoded in every epoch"
    if epochs_left == 1:
        return "not needed: this is the last epoch"
    text = f"{kept} of {counted(decoded, 'shard')}: decoded once, into {folder}"
    if rows is None:
        return text
    return (
        f"{text} (about {sized(packed_row_bytes(rows) * sum(shard.rows for shard in catalog.shards if shard.cached))})"
    )


def memory_choice(forecast: Forecast) -> str:
    parts = {
        "process": forecast.process,
        "two windows": forecast.windows,
        "reading": forecast.reading,
        "decoding": forecast.decoding,
        "downloads": forecast.downloads,
        "model": forecast.model,
    }
    listed = ", ".join(f"{name} {value / 1e6:,.0f} MB" for name, value in parts.items() if value)
    return f"about {forecast.total / 1e6:,.0f} MB at the peak: {listed}"
