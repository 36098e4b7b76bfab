"""Training: windows of rows in, checkpoints out. The one place that sees both the data and the solver."""

from __future__ import annotations

import math
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from streampgs.arithmetic.losses import LOSSES, loss_values
from streampgs.arithmetic.powers import dual_exponent
from streampgs.arithmetic.rows import squared_norms
from streampgs.choices import cache_choice, data_choice, memory_choice, model_choice, window_choice
from streampgs.errors import DataError, Diverged, OptionError, RunError
from streampgs.model import solver_of
from streampgs.options import Limits, ModelOptions, Resources
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Schedule, Sizes
from streampgs.planning import BLOCKS_NEEDED, Forecast, check_fits, choose_sizes, decoding_bytes, forecast, group_sizes
from streampgs.progress import Observer, Report, Silent, Status, StopRequest
from streampgs.reading.bad_rows import counts_by_name
from streampgs.reading.cache import BlockCache
from streampgs.reading.filler import RowRules, WindowFiller, refuse_unreadable
from streampgs.reading.pipeline import Pipeline
from streampgs.reading.window import Window
from streampgs.run.folder import Checkpoint, RunFolder, RunLock
from streampgs.run.memory import available_bytes, peak_rss_bytes, rss_bytes
from streampgs.solver.pgs import (
    TRANSIENT_FEATURE_BYTES,
    Pgs,
    PgsSettings,
    automatic_radius,
    automatic_t0,
    bytes_per_feature,
)
from streampgs.table.catalog import Catalog, build_catalog, decoded_bytes, read_shards, with_cache
from streampgs.table.layout import Columns
from streampgs.table.locate import locate

# A loop call is this much work: short enough for Ctrl-C, long enough to cost nothing. Targets are looked at where
# such pieces end, which are fixed places of a window.
_PIECE_ROWS = 8192
_PIECE_ENTRIES = 1 << 21
_STATUS_SECONDS = 0.2
_METRICS_SECONDS = 5.0
_ROWS_BEFORE_TARGETS = 1000
_SAMPLE_ROWS = 1 << 14  # of the first window, for what is found out from rows


@dataclass
class Totals:
    """Sums over all sessions of a run."""

    rows: int = 0
    seconds_training: float = 0.0
    seconds_waiting: float = 0.0
    skipped: Counter[int] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "skipped": {str(reason): count for reason, count in self.skipped.items()}}

    @staticmethod
    def from_json(record: dict[str, Any]) -> Totals:
        skipped = Counter({int(reason): count for reason, count in record["skipped"].items()})
        return Totals(record["rows"], record["seconds_training"], record["seconds_waiting"], skipped)


@dataclass(frozen=True)
class RunRecord:
    """What is decided when a run starts."""

    options: ModelOptions
    sources: tuple[str, ...]
    sizes: Sizes
    cache: str | None
    """The folder of decoded blocks; None: none are kept."""
    cache_limit: int
    limits: Limits

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "options": self.options.to_json()}

    @staticmethod
    def from_json(record: dict[str, Any]) -> RunRecord:
        return RunRecord(
            ModelOptions.from_json(record["options"]),
            tuple(record["sources"]),
            Sizes(**record["sizes"]),
            record["cache"],
            record["cache_limit"],
            Limits(**record["limits"]),
        )


def columns_of(options: ModelOptions) -> Columns:
    return Columns(options.label, options.weight, options.positive)


def train(
    sources: Sequence[str],
    run: Path,
    options: ModelOptions,
    limits: Limits,
    resources: Resources,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Report:
    """Start a run on the shards that `sources` name, and train until a limit or a stop."""
    folder = RunFolder(run)
    folder.refuse_if_taken()
    observer = observer or Silent()
    if limits.target_accuracy is not None and not LOSSES[options.loss].classifies:
        raise OptionError(
            f"--target-accuracy with --loss {options.loss}, which does not classify",
            "use --target-gap, --epochs or --seconds",
        )
    catalog, located = build_catalog(sources, columns_of(options))
    if located.ignored:
        observer.note(
            f"{len(located.ignored)} files that are no shards by their names were left out, '{located.ignored[0]}' first"
        )
    folder.make()
    with RunLock(run):
        folder.refuse_if_taken()  # another trainer may have been faster
        cache = None if resources.no_cache else str((resources.cache or folder.cache).absolute())
        limit = resources.cache_limit if resources.cache_limit is not None else shutil.disk_usage(run).free // 2
        shards, _ = with_cache(catalog.shards, 0, limit if cache else 0)
        catalog = Catalog(shards)
        sizes = choose_sizes(group_sizes(catalog, options.weight is not None), resources)
        record = RunRecord(
            options,
            tuple(str(Path(source).absolute()) for source in sources),
            sizes,
            cache,
            limit,
            limits.or_default(),
        )
        _refuse_impossible(options, catalog)
        refuse_unreadable(catalog, _schedule(record, catalog))
        folder.create(record.to_json(), catalog)
        cursor = Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))
        session = _Session(folder, record, catalog, cursor, observer, stop or StopRequest(), resources)
        return session.run()


