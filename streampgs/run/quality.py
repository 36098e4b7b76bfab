"""How good the leading model of a run is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from streampgs.data.row_form import RowForm
from streampgs.learn.lanes import Lanes
from streampgs.losses import LOSSES
from streampgs.options.solvers import SOLVERS
from streampgs.selection.race import Race
from streampgs.selection.returned import nonzeros_and_zeros

# For --target-accuracy, validation rows are judged whenever the rows have grown by an eighth, and only when the progressive
# accuracy is near: it is that of single iterates, and so lower.
_FIRST_LOOK, _LOOK_GROWTH, _NEAR_TARGET = 4096, 1.125, 0.05

# With weights 0, the mean loss of classes is that of the score 0, and the mean loss of numbers is about 1 in the models' unit.
_MUCH_WORSE, _OF_NUMBERS = 2.0, 5.0

Judged = tuple[float | None, float | None]
"""Loss and accuracy."""


def progressive_of(lanes: Lanes, numbers: Sequence[int]) -> Judged:
    """Loss and accuracy over the steps of these lanes, each row before it was trained on; None without any row."""
    tallies = [lanes.tallies(number) for number in numbers]
    weight = sum(tally.weight for tally in tallies)
    if not weight:
        return None, None
    losses = (lanes.specs[number].in_label_units(tally.loss) for number, tally in zip(numbers, tallies, strict=True))
    return sum(losses) / weight, sum(tally.correct for tally in tallies) / weight


class Quality:
    def __init__(self, form: RowForm, race: Race) -> None:
        self.form, self.race, self.lanes = form, race, race.lanes
        self._looks = 0
        """How often validation rows were due to be judged."""
        self._looked: Judged | None = None

    @property
    def started(self) -> bool:
        return len(self.lanes) > 0

    def gap(self) -> float | None:
        """The mean certificate over targets; None if the solver has none, or before the first step."""
        if not self.started or not self.lanes.steps:
            return None
        gaps = [self.lanes.certificate(lane) for lane in self.race.leading_lanes()]
        known = [gap for gap in gaps if gap is not None]
        return sum(known) / len(known) if known else None

    def relative_gap(self) -> float | None:
        """The largest certificate as a share of the objective of weights 0; None if one is not known."""
        return self.lanes.relative_gap() if self.started else None

    def remarks(self) -> list[str]:
        return [*self._remarks_on_weights(), *self._remarks_on_held_rows(), *self._remarks_on_steps()]

    def _remarks_on_held_rows(self) -> list[str]:
        if not self.lanes.hold_out():
            return []
        return [
            "a tenth of the rows is held out until the best candidate is known, and no model has been trained on it yet: train "
            "for more epochs, or start a run with `--validation DATA`, which holds no rows out"
        ]

    def _remarks_on_steps(self) -> list[str]:
        """Losses whose slope is bounded do not leave the range of numbers, however large the steps are."""
        options, measured = self.form.options, self.progressive()[0]
        if "step" not in SOLVERS[options.solver].options or measured is None:
            return []
        spec = self.lanes.specs[self.race.leading_lanes()[0]]
        loss = LOSSES[spec.loss]
        if loss.lowest_label == 0.0:
            return []  # the loss of large counts is large
        usual = loss.value(0.0, 1.0, spec.shape) if loss.classifies else _OF_NUMBERS
        limit = spec.in_label_units(_MUCH_WORSE * usual)
        if measured <= limit:
            return []
        return [
            f"the mean loss before each step, {measured:.4g}, is far above that of weights 0: steps of {spec.own.step:.4g} are "
            "too large; in a new run give a smaller --step, or leave it out"
        ]

    def _remarks_on_weights(self) -> list[str]:
        weight = self.form.options.weight
        if weight is None or not self.lanes.steps or self.progressive()[0] is not None:
            return []
        if SOLVERS[self.form.options.solver].needs.columns and self.gap() is None:
            return []  # no column has been visited yet
        return [f"all rows have weight 0 in column '{weight}': the model has learned nothing"]

    def progressive(self) -> Judged:
        """Loss and accuracy over the leader's steps, each row before it was trained on; the mean over targets. With more
        than two classes there is no accuracy."""
        if not self.started:
            return None, None
        loss, accuracy = progressive_of(self.lanes, self.race.leading_lanes())
        options = self.form.options
        return loss, accuracy if options.classifies and not options.multiclass else None

    def judged(self) -> Judged:
        """Loss and accuracy of the weights that would be returned, when they were last judged."""
        # A judgement of the winner when a race ended is out of date later.
        latest = self.race.latest() if self.race.next_mark is not None else None
        return self._looked or latest or (None, None)

    def shown(self) -> Judged:
        """Loss and accuracy for the status line."""
        return self.judged() if self._looked or self.form.options.multiclass else self.progressive()

    def look(self) -> None:
        """Judge the leader on all validation rows."""
        if self.race.validation is not None and self.started:
            self._looked = self.race.look()

    def accuracy_for(self, target: float, rows_done: int) -> float | None:
        """The accuracy that --target-accuracy is compared with; None: nothing new is known."""
        progressive = self.progressive()[1]
        if not self.form.options.validation:
            return self.judged()[1] if self.form.options.multiclass else progressive
        looks = int(math.log(max(rows_done / _FIRST_LOOK, 1.0), _LOOK_GROWTH))
        if looks == self._looks:
            return None
        self._looks = looks
        if progressive is not None and progressive < target - _NEAR_TARGET:
            return None
        self.look()
        return self.judged()[1]

    def nonzeros_and_zeros(self) -> tuple[int, int]:
        """How many weights of the model that is returned are not exactly zero, and how many are."""
        if not self.started:
            return 0, 0
        assert self.race.returned is not None
        return nonzeros_and_zeros(self.race.returned, self.race.leading_lanes())

    def chosen(self) -> dict[str, Any] | None:
        """The leading candidate."""
        if not self.started:
            return None
        leading = self.race.leading()
        return {"loss": leading.loss, **leading.choices}
