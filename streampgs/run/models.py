"""The models of a run: their lanes, the race between them, and the engine that steps them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from streampgs.checks import Count, decode, require
from streampgs.data.row_form import RowForm
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lanes import Lanes
from streampgs.reading.window import Window
from streampgs.run.fitting import refuse_too_wide
from streampgs.run.lineages import Lineages, bytes_of_others
from streampgs.selection.grid import enter_first, enter_other_sigmas, take_in_growth, warm_up
from streampgs.selection.race import Race
from streampgs.solvers import SOLVERS
from streampgs.stage import Bundle, Stage

# For --target-accuracy, validation rows are judged whenever the rows have grown by an eighth, and only when the progressive
# accuracy is near: it is that of single iterates, and so lower.
_FIRST_LOOK, _LOOK_GROWTH, _NEAR_TARGET = 4096, 1.125, 0.05
_CENTRING_GROWTH = 1.125

Judged = tuple[float | None, float | None]
"""Loss and accuracy."""


class Models:
    """Its own section holds the changes that are due when the next window is opened."""

    name = "models"

    def __init__(self, form: RowForm) -> None:
        self.form = form
        self.lanes = Lanes()
        self.race = Race(self.lanes)
        self.lineages = Lineages(self.race, form.options.seed, form.options.threads)
        self.changes_sigma = False
        """Sigma has another value from the next window on."""
        self._centred = 0
        """How many rows there were when the leader's constants were last found."""
        self._looks = 0
        """How often validation rows were due to be judged."""
        self._looked: Judged | None = None

    @property
    def started(self) -> bool:
        return len(self.lanes) > 0

    @property
    def features(self) -> int:
        return self.lanes.features

    @property
    def nbytes(self) -> int:
        """Of the arrays that grow with the features."""
        return self.lanes.nbytes + bytes_of_others(self.lineages)

    def stages(self) -> list[Stage]:
        return [self.lanes, self.race, *self.lineages.stages(), self]

    def state(self) -> Bundle:
        return Bundle(
            {
                "changes_sigma": self.changes_sigma,
                "centred": self._centred,
                "looks": self._looks,
                "sigma_rows": self.lineages.sigma_rows,
            }
        )

    def restore(self, bundle: Bundle) -> None:
        self.changes_sigma |= decode(bool, bundle.values["changes_sigma"])
        self._centred = decode(Count, bundle.values["centred"])
        self._looks = decode(Count, bundle.values["looks"])
        rows = bundle.values["sigma_rows"]
        self.lineages.sigma_rows = None if rows is None else decode(Count, rows)
        for spec in self.lanes.specs:
            require(spec.layout == self.form.layout, f"a model of {spec.layout} rows for {self.form.layout} ones")
            require(spec.target.column < len(self.form.options.labels), f"label {spec.target.column}")

    def warm_up(self) -> None:
        """Load, or compile, the loops of the first step, as far as they are known without any rows."""
        if not self.started:
            warm_up(self.form.options, self.form.layout)

    def take_in(self, form: RowForm) -> None:
        """Continue with rows of another form: there may be new columns and new classes."""
        self.form = form
        if not self.started:
            return
        if form.feature_count is not None:
            self._grow(form.feature_count)
        kept = take_in_growth(self.race, form.options, form.layout)
        self.lineages.take_in(form.layout, kept)
        self.race.validation = form.validation(self.features)

    def _grow(self, features: int) -> None:
        self.lanes.grow(features)
        self.lineages.grow(features)

    # A window.

    def prepare(
        self,
        window: Window,
        epoch_rows: int,
        rows_done: int,
        check: Callable[[Sequence[LaneSpec], int], object] | None = None,
    ) -> LaneSpec | None:
        """Bring the lanes up to date before the first step on a window. The leader before, if sigma has changed.

        `check`: called with the first lanes and the number of features, before they get memory."""
        form, before = self.form, None
        if not self.started:
            features = form.feature_count or window.largest_index + 1
            self.race.validation = form.validation(features)
            enter_first(self.race, form.options, window, form.layout, epoch_rows, features, check)
            refuse_too_wide(self.lanes, window, form.options.threads)
            self._grow(form.feature_count or 0)
            self.lineages.sigma_rows = self._rows_of_sigma(epoch_rows)
        elif self.changes_sigma:
            before = enter_other_sigmas(self.race, form.options, window, form.layout, epoch_rows, rows_done)
            self.lineages.forget()
            self.lineages.sigma_rows = self._rows_of_sigma(epoch_rows)
            self._looked = None
        self.changes_sigma = False
        self._grow(window.largest_index + 1)
        return before

    def _rows_of_sigma(self, rows: int) -> int | None:
        """The rows for which sigma is found now; None where the user or the solver says what it is."""
        options = self.form.options
        return rows if options.sigma == "auto" and "sigma" in SOLVERS[options.solver].options else None

    @property
    def next_mark(self) -> int | None:
        """The row count of the next mark; None in an update, which judges by its own rows."""
        return None if self.lineages.in_update else self.race.next_mark

    def judge(self, window: Window, row: int, rows_done: int, epoch_rows: int) -> LaneSpec | None:
        """At a mark of the race; the winner, if this has ended it."""
        mark = self.next_mark
        if mark is None or rows_done < mark or not self.race.judge(window, row, rows_done, epoch_rows):
            return None
        return self.race.leading() if len(self.race.progress.left) == 1 else None

    def centre(self, window: Window, rows_done: int) -> None:
        """At the end of a window, if there are many more rows than at the last time. In an update constants stay: its rows
        may be few, or of another kind than the next ones."""
        if self.lineages.in_update or rows_done < _CENTRING_GROWTH * self._centred:
            return
        if self.lineages.begun:
            self.lineages.centre(window)
        else:
            self.race.centre(window)
        self._centred = rows_done

    # How good the leader is.

    def gap(self) -> float | None:
        """The mean certificate over targets; None if the solver has none, or before the first step."""
        if not self.started or not self.lanes.steps:
            return None
        gaps = [self.lanes.certificate(lane) for lane in self.race.leading_lanes()]
        known = [gap for gap in gaps if gap is not None]
        return sum(known) / len(known) if known else None

    def remarks(self) -> list[str]:
        weight = self.form.options.weight
        if weight is None or not self.lanes.steps or self.progressive()[0] is not None:
            return []
        return [f"all rows have weight 0 in column '{weight}': the model has learned nothing"]

    def progressive(self) -> Judged:
        """Loss and accuracy over the leader's steps, each row before it was trained on; the mean over targets. With more
        than two classes there is no accuracy."""
        if not self.started:
            return None, None
        lanes = self.race.leading_lanes()
        tallies = [self.lanes.tallies(lane) for lane in lanes]
        weight = sum(tally.weight for tally in tallies)
        if not weight:
            return None, None
        accuracy = sum(tally.correct for tally in tallies) / weight
        options = self.form.options
        known = options.classifies and not options.multiclass
        losses = (self.lanes.specs[lane].in_label_units(tally.loss) for lane, tally in zip(lanes, tallies, strict=True))
        return sum(losses) / weight, accuracy if known else None

    def judged(self) -> Judged:
        """Of the weights that would be returned, when they were last judged."""
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

    def chosen(self) -> dict[str, Any] | None:
        """The leading candidate."""
        if not self.started:
            return None
        leading = self.race.leading()
        return {"loss": leading.loss, **leading.choices}