def resume(
    run: Path,
    limits: Limits,
    resources: Resources,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    on_bad_row: str | None = None,
    accept_touched: bool = False,
) -> Report:
    """Go on with a run, on what it was started with and on the shards that have come since."""
    folder = RunFolder(run)
    observer = observer or Silent()
    record = RunRecord.from_json(folder.record())
    with RunLock(run):
        check_fits(record.sizes, resources)
        checkpoint = folder.newest_checkpoint()
        for path, why in checkpoint.damaged if checkpoint else ():
            observer.note(f"checkpoint '{path.name}' is damaged ({why}); using the one before")
        catalog = folder.catalog()
        if checkpoint is None:
            cursor = Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))
        else:
            options = ModelOptions.from_json(checkpoint.record["options"])
            record = replace(record, options=options, limits=Limits(**checkpoint.record["limits"]))
            cursor = Cursor.from_json(checkpoint.record["cursor"])
            known = cursor.arrivals[-1].shards
            catalog = catalog.first(known)
            if len(catalog.shards) < known or catalog.digest() != checkpoint.record["catalog_digest"]:
                raise RunError(
                    f"the catalog of run '{run}' is not the one of its checkpoint",
                    "restore catalog.arrows from a copy",
                )
        if limits.given:
            record = replace(record, limits=limits)
        if on_bad_row is not None:
            record = replace(record, options=replace(record.options, on_bad_row=on_bad_row))
        catalog.check_unchanged(accept_touched)
        if accept_touched:
            catalog = catalog.with_present_times()
            folder.write_catalog(catalog)
        catalog, cursor = _admit_new_shards(folder, record, catalog, cursor, observer)
        session = _Session(folder, record, catalog, cursor, observer, stop or StopRequest(), resources)
        if checkpoint is not None:
            session.restore(checkpoint)
        return session.run()


def _refuse_impossible(options: ModelOptions, catalog: Catalog) -> None:
    if options.sampling == "independent" and any(shard.decoded and not shard.cached for shard in catalog.shards):
        raise OptionError(
            "--sampling independent draws single rows, which Parquet and compressed Arrow can only give from the cache",
            "let all shards be cached (no --no-cache, a larger --cache-limit), or use --sampling epoch",
        )


def _admit_new_shards(
    folder: RunFolder, record: RunRecord, catalog: Catalog, cursor: Cursor, observer: Observer
) -> tuple[Catalog, Cursor]:
    """Append the shards that the run's sources name by now to the catalog; they join in at the next window."""
    known = {shard.path for shard in catalog.shards}
    paths = [path for path in locate(record.sources).paths if path not in known]
    if not paths:
        return catalog, cursor
    cached = sum(decoded_bytes(shard) for shard in catalog.shards if shard.cached)
    limit = record.cache_limit if record.cache is not None else 0
    new, _ = with_cache(read_shards(paths, columns_of(record.options)), cached, limit)
    grown = catalog.appended(new)
    _refuse_impossible(record.options, grown)
    schedule = _schedule(record, grown)
    cursor = schedule.arrive(cursor, len(grown.shards), grown.groups)
    folder.write_catalog(grown)
    observer.note(
        f"{len(new)} new shards with {sum(shard.rows for shard in new):,} rows join in, after {catalog.rows:,} rows "
        f"in {len(catalog.shards)} shards"
    )
    return grown, cursor


def _schedule(record: RunRecord, catalog: Catalog) -> Schedule:
    groups = group_sizes(catalog, record.options.weight is not None)
    return Schedule(record.options.seed, groups, record.sizes, record.options.sampling)


