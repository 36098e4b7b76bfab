"""A resume on trial: the model is measured before and after it, and the run is left as it was if a condition holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streampgs.base.errors import DataError, OptionError, counted
from streampgs.base.printable import without_secrets
from streampgs.data.refresh import NULL_SHARE
from streampgs.expressions.expression import check_condition, expression_of
from streampgs.model.evaluation import evaluate
from streampgs.model.metrics import METRICS
from streampgs.model.model import Model, load_model
from streampgs.options.commands import ResumeOptions
from streampgs.options.solvers import SOLVERS

_BEFORE = "before"
_EXAMPLE = 'write a condition such as "log_loss > 1.1 * before"'
_TINY = 1e-300
_DRIFT = "drift"
_FACTS = {_DRIFT: pa.bool_(), "missing_columns": pa.float64(), "new_columns": pa.float64()}
"""About the new rows."""
_NEED_NO_ROWS = f"{', '.join(_FACTS)} and {NULL_SHARE}COLUMN need no such rows"


def trial_for(options: ResumeOptions) -> Trial | None:
    """None if nothing is to be measured."""
    if not options.fail_if and not options.validation:
        return None
    return Trial(options.validation, [Condition(text) for text in options.fail_if])


class Condition:
    """A condition on one metric, or on one fact about the new rows. `before` is the value of the metric before the resume."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._expression = expression_of("--fail-if", text)
        source = self._expression.source
        names = [name for name in self._expression.columns if name != _BEFORE]
        if len(names) != 1:
            found = f"{source} names {'several metrics' if names else 'no metric'}"
            raise OptionError(found, f"{_EXAMPLE}; give each metric a condition of its own")
        (self.name,) = names
        self.column = self.name.removeprefix(NULL_SHARE) if self.name.startswith(NULL_SHARE) else None
        self.is_metric = self.column is None and self.name not in _FACTS
        if not self.is_metric and _BEFORE in self._expression.columns:
            raise OptionError(f"{source}: only metrics have a value before", "compare it with a number")
        if self.name in METRICS or not self.is_metric:
            check_condition(self._expression, {_BEFORE: pa.float64(), self.name: _FACTS.get(self.name, pa.float64())})

    def refuse_unknown(self, model: Model) -> None:
        solver, encoding = SOLVERS[model.options.solver], model.encoding
        if self.name == _DRIFT and solver.needs.passes:
            raise OptionError(
                f"{self._expression.source} with `--solver {model.options.solver}`, which does not judge new rows",
                "measure the model on rows of your own: `--validation DATA --fail-if 'loss > 1.1 * before'`",
            )
        known = [] if encoding is None else list(encoding.all_null_shares)
        if self.column is not None and self.column not in known:
            columns = f"its columns are {', '.join(known)}" if known else "its rows are lists of features"
            raise OptionError(f"{self._expression.source}: the run has no column '{self.column}'", columns)

    def value_in(self, metrics: dict[str, Any]) -> float:
        """The value of the metric."""
        if self.name not in metrics:
            raise OptionError(
                f"{self._expression.source}: '{self.name}' is not a metric of this model",
                f"its metrics are {', '.join(metrics)}; {_NEED_NO_ROWS}",
            )
        value = metrics[self.name]
        if value is None:
            raise DataError(
                f"{self._expression.source}: the validation rows give '{self.name}' no value",
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
        found = self._expression.values({self.name: pa.array([after]), _BEFORE: pa.array([before])}, 1)
        outcome: bool | None = found.cast(pa.bool_())[0].as_py()
        return outcome


class Trial:
    def __init__(self, sources: Sequence[str], conditions: Sequence[Condition]) -> None:
        self._sources, self._conditions = sources, conditions
        self._before: dict[str, Any] = {}
        self._rows = 0

    def begin(self, run: Path, checkpoint: Path, usual: Sequence[str]) -> None:
        """Measure the model of this checkpoint. `usual`: the validation data of the run, if no others were given."""
        metrics = [condition for condition in self._conditions if condition.is_metric]
        if metrics and not self._sources:
            self._sources = usual
            if not usual:
                raise OptionError(
                    "--fail-if without validation data",
                    f"name rows to measure the model on: `--validation DATA`; {_NEED_NO_ROWS}",
                )
        model = load_model(run, checkpoint)
        self._before = self._measured(model)
        for condition in metrics:
            condition.value_in(self._before)
        for condition in self._conditions:
            condition.refuse_unknown(model)

    def end(self, run: Path, drift: bool | None, shards: Mapping[str, float]) -> tuple[dict[str, Any], str]:
        """Measure the model of the newest checkpoint. The facts, of which `failed` has the conditions that hold; and the
        main ones in words. `drift`: of the new rows; None: they were not judged. `shards`: what is known of new shards."""
        before, after = self._before, self._measured(load_model(run))
        found = {one.name: shards.get(one.name, 0.0) for one in self._conditions} | {_DRIFT: bool(drift)} | after
        failed = [one.text for one in self._conditions if one.holds(before.get(one.name, 0.0), found[one.name])]
        facts = {
            "data": [without_secrets(source) for source in self._sources],
            "rows": self._rows,
            "before": before,
            "after": after,
            "conditions": [condition.text for condition in self._conditions],
            "failed": failed,
        }
        names = list(dict.fromkeys(condition.name for condition in self._conditions)) or ["loss"]
        texts = [f"{name} {_figure(found[name])}" for name in names if name not in after]
        if drift is None and _DRIFT in names:
            texts = ["no new rows were judged, so that drift is not known"]
        figures = [
            f"{name} {_figure(before[name])} before and {_figure(after[name])} after training"
            for name in names
            if name in after
        ]
        if figures:
            texts.append(f"validation on {counted(self._rows, 'row')}: {', '.join(figures)}")
        return facts, "; ".join(texts)

    def _measured(self, model: Model) -> dict[str, Any]:
        if not self._sources:
            return {}
        result = evaluate(model, self._sources)
        self._rows = result["rows"]
        return {name: result[name] for name in METRICS if isinstance(result.get(name, ""), float | None)}


def _figure(value: float | None) -> str:
    return "without a value" if value is None else str(value) if isinstance(value, bool) else f"{value:.5g}"
