"""The text of `streampgs evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from streampgs.cli.console import pairs_text, table_text
from streampgs.model.metrics import HEADINGS, METRICS

_MOST_CLASSES = 10  # of a confusion matrix, as text
_MOST_LISTED_CLASSES = 40
_MOST_GROUPS = 40
_OF_GROUPS = (
    "base_rate", "accuracy", "precision", "recall", "macro_f1", "auc", "log_loss", "calibration_error",
    "r2", "rmse", "mae", "mean_label", "mean_prediction",
)  # fmt: skip


def evaluation_text(result: Mapping[str, Any]) -> str:
    parts = [pairs_text(_facts(result)), _metrics(result)]
    if "per_class" in result:
        parts.append(_per_class(result))
    if result.get("confusion") is not None and len(result["confusion"]) <= _MOST_CLASSES:
        parts.append(_confusion(result))
    if "labels" in result:
        parts.append(_labels(result["labels"]))
    if "by" in result:
        parts.append(_groups(result["by"]))
    return "\n\n".join(part for part in parts if part)


def _facts(result: Mapping[str, Any]) -> dict[str, str]:
    facts = {"rows": f"{result['rows']:,}"}
    classes = result.get("classes")
    if classes is not None and len(classes) == 2 and "labels" not in result:
        facts["classes"] = f"{_value(classes[1])} is positive, {_value(classes[0])} negative"
    elif classes is not None and len(classes) > 2:
        facts["classes"] = f"{len(classes):,}"
    return facts


def _metrics(result: Mapping[str, Any]) -> str:
    baseline = result["baseline"]
    rows = []
    for heading in HEADINGS:
        for name, metric in METRICS.items():
            if metric.heading == heading and isinstance(result.get(name, ""), float | int | None):
                constant = _number(baseline[name]) if name in baseline else ""
                rows.append([name, _number(result[name]), constant, metric.title])
    return table_text(["metric", "model", "constant", ""], rows, left=(0, 3))


def _per_class(result: Mapping[str, Any]) -> str:
    if result["per_class"] is None:
        return ""
    columns = ("precision", "recall", "f1", "auc", "support")
    found = sorted(result["per_class"], key=lambda one: -one["support"])
    rows = [
        [_value(one["class"]), *(_number(one.get(name)) for name in columns[:-1]), f"{one['support']:,.10g}"]
        for one in found[:_MOST_LISTED_CLASSES]
    ]
    text = table_text(["class", *columns], rows, left=(0,))
    return text + _more(len(found) - len(rows), "classes")


def _confusion(result: Mapping[str, Any]) -> str:
    names = [_value(one) for one in result["classes"]]
    rows = [
        [name, *(f"{value:,.10g}" for value in line)] for name, line in zip(names, result["confusion"], strict=True)
    ]
    return table_text(["label, predicted:", *names], rows, left=(0,))


def _labels(labels: Mapping[str, Mapping[str, Any]]) -> str:
    return _table("label", [(name, found) for name, found in labels.items()], rows=False)


def _groups(by: Mapping[str, Any]) -> str:
    named = [(_value(group["value"]), group) for group in by["groups"][:_MOST_GROUPS]]
    more = len(by["groups"]) - len(named)
    if "other" in by:
        named.append(("(other values)", by["other"]))
    return _table(by["column"], named, rows=True) + _more(more, "values")


def _table(head: str, named: Sequence[tuple[str, Mapping[str, Any]]], rows: bool) -> str:
    names = [name for name in _OF_GROUPS if any(isinstance(found.get(name), float | int) for _, found in named)]
    lines = [
        [name, *([f"{found['rows']:,}"] if rows else []), *(_number(found.get(metric)) for metric in names)]
        for name, found in named
    ]
    return table_text([head, *(["rows"] if rows else []), *names], lines, left=(0,))


def _more(count: int, what: str) -> str:
    return "\n" + click.style(f"… and {count:,} more {what}: --json lists them", dim=True) if count > 0 else ""


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e3 else f"{value:.4g}"


def _value(value: Any) -> str:
    if value is None:
        return "(null)"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
