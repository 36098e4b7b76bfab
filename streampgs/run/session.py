"""Training from a start or a resume to a limit or a stop: windows of rows in, checkpoints out. The one place that sees
both the data and the solver."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from streampgs.checks import decode, encode, require, typed, understanding
from streampgs.data.budget import Forecast
from streampgs.data.open import columns_of
from streampgs.data.refresh import Standing
from streampgs.data.shards import Source
from streampgs.encoding.encoding import Encoding
from streampgs.engine.engine import Engine
from streampgs.errors import DataError, Diverged, OptionError
from streampgs.learn.lanes import Lanes
from streampgs.options import Resources
from streampgs.order.cursor import Cursor
from streampgs.reading.bad_rows import counts_by_name
from streampgs.reading.loader import RowRules, WindowFiller
from streampgs.reading.remote import one_by_one
from streampgs.reading.window import Window
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.history import CHOSEN, SIGMA, STOPPED
from streampgs.run.memory import available_bytes, peak_rss_bytes, rss_bytes
from streampgs.run.record import RunRecord
from streampgs.run.report import Observer, Report, Status, StopRequest
from streampgs.run.words import chosen_text, encoding_choices, memory_choice, model_choice
from streampgs.selection.entries import enter_first, enter_other_sigmas, take_in_growth
from streampgs.selection.grid import warm_up
from streampgs.selection.race import Race
from streampgs.stage import Bundle
from streampgs.table.catalog import Catalog, build_catalog

# A loop call is this much work: short enough for Ctrl-C, long enough to cost nothing. Targets are looked at where
# such pieces end, which are fixed places of a window.
_PIECE_ROWS = 8192
_PIECE_ENTRIES = 1 << 21
_STATUS_SECONDS = 0.2
_METRICS_SECONDS = 5.0
_ROWS_BEFORE_TARGETS = 1000
_VALIDATION_BYTES = 32 << 20
# For --target-accuracy, validation rows are looked at whenever the rows have grown by an eighth; but only once the
# progressive accuracy, which is that of single iterates and so lower, has come near.
_FIRST_LOOK, _LOOK_GROWTH, _NEAR_TARGET = 4096, 1.125, 0.05


LOOK = "look"
"""What is said to have stopped a session that is to look for more data at an epoch's end."""