class _Session:
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
    ) -> None:
        self.folder = folder
        self.record = record
        self.options = record.options
        self.catalog = catalog
        self.cursor = cursor
        self.observer = observer
        self.stop = stop
        self.resources = resources
        self.schedule = _schedule(record, catalog)
        refuse_unreadable(catalog, self.schedule)
        self.solver: Pgs | None = None
        self.totals = Totals()
        self.checkpoint: Path | None = None
        self.saved_at = (-1, cursor)
        self.limits = record.limits
        self.pipeline: Pipeline | None = None
        self.window: Window | None = None
        self.forecast: Forecast | None = None
        self.process_bytes = 0
        self.rows_at_start = 0
        self.waited_before = 0.0
        self.trained_before = 0.0

    def restore(self, checkpoint: Checkpoint) -> None:
        record = checkpoint.record
        self.solver = solver_of(checkpoint)
        self.totals = Totals.from_json(record["totals"])
        self.checkpoint = checkpoint.path
        self.saved_at = (self.totals.rows, Cursor.from_json(record["cursor"]))

    def run(self) -> Report:
        self.rows_at_start = self.totals.rows
        self.trained_before = self.totals.seconds_training
        self.waited_before = self.totals.seconds_waiting
        reached = self._limit_reached(at_piece_end=False)
        if reached is not None:
            self.observer.note(f"nothing to do: the limit of {reached} is reached already; give a larger one to go on")
            return self._report(reached)
        cache = BlockCache(Path(self.record.cache)) if self.record.cache is not None else None
        filler = WindowFiller(self.catalog, self.schedule.slice_rows, self._rules(), cache)
        filler.warm_up()
        Pgs.warm_up(self.options.loss, self.options.p, self.catalog.kind, self.options.returns)
        self.process_bytes = rss_bytes() - (self.solver.nbytes if self.solver is not None else 0)
        self.pipeline = Pipeline(filler, self.schedule, self.cursor.at_row(0), self.limits.epochs)
        self.last_status = self.last_metrics = self.last_saved = time.perf_counter()
        try:
            self._save()  # new shards may have joined in: their place in the order is from now on a part of the run
            stopped_by = self._train()
        except Diverged:
            raise
        except BaseException:
            self._save()
            raise
        finally:
            self.pipeline.close()
        if cache is not None and cache.rebuilt:
            self.observer.note(f"{cache.rebuilt} damaged cache files were decoded anew")
        self._save()
        report = self._report(stopped_by)
        self.folder.append_metrics({"event": "stopped", **asdict(report)})
        return report

    def _rules(self) -> RowRules:
        return RowRules(
            columns_of(self.options),
            LOSSES[self.options.loss].classifies,
            self.options.on_bad_row == "skip",
            self.options.features if self.catalog.kind == "sparse" or self.solver is None else self.solver.features,
        )

    # The loop.

    def _train(self) -> str:
        assert self.pipeline is not None
        while True:
            window = self._next_window()
            if isinstance(window, str):
                return window
            self.window = window
            stopped_by = self._train_on(window)
            if stopped_by is not None:
                return stopped_by
            self.pipeline.release(window)

    def _next_window(self) -> Window | str:
        """The next window with any rows, ready to be trained on; or why training ends."""
        assert self.pipeline is not None
        first_epoch = self.cursor.epoch
        while True:
            window = self.pipeline.next(self.stop)
            if window is None:
                return self.stop.reason or "epochs"
            if self.cursor.row == 0:
                self.totals.skipped.update(window.skipped)
            if window.rows > 0:
                break
            assert window.plan is not None
            self.cursor = window.plan.next
            self.pipeline.release(window)
            if self.cursor.epoch > first_epoch + 1:
                raise DataError("a whole epoch had no usable row", "mend the data; streampgs inspect DATA tells more")
        if self.solver is None:
            self.solver = self._new_solver(window)
        self._grow(self.solver, window.largest_index + 1)
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
            until = min(window.rows, (row // piece + 1) * piece)
            at_piece_end = True
            if self.limits.rows is not None:
                last = row + -(-max(1, self.limits.rows - self.totals.rows) // batch) * batch
                at_piece_end = until <= last
                until = min(until, last)
            began = time.perf_counter()
            self.solver.advance(window, row, until)
            now = time.perf_counter()
            self.totals.seconds_training += now - began
            self.totals.rows += until - row
            row = until
            self.cursor = self.cursor.at_row(row) if row < window.rows else window.plan.next
            self._look_after(now)
            reached = self._limit_reached(at_piece_end)
            if reached is not None:
                return reached
        return self._limit_reached(at_piece_end=False)

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
        if self.solver is None or not at_piece_end or totals.rows < _ROWS_BEFORE_TARGETS:
            return None
        if limits.target_accuracy is not None and LOSSES[self.options.loss].classifies:
            tallies = self.solver.tallies()
            if tallies.weight and tallies.correct / tallies.weight >= limits.target_accuracy:
                return "target-accuracy"
        if limits.target_gap is not None and self.solver.gap() <= limits.target_gap:
            return "target-gap"
        return None

    def _seconds_waiting(self) -> float:
        return self.waited_before + (self.pipeline.seconds_waiting if self.pipeline is not None else 0.0)

    def _grow(self, solver: Pgs, features: int) -> None:
        """Room for the features of the next window, unless a stray index asks for more memory than there is."""
        needed = (features - solver.features) * bytes_per_feature(self.options.p, self.options.returns)
        available = available_bytes()
        if available is not None and needed > available:
            raise DataError(
                f"a row names feature {features - 1:,}: a model that wide takes {needed / 1e9:,.1f} GB more, and "
                f"{available / 1e9:,.1f} GB are free",
                "give --features N with the true number: rows with larger indices are then named, or skipped",
            )
        solver.grow(features)

    # The first window.

    def _new_solver(self, window: Window) -> Pgs:
        """The solver, with what is to be found out found out from the rows of the first window."""
        options = self.options
        loss = LOSSES[options.loss]
        shape = options.quantile if options.loss == "quantile" else options.huber_width
        shape = shape if shape is not None else loss.default_shape
        q = dual_exponent(options.p) + 1.0
        sample = slice(0, min(window.rows, _SAMPLE_ROWS))  # in visiting order, so a random one
        norms = np.empty(sample.stop)
        squared_norms(window.starts[sample], window.stops[sample], window.values, q, norms)
        mean_squared_norm = float(np.mean(norms)) + options.intercept**2
        t0 = automatic_t0(options.loss, options.sigma, mean_squared_norm) if options.t0 == "auto" else float(options.t0)
        ball = options.ball if options.ball is not None else ("none" if loss.lipschitz else "auto")
        if ball == "auto":
            at_zero = loss_values(loss)(0.0, window.labels[sample], shape)
            weights = window.weights[sample] if window.weights.size else 1.0
            radius = automatic_radius(max(float(np.mean(at_zero * weights)), 1e-300), options.p, options.sigma)
        else:
            radius = math.inf if ball == "none" else float(ball)
        if not (math.isfinite(t0) and radius > 0.0 and not math.isnan(radius)):
            raise OptionError(
                f"sigma {options.sigma:g} with rows of mean squared norm {mean_squared_norm:g} gives t0 {t0:g}, ball {radius:g}",
                "scale the features, or give another --sigma, --t0 or --ball",
            )
        settings = PgsSettings(
            options.loss, shape, options.p, options.sigma, t0, radius, options.batch, options.intercept, options.returns,
            options.seed, self.catalog.kind,
        )  # fmt: skip
        solver = Pgs(settings)
        if options.features is not None:
            solver.grow(options.features)
        return solver

    def _announce_choices(self, window: Window) -> None:
        assert self.solver is not None
        assert window.plan is not None
        groups, sizes = self.schedule.groups, self.record.sizes
        feature_bytes = bytes_per_feature(self.options.p, self.options.returns) + TRANSIENT_FEATURE_BYTES
        decoding = decoding_bytes(self.catalog, groups)
        self.forecast = forecast(groups, sizes, self.process_bytes, self.solver.features, feature_bytes, decoding)
        blocks = window.plan.blocks
        is_all = self.schedule.epoch_length(self.cursor.epoch, self.cursor.arrivals) <= len(window.plan.pieces.group)
        choices = {
            "data": data_choice(self.catalog, self.solver.features),
            "model": model_choice(self.solver.settings),
            "window": window_choice(sizes, window.rows, blocks, is_all, self.options.sampling),
            "cache": cache_choice(self.catalog, self.record.cache),
            "memory": memory_choice(self.forecast),
        }
        self.observer.choices(choices)
        self.folder.append_metrics({"event": "started", "rows": self.totals.rows, "choices": choices})
        if blocks < BLOCKS_NEEDED and not is_all:
            self.observer.note(
                f"blocks mixed by the first window: {blocks} (64 and more mix well). If the shards are sorted, the model may "
                "suffer until later epochs: streampgs inspect DATA tells; more --memory helps"
            )

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

    def _save(self) -> None:
        if self.solver is None or self.saved_at == (self.totals.rows, self.cursor):
            return
        vectors, solver = self.solver.to_record()
        self.totals.seconds_waiting = self._seconds_waiting()
        record = {
            "options": self.options.to_json(),
            "settings": self.solver.settings.to_json(),
            "sizes": asdict(self.record.sizes),
            "cursor": self.cursor.to_json(),
            "catalog_digest": self.catalog.digest(self.cursor.arrivals[-1].shards),
            "totals": self.totals.to_json(),
            "limits": asdict(self.limits),
            "solver": solver,
            "dual_sha256": self.solver.dual_sha256(),
        }
        self.checkpoint = self.folder.write_checkpoint(vectors, record, self.totals.rows)
        self.saved_at = (self.totals.rows, self.cursor)
        self.observer.saved(str(self.checkpoint))

    def _epochs(self) -> float:
        """Epochs done, with the part of the present one."""
        length = max(1, self.schedule.epoch_length(self.cursor.epoch, self.cursor.arrivals))
        position = float(self.cursor.position)
        if self.window is not None and self.window.plan is not None and self.cursor.row > 0:
            following = self.window.plan.next
            end = following.position if following.epoch == self.cursor.epoch else length
            position += (end - position) * self.cursor.row / self.window.rows
        return self.cursor.epoch + min(1.0, position / length)

    def _rows_per_second(self) -> float:
        seconds = self.totals.seconds_training - self.trained_before + self._seconds_waiting() - self.waited_before
        return (self.totals.rows - self.rows_at_start) / seconds if seconds > 0 else 0.0

    def _status(self) -> Status:
        assert self.solver is not None
        tallies = self.solver.tallies()
        classifies = LOSSES[self.options.loss].classifies
        epochs = self._epochs()
        seconds = self.totals.seconds_training + self._seconds_waiting()
        return Status(
            t=self.solver.steps,
            rows=self.totals.rows,
            epoch=self.cursor.epoch,
            epoch_fraction=epochs - self.cursor.epoch,
            rows_per_second=self._rows_per_second(),
            progressive_loss=tallies.loss / tallies.weight if tallies.weight else None,
            progressive_accuracy=tallies.correct / tallies.weight if tallies.weight and classifies else None,
            gap=self.solver.gap() if self.solver.steps else None,
            seconds=seconds,
            seconds_left=self._seconds_left(epochs, seconds),
            rss_bytes=rss_bytes(),
        )

    def _seconds_left(self, epochs: float, seconds: float) -> float | None:
        speed = self._rows_per_second()
        estimates = []
        if self.limits.epochs is not None and speed:
            estimates.append((self.limits.epochs - epochs) * self.catalog.rows / speed)
        if self.limits.rows is not None and speed:
            estimates.append((self.limits.rows - self.totals.rows) / speed)
        if self.limits.seconds is not None:
            estimates.append(self.limits.seconds - seconds)
        return max(0.0, min(estimates)) if estimates else None

    def _report(self, stopped_by: str) -> Report:
        solver = self.solver
        tallies = solver.tallies() if solver is not None else None
        known = tallies is not None and tallies.weight > 0
        classifies = LOSSES[self.options.loss].classifies
        return Report(
            run=str(self.folder.path),
            t=solver.steps if solver else 0,
            rows=self.totals.rows,
            epochs=self._epochs(),
            seconds_training=self.totals.seconds_training,
            seconds_reading_wait=self.totals.seconds_waiting,
            rows_per_second=self._rows_per_second(),
            progressive_loss=tallies.loss / tallies.weight if tallies and known else None,
            progressive_accuracy=tallies.correct / tallies.weight if tallies and known and classifies else None,
            gap=solver.gap() if solver and solver.steps else None,
            sampling=self.options.sampling,
            dual_sha256=solver.dual_sha256() if solver else None,
            checkpoint=str(self.checkpoint) if self.checkpoint else None,
            stopped_by=stopped_by,
            skipped_rows=counts_by_name(self.totals.skipped),
            forecast_rss_mb=self.forecast.total / 1e6 if self.forecast else 0.0,
            peak_rss_mb=peak_rss_bytes() / 1e6,
        )
