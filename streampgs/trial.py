"""A resume on trial: the model is measured before and after it, and the run is left as it was if a condition holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streampgs.errors import DataError, OptionError, counted
from streampgs.evaluation import evaluate
from streampgs.expressions.expression import Expression, check_condition
from streampgs.expressions.parser import parsed
from streampgs.expressions.tree import Source
from streampgs.metrics import METRICS
from streampgs.model import load_model
from streampgs.options import ResumeOptions
from streampgs.printable import without_secrets

_BEFORE = "before"
_EXAMPLE = 'write a condition such as "log_loss > 1.1 * before"'
_TINY = 1e-300


def trial_for(options: ResumeOptions) -> Trial | None:
    """None if nothing is to be measured."""
    if not options.fail_if and not options.validation:
        return None
    return Trial(options.validation, [Condition(text) for text in options.fail_if])


class Condition:
    """A condition on one metric; `before` is the value of the metric before the resume."""

    def __init__(self, text: str) -> None:
        source = Source("--fail-if", text)
        self.text = text
        self._expression = Expression(source, parsed(source))
        names = [name for name in self._expression.columns if name != _BEFORE]
        if len(names) != 1:
            raise OptionError(
                f"{source} names {'no metric' if not names else 'several metrics'}",
                f"{_EXAMPLE}; give each metric a condition of its own",
            )
        (self.metric,) = names
        if self.metric in METRICS:
            check_condition(self._expression, {name: pa.float64() for name in self._expression.columns})

    def value_in(self, metrics: dict[str, Any]) -> float:
        """The value of the metric."""
        if self.metric not in metrics:
            raise OptionError(
                f"{self._expression.source}: '{self.metric}' is not a metric of this model",
                f"its metrics are {', '.join(metrics)}",
            )
        value = metrics[self.metric]
        if value is None:
            raise DataError(
                f"{self._expression.source}: the validation rows give '{self.metric}' no value",
                "give other rows, or choose another metric",
            )
        return float(value)

    def holds(self, before: float, after: float | None) -> bool:
        """A value that is not finite or not known fulfils every condition: a model that predicts no positive row has no
        precision. A value of 0 in a denominator counts as a tiny one, so 0 / 0 is 1."""
        if after is None or not math.isfinite(after):
            return True
        held = self._outcome(before, after)
        return (self._outcome(before or _TINY, after or _TINY) if held is None else held) is not False

    def _outcome(self, before: float, after: float) -> bool | None:
        found = self._expression.values({self.metric: pa.array([after]), _BEFORE: pa.array([before])}, 1)
        outcome: bool | None = found.cast(pa.bool_())[0].as_py()
        return outcome


class Trial:
    def __init__(self, sources: Sequence[str], conditions: Sequence[Condition]) -> None:
        self._sources, self._conditions = sources, conditions
        self._before: dict[str, Any] = {}
        self._rows = 0

    def begin(self, run: Path, checkpoint: Path, usual: Sequence[str]) -> None:
        """Measure the model of this checkpoint. `usual`: the validation data of the run, if no others were given."""
        self._sources = self._sources or usual
        if not self._sources:
            raise OptionError(
                "--fail-if without validation data", "name rows to measure the model on: --validation DATA"
            )
        self._before = self._measured(run, checkpoint)
        for condition in self._conditions:
            condition.value_in(self._before)

    def end(self, run: Path) -> tuple[dict[str, Any], str]:
        """Measure the model of the newest checkpoint. The facts, of which `failed` has the conditions that hold; and the
        main ones in words."""
        before, after = self._before, self._measured(run, None)
        failed = [one.text for one in self._conditions if one.holds(one.value_in(before), after.get(one.metric))]
        facts = {
            "data": [without_secrets(source) for source in self._sources],
            "rows": self._rows,
            "before": before,
            "after": after,
            "conditions": [condition.text for condition in self._conditions],
            "failed": failed,
        }
        shown = dict.fromkeys(condition.metric for condition in self._conditions) or ["loss"]
        figures = [f"{name} {_figure(before[name])} before and {_figure(after[name])} after training" for name in shown]
        return facts, f"validation on {counted(self._rows, 'row')}: {', '.join(figures)}"

    def _measured(self, run: Path, checkpoint: Path | None) -> dict[str, Any]:
        result = evaluate(load_model(run, checkpoint), self._sources)
        self._rows = result["rows"]
        return {name: result[name] for name in METRICS if isinstance(result.get(name, ""), float | None)}


def _figure(value: float | None) -> str:
    return "without a value" if value is None else f"{value:.5g}"