@dataclass
class Totals:
    """Sums over all sessions of a run."""

    rows: int = 0
    seconds_training: float = 0.0
    seconds_waiting: float = 0.0
    skipped: Counter[int] = field(default_factory=Counter)
    looks: int = 0
    """At the validation rows, those that were not worth it included."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "skipped": {str(reason): count for reason, count in self.skipped.items()}}

    @staticmethod
    def from_json(record: dict[str, Any]) -> Totals:
        skipped = Counter({int(reason): count for reason, count in record["skipped"].items()})
        return Totals(record["rows"], record["seconds_training"], record["seconds_waiting"], skipped, record["looks"])


def _check_totals(totals: Totals) -> None:
    counts = (typed(totals).rows, totals.looks, *totals.skipped.values())
    require(min(counts) >= 0, f"counts {counts!r:.100}")  # of seconds a clock that jumped may have made anything
    require(math.isfinite(totals.seconds_training + totals.seconds_waiting), "seconds that are no number")
    counts_by_name(totals.skipped)


class Session:
    """One stretch of training, from a start or a resume to a limit or a stop."""

    def __init__(
        self,
        folder: RunFolder,
        record: RunRecord,
        catalog: Catalog,
        cursor: Cursor,
        observer: Observer,
        stop: StopRequest,
        resources: Resources,
        encoding: Encoding | None,
        source: Source,
    ) -> None:
        self.source = source
        self.encoding = encoding
        self.folder = folder
        self.record = record
        self.options = record.options
        self.catalog = catalog
        self.cursor = cursor
        self.observer = observer
        self.stop = stop
        self.resources = resources
        self.lanes = Lanes()
        self.race = Race(self.lanes)
        self.engine = Engine(self.lanes, self.options.threads)
        self.looked: tuple[float, float | None] | None = None
        self.totals = Totals()
        self.checkpoint: Path | None = None
        self.saved_at: tuple[Any, ...] | None = None
        self.half_way = False
        """Within a step: λ and cursor do not belong together."""
        self.limits = record.limits
        self.window: Window | None = None
        self.forecast: Forecast | None = None
        self.process_bytes = 0
        self.rows_at_start = 0
        self.waited_before = 0.0
        self.seconds_at_start = 0.0
        self.pauses_at: int | None = None
        self.changes_sigma = False
        """Whether σ is to be another one from the next window on."""
        self.averages_anew = False
        """Whether averages are to begin anew with the next window: they speak of much less data than there are by now."""

    @property
    def solver(self) -> Lanes | None:
        """None before the first window."""
        return self.lanes if len(self.lanes) else None

    def restore(self, checkpoint: Checkpoint, changes_sigma: bool = False) -> None:
        sections = checkpoint.sections
        with understanding(checkpoint.path):
            told = {name: sections["models"].values[name] for name in ("changes_sigma", "averages_anew")}
            require(all(isinstance(value, bool) for value in told.values()), f"{told!r:.100}")
        self.changes_sigma = changes_sigma or told["changes_sigma"]
        self.averages_anew |= told["averages_anew"]
        checkpoint.restore(self.lanes)
        checkpoint.restore(self.race)
        with understanding(checkpoint.path):
            self.totals = Totals.from_json(sections["meter"].values)
            _check_totals(self.totals)
        self._take_in_growth()
        with understanding(checkpoint.path):
            self._check_lanes_of_these_rows()
        self.race.validation = self._validation_window(self.lanes.features)
        self.checkpoint = checkpoint.path
        saved = self.totals.rows, decode(Cursor, sections["worker"].values["cursor"])
        self.saved_at = *saved, tuple(sections["run"].values["sources"]), told["changes_sigma"]
        self._begin_counting()

    def _check_lanes_of_these_rows(self) -> None:
        for lane in self.lanes.specs:
            column = lane.target.column
            require(lane.layout == self.catalog.kind, f"a model of {lane.layout} rows for {self.catalog.kind} ones")
            require(column < len(self.options.labels), f"label {column} of {len(self.options.labels)}")

    def take_over(self, before: Session) -> None:
        """Go on with the models of a session of this process, on other data."""
        self.lanes, self.race, self.engine = before.lanes, before.race, before.engine
        self.totals, self.looked = before.totals, before.looked
        self.totals.seconds_waiting = before._seconds_waiting()
        self.checkpoint, self.saved_at = before.checkpoint, before.saved_at
        self.changes_sigma = before.changes_sigma
        self.averages_anew |= before.averages_anew
        self.forecast, self.process_bytes = before.forecast, before.process_bytes
        self.rows_at_start, self.seconds_at_start = before.rows_at_start, before.seconds_at_start
        self.waited_before = self.totals.seconds_waiting
        grown = self.encoding is not before.encoding or self.options.classes != before.options.classes
        if grown and self.solver is not None:
            self._take_in_growth()
            self.race.validation = self._validation_window(self.lanes.features)

    def _take_in_growth(self) -> None:
        """Columns and classes that came with the data since these models stepped last."""
        take_in_growth(self.race, self.options, self.catalog.kind)
        if self._feature_count is not None:
            self._grow(self._feature_count)

    def standing(self, before: Standing) -> Standing:
        """Where the run stands by now."""
        steps = self.solver.steps if self.solver is not None else 0
        return replace(before, cursor=self.cursor, rows=self.totals.rows, steps=steps, has_grown_much=False)

    def _begin_counting(self) -> None:
        self.rows_at_start = self.totals.rows
        self.waited_before = self.totals.seconds_waiting
        self.seconds_at_start = self.totals.seconds_training + self.waited_before

    def run(self, looks_for_more: bool = False) -> Report:
        """Train until a limit or a stop; or, looking for more, to the end of the present epoch."""
        self.pauses_at = self.cursor.epoch + 1 if looks_for_more else None
        reached = self._limit_reached(at_piece_end=False)
        if reached is not None and not (reached == self.stop.reason and self.source.taken is not None):
            if not looks_for_more:
                self.observer.note(
                    f"nothing to do: the limit of {reached} is reached already; give a larger one to go on"
                )
            self._save()
            return self._report(reached)
        epochs = [epoch for epoch in (self.limits.epochs, self.pauses_at) if epoch is not None]
        self.source.prepare(self._rules(), min(epochs, default=None))
        if self.solver is None:
            self._warm_up_first_lanes()
        if self.forecast is None:
            self.process_bytes = rss_bytes() - (self.solver.nbytes if self.solver is not None else 0)
        self.source.start(self.cursor)
        self.last_status = self.last_metrics = self.last_saved = time.perf_counter()
        try:
            self._save()  # new shards may have joined in: their place in the order is from now on a part of the run
            stopped_by = self._train()
        except Diverged:
            raise
        except BaseException:
            if not self.half_way:
                self._save()
            raise
        finally:
            self.source.close()
        for remark in self.source.remarks():
            self.observer.note(remark)
        self._save()
        report = self._report(stopped_by)
        if stopped_by != LOOK:
            taken = {} if report.stream_rows is None else {"stream_rows": report.stream_rows}
            self._event(STOPPED, by=stopped_by, epochs=report.epochs, accuracy=report.judged_accuracy, **taken)
        self.folder.append_metrics({"event": "stopped", **asdict(report)})
        return report

    @property
    def _feature_count(self) -> int | None:
        """The number of features, where it is fixed."""
        encoded = self.encoding.features if self.encoding is not None else None
        if self.encoding is not None and self.encoding.before is not None:
            return encoded
        return self.options.feature_count or encoded

    def _rules(self) -> RowRules:
        dense = self.catalog.kind == "dense" and self.solver is not None
        return RowRules(
            columns_of(self.options, self.encoding),
            self.options.classifies,
            self.options.on_bad_row == "skip",
            self.solver.features if dense and self.solver is not None else self._feature_count,
        )

    def _validation_window(self, features: int) -> Window | None:
        """Rows of the validation data, evenly from all of them, as many as are needed to judge; dense ones of so many
        features."""
        if not self.options.validation:
            return None
        columns = columns_of(self.options, self.encoding)
        catalog, _ = build_catalog(self.options.validation, columns)
        if catalog.kind != self.catalog.kind:
            raise DataError(
                f"the validation data hold {catalog.kind} rows, the training data {self.catalog.kind} ones",
                "give validation data of the same kind",
            )
        rules = self._rules() if catalog.kind == "sparse" else replace(self._rules(), features=features)
        with one_by_one(catalog) as (placed, copies):
            filler = WindowFiller(placed, np.empty(0, np.int64), rules, None, copies)
            try:
                window = filler.sample(_VALIDATION_BYTES)
            finally:
                filler.close()
        if window.rows == 0:
            raise DataError(
                "the validation data hold no row to judge on",
                f"give rows of {features:,} features, with labels" if catalog.kind == "dense" else "give other data",
            )
        return window

    def _warm_up_first_lanes(self) -> None:
        """Load, or compile, the loops that the first step will need, as far as can be told without any rows."""
        warm_up(self.options, self.catalog.kind)

    # The loop.

    def _train(self) -> str:
        while True:
            window = self._next_window()
            if isinstance(window, str):
                return window
            self.window = window
            stopped_by = self._train_on(window)
            if stopped_by is not None:
                return stopped_by
            self.source.release(window)

    def _next_window(self) -> Window | str:
        """The next window with any rows, ready to be trained on; or why training ends."""
        first_epoch = self.cursor.epoch
        while True:
            window = self.source.next(self.stop)
            if window is None:
                return self.stop.reason or self._limit_reached(at_piece_end=False) or self.source.ends
            if window.rows > 0:
                break
            assert window.plan is not None
            self.totals.skipped.update(window.skipped)
            self.cursor = window.plan.next
            self.source.release(window)
            if self.cursor.epoch > first_epoch + 1:
                raise DataError("a whole epoch had no usable row", "mend the data; streampgs inspect DATA tells more")
        if self.solver is None:
            self._begin_lanes(window)
        elif self.changes_sigma:
            self._change_sigma(window)
        elif self.averages_anew and not self.race.is_searching:
            self.lanes.restart_averages()
        self.averages_anew = self.changes_sigma = False
        self._grow(window.largest_index + 1)
        if self.forecast is None:
            self._announce_choices(window)
        return window

    def _train_on(self, window: Window) -> str | None:
        """Train on the rest of a window; why training is to end, or None when the window is used up."""
        assert self.solver is not None
        assert window.plan is not None
        mean_entries = window.entries / max(1, window.starts.size)
        batch = self.options.batch
        piece = batch * max(1, int(min(_PIECE_ROWS, _PIECE_ENTRIES / max(1.0, mean_entries))) // batch)
        row = self.cursor.row
        while row < window.rows:
            with self._whole_or_not_saved():
                self._judge_if_due(window, row)
            until = min(window.rows, (row // piece + 1) * piece)
            if self.race.next_mark is not None:
                until = min(until, row + self.race.next_mark - self.totals.rows)
            at_piece_end = True
            if self.limits.rows is not None:
                last = row + max(1, self.limits.rows - self.totals.rows)
                at_piece_end = until <= last
                until = min(until, last)
            began = time.perf_counter()
            with self._whole_or_not_saved():
                until = self.engine.advance(window, row, until, window.rows)
                now = time.perf_counter()
                self.totals.seconds_training += now - began
                self.totals.rows += until - row
                if row == 0:
                    self.totals.skipped.update(window.skipped)
                row = until
                self.cursor = self.cursor.at_row(row) if row < window.rows else window.plan.next
            reached = self._limit_reached(at_piece_end)
            self._look_after(now)
            if reached is not None:
                return reached
        return self._limit_reached(at_piece_end=False)

    @contextmanager
    def _whole_or_not_saved(self) -> Iterator[None]:
        """What is interrupted in here, by Ctrl-C in a program or for want of memory, leaves a state that no undisturbed
        run passes: the last checkpoint stands."""
        self.half_way = True
        yield
        self.half_way = False

    def _limit_reached(self, at_piece_end: bool) -> str | None:
        limits, totals = self.limits, self.totals
        if self.stop.reason is not None:
            return self.stop.reason
        if limits.epochs is not None and self.cursor.epoch >= limits.epochs:
            return "epochs"
        if limits.rows is not None and totals.rows >= limits.rows:
            return "rows"
        if limits.seconds is not None and totals.seconds_training + self._seconds_waiting() >= limits.seconds:
            return "seconds"
        if self.pauses_at is not None and self.cursor.epoch >= self.pauses_at:
            return LOOK
        if self.solver is None or not at_piece_end or totals.rows < _ROWS_BEFORE_TARGETS:
            return None
        if limits.target_accuracy is not None:
            accuracy = self._accuracy_to_go_by()
            if accuracy is not None and accuracy >= limits.target_accuracy:
                return "target-accuracy"
        gap = self._gap() if limits.target_gap is not None else None
        if limits.target_gap is not None and gap is not None and gap <= limits.target_gap:
            return "target-gap"
        return None

    # Several models, and how good they are.

    def _judge_if_due(self, window: Window, row: int) -> None:
        race = self.race
        if race.next_mark is None or self.totals.rows < race.next_mark:
            return
        if race.judge(window, row, self.totals.rows, self.source.epoch_rows) and len(race.progress.left) == 1:
            self.observer.note(
                f"after {self.totals.rows:,} rows {chosen_text(race.leading())} is the best of the candidates"
            )
            self._event(CHOSEN, **(self._chosen() or {}))

    def _accuracy_to_go_by(self) -> float | None:
        """What --target-accuracy is compared with; None: nothing new is known."""
        progressive = self._progressive()[1]
        if not self.options.validation:
            return self._judged()[1] if self.options.multiclass else progressive
        looks = int(math.log(max(self.totals.rows / _FIRST_LOOK, 1.0), _LOOK_GROWTH))
        if looks == self.totals.looks or self.solver is None:
            return None
        self.totals.looks = looks
        target = self.limits.target_accuracy
        if progressive is not None and target is not None and progressive < target - _NEAR_TARGET:
            return None
        self.looked = self.race.look()
        return self.looked[1]

    def _progressive(self) -> tuple[float | None, float | None]:
        """Loss and accuracy of the leading model over its steps, each row before it was trained on; the mean over
        targets. Of more than two classes the accuracy is not known."""
        if self.solver is None:
            return None, None
        tallies = [self.solver.tallies(lane) for lane in self.race.leading_lanes()]
        weight = sum(part.weight for part in tallies)
        if not weight:
            return None, None
        accuracy = sum(part.correct for part in tallies) / weight
        known = self.options.classifies and not self.options.multiclass
        return sum(part.loss for part in tallies) / weight, accuracy if known else None

    def _judged(self) -> tuple[float | None, float | None]:
        # What was said of a winner long ago, when the contest ended, is not what it has come to.
        latest = self.race.latest() if self.race.next_mark is not None else None
        return self.looked or latest or (None, None)

    def _gap(self) -> float | None:
        """The mean over targets; None if the solver has no certificate, or before the first step."""
        if not self.lanes.steps:
            return None
        found = [self.lanes.certificate(lane) for lane in self.race.leading_lanes()]
        known = [gap for gap in found if gap is not None]
        return sum(known) / len(known) if known else None

    def _seconds_waiting(self) -> float:
        return self.waited_before + self.source.seconds_waiting

    def _grow(self, features: int) -> None:
        """Room for the features of the next window, unless a stray index asks for more memory than there is."""
        needed = (features - self.lanes.features) * self.lanes.bytes_per_feature(self.options.threads)
        available = available_bytes()
        if available is not None and needed > available:
            raise DataError(
                f"a row names feature {features - 1:,}: a model that wide takes {needed / 1e9:,.1f} GB more, and "
                f"{available / 1e9:,.1f} GB are free",
                "give --feature-count N with the true number: rows with larger indices are then named, or skipped",
            )
        with self._whole_or_not_saved():
            self.lanes.grow(features)

    # The first window.

    def _begin_lanes(self, window: Window) -> None:
        """A lane for each candidate and target; what is to be found is found from the first window's rows."""
        features = self._feature_count or window.largest_index + 1
        enter_first(self.race, self.options, window, self.catalog.kind, self.source.epoch_rows, features)
        if self.limits.target_gap is not None and self.lanes.certificate(0) is None:
            raise OptionError(f"--target-gap with --solver {self.options.solver}", "this solver has no certificate")
        self.race.validation = self._validation_window(features)
        if self._feature_count is not None:
            self.lanes.grow(self._feature_count)

    def _change_sigma(self, window: Window) -> None:
        """The leading model continues with the sigma that the options have by now."""
        rows, layout = self.source.epoch_rows, self.catalog.kind
        leader = enter_other_sigmas(self.race, self.options, window, layout, rows, self.totals.rows)
        self._event(SIGMA, before=leader.sigma, after=[candidate.sigma for candidate in self.race.candidates])
        self.looked = None

    def _announce_choices(self, window: Window) -> None:
        assert self.solver is not None
        racing = len(self.lanes) > 1 and self.race.next_mark is not None
        feature_bytes = self.lanes.peak_bytes_per_feature(self.options.threads, racing)
        self.forecast = self.source.forecast(self.process_bytes, self.lanes.features, feature_bytes)
        of_source = self.source.choices(window, self.solver.features, self._epochs_left())
        choices = {
            "data": of_source.pop("data"),
            **({} if self.encoding is None else encoding_choices(self.encoding)),
            "model": model_choice(self.lanes.specs, self.options, len(self.race.targets)),
            **of_source,
            "memory": memory_choice(self.forecast),
        }
        self.observer.choices(choices)
        self.folder.append_metrics({"event": "started", "rows": self.totals.rows, "choices": choices})
        if self.forecast.model > self.resources.memory and self.encoding is not None and self.encoding.has_hashed:
            self.observer.note(
                f"the models in training take {self.forecast.model / 1e6:,.0f} MB beside --memory: --hash-bits "
                f"{max(1, self.encoding.hash_bits - 4)}, or a --sigma that is known, makes it less"
            )
        for hint in self.source.hints(window):
            self.observer.note(hint)

    # Saving and telling.

    def _look_after(self, now: float) -> None:
        # The certificate looks at every feature: with millions of them it is asked for less often.
        seconds_between = _STATUS_SECONDS * max(1.0, self.solver.features / 1e6 if self.solver else 1.0)
        if now - self.last_status >= seconds_between:
            self.last_status = now
            status = self._status()
            self.observer.status(status)
            if now - self.last_metrics >= _METRICS_SECONDS:
                self.last_metrics = now
                self.folder.append_metrics({"event": "status", **asdict(status)})
        if now - self.last_saved >= self.resources.checkpoint_seconds:
            self._save()
            self.last_saved = time.perf_counter()

    @property
    def _savable(self) -> tuple[Any, ...]:
        """What tells whether there is more to save than the last checkpoint holds. Sources that were added and another
        σ are a part of the run even where nothing is left to train on."""
        return self.totals.rows, self.cursor, self.record.sources, self.changes_sigma

    def _save(self) -> None:
        if self.saved_at == self._savable and not self.source.has_unsaved:
            return
        sections = {}
        of_source = self.source.state()
        if of_source is not None:
            sections["source"] = of_source
        self.totals.seconds_waiting = self._seconds_waiting()
        if self.solver is not None:
            sections["lanes"], sections["race"] = self.lanes.state(), self.race.state()
        elif of_source is None:
            return
        sections["run"] = self.record.changes()
        sections["meter"] = Bundle(self.totals.to_json())
        shards = self.cursor.arrivals[-1].shards
        place = {"cursor": encode(self.cursor), "catalog_digest": self.catalog.digest(shards)}
        sections["worker"] = Bundle(place)
        sections["models"] = Bundle({"changes_sigma": self.changes_sigma, "averages_anew": self.averages_anew})
        self.checkpoint = self.folder.write_checkpoint(sections, self.totals.rows)
        self.saved_at = self._savable
        self.observer.saved(str(self.checkpoint))

    def _event(self, kind: str, **facts: Any) -> None:
        steps = self.solver.steps if self.solver is not None else 0
        shards = self.cursor.arrivals[-1].shards if self.cursor.arrivals else 0
        self.folder.append_event(kind, self.totals.rows, steps, shards=shards, **facts)

    def _epochs_left(self) -> int | None:
        return None if self.limits.epochs is None else self.limits.epochs - self.cursor.epoch

    def _rows_per_second(self) -> float:
        seconds = self.totals.seconds_training + self._seconds_waiting() - self.seconds_at_start
        return (self.totals.rows - self.rows_at_start) / seconds if seconds > 0 else 0.0

    def _status(self) -> Status:
        assert self.solver is not None
        loss, accuracy = self._judged() if self.looked or self.options.multiclass else self._progressive()
        epochs = self.source.epochs(self.cursor, self.window)
        seconds = self.totals.seconds_training + self._seconds_waiting()
        return Status(
            t=self.solver.steps,
            rows=self.totals.rows,
            epoch=self.cursor.epoch,
            epoch_fraction=epochs - self.cursor.epoch,
            rows_per_second=self._rows_per_second(),
            loss=loss,
            accuracy=accuracy,
            gap=self._gap(),
            lanes=len(self.solver),
            stream_rows=self.source.taken,
            seconds=seconds,
            seconds_left=self._seconds_left(epochs, seconds),
            rss_bytes=rss_bytes(),
        )

    def _seconds_left(self, epochs: float, seconds: float) -> float | None:
        speed = self._rows_per_second()
        estimates = []
        if self.limits.epochs is not None and speed:
            estimates.append((self.limits.epochs - epochs) * self.source.epoch_rows / speed)
        if self.limits.rows is not None and speed:
            estimates.append((self.limits.rows - self.totals.rows) / speed)
        if self.limits.seconds is not None:
            estimates.append(self.limits.seconds - seconds)
        return max(0.0, min(estimates)) if estimates else None

    def _chosen(self) -> dict[str, Any] | None:
        """What the leading candidate is."""
        if self.solver is None:
            return None
        leader = self.race.leading()
        return {"loss": leader.loss, **leader.choices}

    def _report(self, stopped_by: str) -> Report:
        solver = self.solver
        progressive_loss, progressive_accuracy = self._progressive()
        if self.options.validation and solver is not None:
            self.looked = self.race.look()
        judged_loss, judged_accuracy = self._judged()
        return Report(
            run=str(self.folder.path),
            t=solver.steps if solver else 0,
            rows=self.totals.rows,
            epochs=self.source.epochs(self.cursor, self.window),
            seconds_training=self.totals.seconds_training,
            seconds_reading_wait=self.totals.seconds_waiting,
            rows_per_second=self._rows_per_second(),
            progressive_loss=progressive_loss,
            progressive_accuracy=progressive_accuracy,
            judged_loss=judged_loss,
            judged_accuracy=judged_accuracy,
            chosen=self._chosen(),
            lanes=len(solver) if solver else 0,
            gap=self._gap(),
            sampling=self.options.sampling,
            dual_sha256=solver.digest() if solver else None,
            checkpoint=str(self.checkpoint) if self.checkpoint else None,
            stopped_by=stopped_by,
            stream_rows=self.source.taken,
            skipped_rows=counts_by_name(self.totals.skipped),
            forecast_rss_mb=self.forecast.total / 1e6 if self.forecast else 0.0,
            peak_rss_mb=peak_rss_bytes() / 1e6,
        )
