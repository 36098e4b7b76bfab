"""The text of `streampgs evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from streampgs.cli.console import pairs_text, records_text, table_text
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
    found = sorted(result["per_class"], key=lambda one: -one["support"])
    shown = [{**one, "class": _value(one["class"])} for one in found[:_MOST_LISTED_CLASSES]]
    text = _table({"class": "class"}, shown, ("precision", "recall", "f1", "auc"), {"support": "support:,.10g"})
    return text + _more(len(found) - _MOST_LISTED_CLASSES, "classes")


def _confusion(result: Mapping[str, Any]) -> str:
    names = [_value(one) for one in result["classes"]]
    rows = [
        [name, *(f"{weight:,.10g}" for weight in line)] for name, line in zip(names, result["confusion"], strict=True)
    ]
    return table_text(["label, predicted:", *names], rows, left=(0,))


def _labels(labels: Mapping[str, Mapping[str, Any]]) -> str:
    found = [{**found, "name": name} for name, found in labels.items()]
    return _table({"label": "name"}, found, _present(found))


def _groups(by: Mapping[str, Any]) -> str:
    groups = [{**group, "value": _value(group["value"])} for group in by["groups"][:_MOST_GROUPS]]
    if "other" in by:
        groups.append({**by["other"], "value": "(other values)"})
    text = _table({by["column"]: "value", "rows": "rows:,"}, groups, _present(groups))
    return text + _more(len(by["groups"]) - _MOST_GROUPS, "values")


def _present(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The metrics that some of them have."""
    return [name for name in _OF_GROUPS if any(isinstance(one.get(name), float | int) for one in found)]


def _table(
    heads: Mapping[str, str], found: Sequence[Mapping[str, Any]], metrics: Sequence[str], last: Mapping[str, str] = {}
) -> str:
    shown = [{**one, **{name: _number(one.get(name)) for name in metrics}} for one in found]
    return records_text({**heads, **{name: name for name in metrics}, **last}, shown, left=(0,))


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
