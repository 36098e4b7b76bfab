"""The models of a run: their lanes, the race between them, and the engine that steps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streampgs.base.checks import Count, decode, require
from streampgs.base.stage import Bundle, Stage
from streampgs.data.feature_maps import FeatureMap, FrequencyScale, MapStage, first_map, found_map
from streampgs.data.row_form import RowForm
from streampgs.kernels.rows import AnyRows, Rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lanes import Lanes
from streampgs.options.solvers import SOLVERS
from streampgs.order.schedule import WindowPlan
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window
from streampgs.run.fitting import refuse_too_wide
from streampgs.run.lineages import LINEAGES, Lineages, bytes_of_others
from streampgs.run.quality import Quality
from streampgs.selection.cross_validation import Told, untold
from streampgs.selection.grid import enter_first, enter_other_sigmas, take_in_growth, warm_up, warm_up_again
from streampgs.selection.held_out import best_when_converged, judge_after_sweep
from streampgs.selection.mixture import rows_to_judge
from streampgs.selection.race import Race
from streampgs.selection.returned import losses_of, scores_of
from streampgs.table.layout import SPARSE

_CENTRING_GROWTH = 1.125
_MEASURED = 4
"""One in so many rows of the last window of the first epoch is judged before it is trained on."""


class Mapping(MapStage):
    def __init__(self) -> None:
        super().__init__()
        self._validation: Rows | None = None
        """The validation rows as they were read."""
        self._mapped: Rows | None = None
        """The same as the solver takes them."""

    def warm_up(self, form: RowForm) -> None:
        """Compile, or load from the cache, the loops of the map."""
        if form.options.kernel is None:
            return
        indices = np.zeros(int(form.layout == SPARSE), np.uint32)
        window = Rows(np.zeros(1, np.int64), np.ones(1, np.int64), indices, np.ones(1, np.float32), features=1)
        warmed = found_map(form.options, form.layout, 1, window)
        warmed.learn(window)
        warmed.mapped(window)

    def inputs(self, features: int) -> int:
        """The features of the rows as they are read, for a model of so many."""
        return features if self.map is None else self.map.inputs

    def expected_features(self, features: int, times: float) -> int:
        """Those of the model, once it has met so many times the rows of its first window."""
        return features if self.numbering is None else self.numbering.expected_width(times)

    @property
    def kernel(self) -> FeatureMap | None:
        return self.map if isinstance(self.map, FeatureMap) else None

    def features_of(self, form: RowForm) -> int | None:
        """The features of the model, where they are known before its next row."""
        if self.map is None:
            return form.feature_count
        self.map.grow(form.feature_count or 0)
        return self.map.width

    def of(self, form: RowForm, window: AnyRows, is_first: bool) -> AnyRows:
        """The rows as the solver takes them, until the next call."""
        if is_first:
            self.map = first_map(form, window)
        if self.map is None:
            return window
        self.map.grow(max(form.feature_count or 0, window.features))
        return self.map.taken(window)

    def scaled(self, window: AnyRows, scale: FrequencyScale) -> AnyRows:
        """The rows as the solver takes them from now on, until the next call."""
        self.map, self._mapped = scale, None
        return scale.scaled_for_now(window)

    def notes(self) -> list[str]:
        """The choices about features that the first rows decided, for the user."""
        if not isinstance(self.map, FrequencyScale):
            return []
        return [f"rare features count more, which predicted other rows better: {self.map.text}"]

    def read_validation(self, form: RowForm, features: int) -> None:
        self._validation, self._mapped = form.validation(self.inputs(features)), None

    def validation(self) -> Rows | None:
        """The validation rows as the solver takes them. They are mapped again when the map has learned."""
        if self._validation is None or self.map is None:
            return self._validation
        if self._mapped is None or self._mapped.features != self.map.width:
            self._mapped = self.map.mapped(self._validation)
        return self._mapped


class Models(Quality):
    """Its own section holds the changes that are due when the next window is opened."""

    name = "models"

    def __init__(self, form: RowForm) -> None:
        super().__init__(form, Race(Lanes()))
        self.maps = Mapping()
        self.race.read_validation = self.maps.validation
        self.by_passes = SOLVERS[form.options.solver].needs.passes
        self.by_columns = SOLVERS[form.options.solver].needs.columns
        self.lineages = Lineages(self.race, form.options.seed, form.options.threads)
        self.changes_sigma = False
        """Sigma has another value from the next window on."""
        self.expected_features = 0
        """About how many there will be at the end of the epoch, for the forecast of memory."""
        self._centred = 0
        """How many rows there were when the leader's constants were last found."""

    @property
    def features(self) -> int:
        return self.lanes.features

    def rules_for(self, form: RowForm) -> RowRules:
        """For reading rows."""
        return form.rules(self.maps.inputs(self.features))

    @property
    def nbytes(self) -> int:
        """The size of the arrays that grow with the features."""
        return self.lanes.nbytes + bytes_of_others(self.lineages)

    def stages(self) -> list[Stage]:
        return [*self.maps.stages(), self.lanes, self.race, *self.lineages.stages(), self]

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
            layout = self.form.model_layout
            require(spec.layout == layout, f"a model of {spec.layout} rows for {layout} ones")
            require(spec.target.column < len(self.form.options.labels), f"label {spec.target.column}")

    def warm_up(self, rows: int) -> None:
        """Load, or compile, the loops for a table of so many rows, as far as they are known before the first one is read.
        Then the memory that compiling takes belongs to the process, and is a part of the forecast."""
        if self.started:
            warm_up_again(self.lanes)
        else:
            self.maps.warm_up(self.form)
            warm_up(self.form.options, self.form.model_layout, rows)

    def take_in(self, form: RowForm) -> None:
        """Continue with rows of another form: there may be new columns and new classes."""
        self.form = form
        if not self.started:
            return
        features = self.maps.features_of(form)
        if features is not None:
            self._grow(features)
        kept = take_in_growth(self.race, form.options, form.model_layout)
        self.lineages.take_in(form.model_layout, kept)
        self.maps.read_validation(form, self.features)

    def _grow(self, features: int) -> None:
        self.lanes.grow(features)
        self.lineages.grow(features)

    def nonzeros_and_zeros(self) -> tuple[int, int]:
        nonzeros, zeros = super().nonzeros_and_zeros()
        unseen = self.maps.inputs(self.features) - self.features if self.maps.kernel is None else 0
        return nonzeros, zeros + unseen * len(self.race.targets)

    # A window.

    def prepare(
        self,
        window: Window,
        epoch_rows: int,
        rows_done: int,
        check: Callable[[Sequence[LaneSpec], int], object] | None = None,
        told: Told = untold,
    ) -> tuple[Window, LaneSpec | None]:
        """Bring the lanes up to date before the first step on a window. The window as it is trained on, and the leader before,
        if sigma has changed.

        `check`: called with the first lanes and the number of features, before they get memory. `told`: with each share of a
        search that has been done."""
        form, before = self.form, None
        if not self.started:
            known = form.feature_count if self.maps.map is None else None
            features = known or window.features
            self.maps.read_validation(form, features)
            self.expected_features = self.maps.expected_features(features, epoch_rows / max(1, window.different_rows))
            scale = enter_first(
                self.race, form.options, window, form.model_layout, epoch_rows, features, check, told,
                self.expected_features, self.maps.numbering,
            )  # fmt: skip
            window = window if scale is None else self.maps.scaled(window, scale)
            refuse_too_wide(self.lanes, window, form.options.threads)
            self._grow(known or 0)
            self.lineages.sigma_rows = self._rows_of_sigma(epoch_rows)
        elif self.changes_sigma:
            before = enter_other_sigmas(self.race, form.options, window, form.model_layout, epoch_rows, rows_done, told)
            self.lineages.forget()
            self.lineages.sigma_rows = self._rows_of_sigma(epoch_rows)
            self._looked = None
        self.changes_sigma = False
        self._grow(window.features)
        return window, before

    def _rows_of_sigma(self, rows: int) -> int | None:
        """The rows for which sigma is found now; None where the user or the solver says what it is."""
        options = self.form.options
        return rows if options.sigma == "auto" and "sigma" in SOLVERS[options.solver].options else None

    @property
    def next_mark(self) -> int | None:
        """The row count of the next mark. None in an update, which judges by its own rows; for sweeps over columns, each
        of which is judged; and for candidates that were trained on all rows before."""
        if self.by_passes and self.race.validation is None and len(self.race.progress.left) > 1:
            return None
        return None if self.by_columns or self.lineages.in_update else self.race.next_mark

    def judge(self, window: Window, row: int, rows_done: int, epoch_rows: int) -> LaneSpec | None:
        """At a mark of the race; the winner, if this has ended it."""
        best = best_when_converged(self.race, window, row, rows_done, epoch_rows) if self.by_passes else None
        if best is not None:
            return best
        mark = self.next_mark
        if mark is not None and rows_done >= mark:
            self.race.judge(window, row, rows_done, epoch_rows)
        return None

    def last_rows(self, window: Window) -> int | None:
        """Where the last rows of the first epoch begin, which tell how well the model predicts new rows. None: they are not
        in this window, or were perhaps trained on before."""
        plan, unseen = window.span, not self.by_passes
        if not (isinstance(plan, WindowPlan) and plan.start.is_first_part and not plan.next.is_first_part and unseen):
            return None
        return len(window) - len(window) // _MEASURED

    def measure(self, window: Window, first: int) -> None:
        """The loss on the rows from `first` on, for the first update to compare with. They are trained on next."""
        lanes, returned = self.race.leading_lanes(), self.lineages.returned
        rows = np.arange(first, len(window))[: rows_to_judge(len(lanes), len(LINEAGES))]
        losses = losses_of(returned)
        self.lineages.mixture.measure(scores_of((), returned, window, rows, lanes), [losses[lane] for lane in lanes])

    def end_window(self, window: Window, rows_done: int) -> None:
        """All of its lines have been trained on."""
        if self.by_columns:  # these solvers find the constants themselves
            judge_after_sweep(self.race, rows_done)
        else:
            self._centre(window, rows_done)

    def _centre(self, window: Window, rows_done: int) -> None:
        """If there are many more rows than at the last time. In an update constants stay: its rows may be few, or of another
        kind than the next ones."""
        if self.lineages.in_update or rows_done < _CENTRING_GROWTH * self._centred:
            return
        if self.lineages.begun:
            self.lineages.centre(window)
        else:
            self.race.centre(window)
        self._centred = rows_done
