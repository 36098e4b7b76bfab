"""A model on rows that it was not trained on: its metrics, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streampgs.base.errors import DataError
from streampgs.data.open import columns_of
from streampgs.model.metrics import METRICS, GroupMetrics, LabelMetrics
from streampgs.model.metrics.sums import FULL
from streampgs.model.model import Model
from streampgs.model.scoring import ScoredBlock, ShardScores
from streampgs.reading.bad_rows import counts_by_name
from streampgs.run.folder import RunFolder, finite_or_null
from streampgs.run.history import EVALUATED
from streampgs.table.layout import NoColumn

_MOST_NAMES = 100  # of data in an event of the history


def evaluate(
    model: Model,
    sources: Sequence[str],
    skip_bad_rows: bool = False,
    by: str | None = None,
    threshold: float | None = None,
    where: str | None = None,
) -> dict[str, Any]:
    """The number of rows, all metrics that apply to the model, and under `baseline` what the best constant prediction
    gets. With several labels: the means of the metrics, and under `labels` the metrics of each label.

    `by`: a column; `by` has the metrics for each of its values. `threshold`: the least probability at which the positive
    class is predicted. `where`: a condition of the rows, instead of the one that the model was trained with. A row of a
    class that the model does not know counts as an error of the accuracy, and is counted.
    """
    evaluation = _Evaluation(model if threshold is None else model.with_threshold(threshold), by)
    options = model.options if where is None else replace(model.options, where=where)
    columns = columns_of(replace(options, class_weight=None), model.encoding)
    others = () if by is None else (by,)
    try:
        scores = ShardScores(model, sources, columns, skip_bad_rows, others, keep_unknown=model.classifies)
    except NoColumn as error:
        raise DataError(error.found, _remedy(error)) from error
    for block in scores.blocks():
        evaluation.add(block)
    return {**evaluation.result(), **scores.selection(options.where)}


def record(model: Model, data: Sequence[str], result: Mapping[str, Any]) -> None:
    """Add the metrics, as `evaluate` returned them, to the history of the model's run."""
    metrics = {name: value for name, value in result.items() if name in METRICS and isinstance(value, float)}
    RunFolder(model.checkpoint.parent).append_event(
        EVALUATED,
        model.rows,
        model.steps,
        data=list(data[:_MOST_NAMES]),
        evaluated_rows=result["rows"],
        metrics=finite_or_null(metrics),
    )


def _remedy(error: NoColumn) -> str:
    if error.role == "label":
        return f"the model predicts '{error.name}': the table needs that column (`streampgs predict` needs none)"
    return f"the model was trained with `--{error.role} {error.name}`: the table needs that column"


class _Evaluation:
    def __init__(self, model: Model, by: str | None) -> None:
        self._model = model
        self._labels = model.options.labels
        self._by = by
        new = partial(LabelMetrics, model.task, len(self._labels))
        self._whole = new(FULL)
        self._groups = None if by is None else GroupMetrics(new)
        self._unknown_entries = self._unknown_classes = 0
        self._skipped: Counter[int] = Counter()
        self._clipped: Counter[str] = Counter()

    def add(self, block: ScoredBlock) -> None:
        window, labels = block.window, block.window.labels
        weights = window.weights if window.weights.size else np.ones(len(window))
        self._whole.add(block.scores, labels, weights)
        self._unknown_entries += int(np.count_nonzero(window.indices >= self._model.features))
        self._unknown_classes += int(np.count_nonzero(np.isnan(labels)))
        self._skipped.update(window.counts.skipped)
        self._clipped.update(window.counts.clipped)
        if self._groups is not None:
            first = 0
            for part in block.kept_others():
                rows = slice(first, first + part.num_rows)
                self._groups.add(part.column(0), block.scores[rows], labels[rows], weights[rows])
                first += part.num_rows

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = {"rows": self._whole.rows}
        model, labels = self._model, self._labels
        if model.classifies and len(labels) == 1:
            result["classes"] = model.classes_of(0).tolist()
        result |= self._whole.results(labels)
        if model.classifies and len(labels) > 1:
            for number, name in enumerate(labels):
                result["labels"][name]["classes"] = model.classes_of(number).tolist()
        counts = {
            "unknown_class_rows": self._unknown_classes,
            "unknown_entries": self._unknown_entries,
            "skipped_rows": counts_by_name(self._skipped),
            "clipped_values": dict(self._clipped),
        }
        result |= {name: count for name, count in counts.items() if count}
        found = [result]
        if self._groups is not None and self._by is not None:
            result["by"] = by = self._groups.results(self._by, self._labels)
            found += [*by["groups"], *([by["other"]] if "other" in by else [])]
        for one in found:
            _name_classes(one, result.get("classes"))
        return result


def _name_classes(found: dict[str, Any], classes: Sequence[Any] | None) -> None:
    """In the list of classes, the name and the AUC of each."""
    areas, listed = found.pop("class_auc", None), found.get("per_class")
    if listed is not None and classes is not None:
        areas = areas or [None] * len(listed)
        found["per_class"] = [
            {"class": name, **one, "auc": area} for name, one, area in zip(classes, listed, areas, strict=True)
        ]
