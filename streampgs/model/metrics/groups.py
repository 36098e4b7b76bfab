"""The same metrics for groups of rows, such as those of one city."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.losses import Vector
from streampgs.model.metrics.registry import Metrics
from streampgs.model.metrics.sums import FULL, Size, Task

MOST_GROUPS = 1_000
OTHER = "other"
_WAITING_VALUES = 1 << 20
_OTHERS = -1  # the number of the group of all later values
_OF_A_GROUP = Size(exact_rows=1 << 11, bins=1 << 9, listed_classes=10)


class LabelMetrics:
    """The metrics of each of some label columns."""

    def __init__(self, task: Task, labels: int, size: Size = FULL) -> None:
        self.rows = 0
        self._each = [Metrics(task, size) for _ in range(labels)]

    def add(self, scores: Vector, labels: Vector, weights: Vector) -> None:
        self.rows += len(weights)
        for number, metrics in enumerate(self._each):
            place = (slice(None), number) if len(self._each) > 1 else slice(None)
            metrics.add(np.ascontiguousarray(scores[place]), np.ascontiguousarray(labels[place]), weights)

    def results(self, names: Sequence[str]) -> dict[str, Any]:
        """With several labels: means, and the results of each label by name under `labels`."""
        found = [metrics.results() for metrics in self._each]
        if len(found) == 1:
            return found[0]
        means = _means(found)
        means["baseline"] = _means([one["baseline"] for one in found])
        return {**means, "labels": dict(zip(names, found, strict=True))}


def _means(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The means of the numbers that all have."""
    values = {name: [one[name] for one in found] for name in found[0]}
    return {
        name: float(np.mean(some)) for name, some in values.items() if all(isinstance(one, float | int) for one in some)
    }


class GroupMetrics:
    """Metrics for each value of a column. The first values have a group each; later ones share one."""

    def __init__(self, new: Callable[[Size], LabelMetrics], most: int = MOST_GROUPS) -> None:
        self._most = most
        self._numbers: dict[Any, int] = {}
        self._groups: defaultdict[int, LabelMetrics] = defaultdict(lambda: new(_OF_A_GROUP))
        self._waiting: list[tuple[NDArray[np.int64], Vector, Vector, Vector]] = []
        self._waiting_values = 0

    def add(self, values: pa.Array, scores: Vector, labels: Vector, weights: Vector) -> None:
        """Rows wait until they are many: a call for each group costs as much as some hundred rows."""
        self._waiting.append((self._codes(values), scores.copy(), labels.copy(), weights.copy()))
        self._waiting_values += scores.size + labels.size
        if self._waiting_values >= _WAITING_VALUES:
            self._flush()

    def _codes(self, values: pa.Array) -> NDArray[np.int64]:
        coded = pc.dictionary_encode(values, null_encoding="encode")
        numbers = [self._number_of(group_value(value)) for value in coded.dictionary.to_pylist()]
        return np.asarray(np.array(numbers, np.int64)[np.asarray(coded.indices)])

    def _number_of(self, value: Any) -> int:
        key = (type(value), value)  # True equals 1
        if key not in self._numbers and len(self._numbers) < self._most:
            self._numbers[key] = len(self._numbers)
        return self._numbers.get(key, _OTHERS)

    def _flush(self) -> None:
        if not self._waiting:
            return
        codes, scores, labels, weights = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        self._waiting, self._waiting_values = [], 0
        order = np.argsort(codes, kind="stable")
        ends = np.flatnonzero(np.diff(codes[order], append=codes.max() + 1)) + 1
        for rows in np.split(order, ends[:-1]):
            self._groups[int(codes[rows[0]])].add(scores[rows], labels[rows], weights[rows])

    def results(self, column: str, names: Sequence[str]) -> dict[str, Any]:
        """Groups in descending order of their rows."""
        self._flush()
        groups = [
            {"value": value, "rows": self._groups[number].rows, **self._groups[number].results(names)}
            for (_, value), number in self._numbers.items()
        ]
        groups.sort(key=lambda group: -group["rows"])
        found: dict[str, Any] = {"column": column, "groups": groups}
        if _OTHERS in self._groups:
            found[OTHER] = {"rows": self._groups[_OTHERS].rows, **self._groups[_OTHERS].results(names)}
        return found


def group_value(value: Any) -> Any:
    """A JSON value; whole numbers are integers."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value == int(value) else value
    return value if value is None or isinstance(value, bool | int | str) else str(value)
