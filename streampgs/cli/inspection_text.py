"""The results of `streampgs inspect` as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from shlex import quote
from typing import Any

from streampgs.base.errors import counted
from streampgs.cli.console import pairs_text, records_text, table_text
from streampgs.options.solvers import SOLVERS, solver_of
from streampgs.run.report import mixed_text, weights_text

_MOST_COLUMNS, _FIRST_COLUMNS = 20, 6
_KNOTS_SHOWN = 8
_COUNTS = {"nonzeros": "nonzeros:,", "zeros": "zeros:,"}


def _catalog_text(catalog: dict[str, Any]) -> str:
    shards, groups = counted(catalog["shards"], "shard"), counted(catalog["groups"], "group")
    left_out = f"; {counted(catalog['left_out'], 'row')} left out by --where" if catalog["left_out"] else ""
    return (
        f"{catalog['rows']:,} {catalog['layout']} rows with {catalog['entries']:,} entries in {shards} "
        f"({', '.join(catalog['formats'])}, {groups}, {catalog['bytes'] / 1e6:,.1f} MB){left_out}"
    )


def run_text(result: dict[str, Any]) -> str:
    solver = SOLVERS[solver_of(result["settings"]["solver"])]
    steps = f", {result['t']:,} steps" if solver.steps_on_rows else ""
    gap = "" if result["gap"] is None else f", certified gap {result['gap']:.3g}"
    loss, measured = result["progressive_loss"], "training" if solver.needs.columns else "progressive"
    earlier = [f"{one['rows']}{' (before an update)' * one['before_update']}" for one in result["checkpoints"][:-1]]
    pairs = {
        "run": f"{result['run']} (checkpoint {result['checkpoint']})",
        "trained": f"{result['rows']:,} rows{steps}, {_progress_text(result)}",
        "model": _model_text(result["settings"]),
        "kernel": result["kernel"] and _kernel_text(result["kernel"]),
        "where": result["options"]["where"],
        "weights": _weights_text(result),
        "dual": f"sha256 {result['dual_sha256']}",
        "data": f"{_source_text(result)}, {_label_text(result['options'])}",
        "models": f"{len(result['lanes'])} in training; * marks the best" if len(result["lanes"]) > 1 else "",
        "progress": "" if loss is None else f"{measured} loss {loss:.5f}{gap}",
        "returned": result["update"] and _returned_text(result["update"]),
        "continue": _stream_text(result),
        "clipped": _clipped_text(result["clipped_values"]),
        "undo": earlier and undo_text(result["run"], earlier),
        **{f"damaged {number}": fault for number, fault in enumerate(result["damaged_checkpoints"], 1)},
        "ignored": result["ignored_files"]
        and f"{', '.join(result['ignored_files'])}: the name of a checkpoint is checkpoint-ROWS.arrows, with 15 digits",
    }
    return "\n\n".join([_present(pairs), *_tables(result)])


def _stream_text(result: dict[str, Any]) -> str:
    if result["stream_rows"] is None:
        return ""
    return (
        f"producer | streampgs resume {result['run']} -   from row {result['stream_rows']:,} of the stream (counted "
        "from 0), or from its first row with --skip-taken"
    )


def _clipped_text(clipped: dict[str, int]) -> str:
    most = sorted(clipped.items(), key=lambda one: -one[1])
    listed = ", ".join(f"{count:,} of {column}" for column, count in most[:_FIRST_COLUMNS])
    return f"{listed}{', …' if len(most) > _FIRST_COLUMNS else ''}"


def undo_text(run: str, checkpoints: Iterable[str]) -> str:
    return f"streampgs resume {quote(run)} --back-to ROWS returns to an earlier checkpoint: {', '.join(checkpoints)}"


def _returned_text(update: dict[str, Any]) -> str:
    """Which model is returned since the table has grown."""
    if update["going_on"]:
        return "the model from before the present update"
    judged = update["judged"]
    before = f" (before: {judged['before']['loss']:.4f})" if judged and judged["before"] else ""
    loss = f"; loss {judged['mixture']['loss']:.4f} on {judged['rows']:,} judged rows{before}" if before else ""
    return f"{mixed_text(update['shares'], update['shrink'])}{loss}"


def _progress_text(result: dict[str, Any]) -> str:
    if result["stream_rows"] is None:
        return f"in epoch {result['epoch']}"
    return f"including replayed rows; {result['stream_rows']:,} rows were taken from the stream"


def _model_text(settings: dict[str, Any]) -> str:
    hidden = ("solver", "loss") if SOLVERS[solver_of(settings["solver"])].steps_on_rows else ("solver", "loss", "batch")
    numbers = [
        f"no {name}" if value is None else f"{name} {_short(value)}"
        for name, value in settings.items()
        if name not in hidden
    ]
    return ", ".join([settings["solver"], settings["loss"], *numbers])


def _kernel_text(kernel: dict[str, Any]) -> str:
    degree = f" of degree {kernel['degree']}" if kernel["kernel"] == "polynomial" else ""
    features = f"{kernel['features']:,} kernel features of {kernel['inputs']:,} features"
    return f"{kernel['kernel']}{degree}, gamma {_short(kernel['gamma'])}, {features}"


def _weights_text(result: dict[str, Any]) -> str:
    several = len({lane["target"] for lane in result["lanes"]}) > 1
    intercept = "" if several else f", intercept {result['intercept']:.6g}"
    features = f" ({counted(result['features'], 'feature')})" if several else ""
    return f"{weights_text(result['nonzeros'], result['zeros'])}{features}{intercept}"


def _source_text(result: dict[str, Any]) -> str:
    if result["stream_rows"] is None:
        retired = result["retired"]
        gone = f"{counted(retired['rows'], 'row')} of {counted(retired['shards'], 'shard')} no longer trained on"
        return _catalog_text(result["catalog"]) + (f"; {gone}" if retired["shards"] else "")
    return f"a stream of {result['catalog']['layout']} rows on standard input"


def _label_text(options: dict[str, Any]) -> str:
    if isinstance(options["label"], list):
        return f"label columns {', '.join(options['label'])}"
    return f"label column '{options['label']}'" + (f", {len(options['classes'])} classes" if options["classes"] else "")


def _tables(result: dict[str, Any]) -> list[str]:
    kind = "training" if SOLVERS[solver_of(result["settings"]["solver"])].needs.columns else "prog."
    tables = [_lane_table(result["lanes"], kind)] if len(result["lanes"]) > 1 else []
    if result["path"]:
        tables.append(_path_table(result["path"]))
    if result.get("top"):
        tables.append(_top_table(result["top"]))
    if result.get("curves"):
        tables.append(_curves_table(result["curves"]))
    if result["dropped"]:
        leader = next(lane for lane in result["lanes"] if lane["leads"])
        tables.append(_race_table([{**leader, "loss": f"* {leader['loss']}"}, *result["dropped"]]))
    return tables


def _lane_table(lanes: list[dict[str, Any]], kind: str) -> str:
    """`kind`: which loss is shown."""
    choices = {name: f"{name}:.3g" for name in _choices(lanes[0])}
    measured = {
        f"{kind} loss": "progressive_loss:.5f",
        "accuracy": "progressive_accuracy:.5f",
        "merit": "merit:.5f",
        "gap": "gap:.3g",
    }
    return records_text({"": "leads", "target": "target", "loss": "loss", **choices, **measured, **_COUNTS}, lanes)


def _path_table(path: list[dict[str, Any]]) -> str:
    kinds = {"judged": "judged", "training": "training", "progressive": "prog."}
    measured = {f"{kinds[path[0]['judged_on']]} loss": "loss:.5f", "accuracy": "accuracy:.5f"}
    return records_text({"path": "leads", "l1": "l1:.3g", **measured, **_COUNTS}, path)


def _top_table(top: list[dict[str, Any]]) -> str:
    target = {"target": "target"} if len({one["target"] for one in top}) > 1 else {}
    columns = {**target, "weight": "weight:+.5g", "feature": "name"}
    return records_text(columns, top, left=[len(columns) - 1])


def _curves_table(curves: list[dict[str, Any]]) -> str:
    """Two lines for each curve: values, and what they add to the score."""
    several, lines = len({curve["target"] for curve in curves}) > 1, []
    for curve in curves:
        points, last = curve["points"], len(curve["points"]) - 1
        shown = [points[round(place * last / (_KNOTS_SHOWN - 1))] for place in range(_KNOTS_SHOWN)]
        shown = points if last < _KNOTS_SHOWN else shown
        padding = [""] * (_KNOTS_SHOWN - len(shown))
        name = f"{curve['column']} ({curve['target']})" if several else curve["column"]
        lines.append([name, *(f"{knot:.4g}" for knot, _ in shown), *padding])
        lines.append(["  adds", *(f"{effect:+.3f}" for _, effect in shown), *padding])
    return table_text(["curve of", *[""] * _KNOTS_SHOWN], lines, [0])


def _race_table(candidates: list[dict[str, Any]]) -> str:
    choices = {name: f"{name}:.3g" for name in _choices(candidates[0])}
    return records_text({"race": "loss", **choices, "dropped after rows": "rows:,", "merit": "merit:.5f"}, candidates)


def _choices(summary: dict[str, Any]) -> list[str]:
    """The names of the numbers by which candidates differ: those after the loss."""
    names = list(summary)[list(summary).index("loss") + 1 :]
    return names[: next(place for place, name in enumerate(names) if name in ("leads", "rows"))]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def data_text(result: dict[str, Any], all_columns: bool = False) -> str:
    encoding, columns, ignored = result["encoding"], result["columns"], result["ignored_files"]
    listed = all_columns or len(columns) <= _MOST_COLUMNS
    blocks = counted(result["blocks_per_window_first_epoch"], "block")
    pairs = {
        "data": _catalog_text(result["catalog"]),
        "columns": "" if listed else _columns_summary(columns),
        "features": encoding.get("columns"),
        "ignored": encoding.get("left out"),
        "window": f"{result['window_bytes'] / 1e6:,.1f} MB, about {result['rows_per_window']:,} rows from {blocks} in the "
        f"first epoch, {result['blocks_per_window_later']} later",
        "clustering": _clustering_text(result),
        "other files": f"{ignored}, whose names are not those of shards" if ignored else "",
    }
    table = records_text({"column": "name", "type": "type", "use": "use"}, columns, left=[0, 1, 2])
    return "\n\n".join([_present(pairs), *([table] if listed else [])])


def _present(pairs: dict[str, str]) -> str:
    return pairs_text({name: text for name, text in pairs.items() if text})


def _columns_summary(columns: list[dict[str, str]]) -> str:
    by_type = Counter(column["type"] for column in columns)
    counts = ", ".join(f"{number:,} {name}" for name, number in by_type.most_common())
    first = ", ".join(column["name"] for column in columns[:_FIRST_COLUMNS])
    return f"{len(columns):,}: {counts}; the first are {first} (--columns all lists them)"


def _clustering_text(result: dict[str, Any]) -> str:
    if result["clustering"] is None:
        return "unknown without a label: name it with --label COLUMN"
    rows = result["clustering_block_rows"]
    return f"{result['clustering']:.3f} (of labels in blocks of about {rows:,} rows; 0 mixed, 1 sorted)"
