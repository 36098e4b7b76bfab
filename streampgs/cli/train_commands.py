"""`streampgs train` and `streampgs resume`, and their closing summary."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from streampgs.base.errors import command_words
from streampgs.cli.console import (
    EXIT_CODES,
    FAILED_VALIDATION,
    INCOMPLETE,
    Output,
    TerminalObserver,
    print_json,
    say,
    say_skipped,
    stop_on_signals,
)
from streampgs.cli.options import Command
from streampgs.options.commands import RESUME_OPTIONS, TRAIN_OPTIONS
from streampgs.options.fields import COMMON, MODEL, FilePath, Flag, option
from streampgs.options.solvers import SOLVERS
from streampgs.python.progress import count
from streampgs.run.report import time_text, weights_text

if TYPE_CHECKING:
    from streampgs.run.report import Report, StopRequest


@dataclass(frozen=True)
class _Folder:
    run: Path = option(None, FilePath("FOLDER"), COMMON, required=True,
        help="Folder for checkpoints, metrics and cache. Must not hold a run yet.")  # fmt: skip


@dataclass(frozen=True)
class _NoIntercept:
    no_intercept: bool = option(False, Flag(), MODEL, "Leave the intercept out.")


@click.command("train", cls=Command, short_help="Start a run.", kinds=(_Folder, *TRAIN_OPTIONS, _NoIntercept, Output))
@click.argument("data", nargs=-1, required=True)
def train(
    data: tuple[str, ...],
    run: Path,
    no_intercept: bool = False,
    json: bool = False,
    quiet: bool = False,
    **options: Any,
) -> int:
    """Start a run on DATA: files, folders, globs or addresses of Parquet or Arrow shards.

    A shard is a table with a label column. All other columns become features: numbers, strings, lists, maps, structs.
    Shards may also hold rows of features: sparse ones in lists 'indices' and 'values', dense ones in a list 'features'.
    Limits count from the first row of the run. The first one that is reached ends training.

    \b
      streampgs train shards/ --run my-run --epochs 3
      streampgs train people/ --run my-run --label income --ignore 'id*' --category zip
      streampgs train stories/ --run my-run --label topic --text title --text body --ngrams 1-2
      streampgs train 'day=*/*.parquet' --run my-run --loss hinge --sigma 1e-5 --memory 2GB
    """
    if no_intercept:
        options["intercept"] = 0.0

    from streampgs.run import start
    from streampgs.run.commands import TrainCall

    return _supervised(partial(start.train, data, run, TrainCall.of(options)), run, json, quiet)


@click.command("resume", cls=Command, short_help="Continue a run.", kinds=(*RESUME_OPTIONS, Output))
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("stream", metavar="[-]", required=False)
def resume(run: Path, stream: str | None = None, json: bool = False, quiet: bool = False, **options: Any) -> int:
    """Continue RUN until its limit or a new one.

    Limits count from the first row of the run: after 3 epochs, --epochs 5 trains two more, and so does --epochs +2. New
    shards in the folders and globs of the run join, even if all epochs are done. A shard that was changed is refused.

    \b
      streampgs resume my-run                       continue, with new shards
      streampgs resume my-run --epochs +1           one more pass over all rows
      streampgs resume my-run --add more-shards/    add data from another place
      streampgs resume my-run --follow              and wait for more shards
      producer | streampgs resume my-run -          continue a run on a stream
    """

    from streampgs.model.trial import trial_for
    from streampgs.run import start
    from streampgs.run.commands import ResumeCall

    call = ResumeCall.of(options, stream)
    work = partial(start.resume, run, call, trial=trial_for(call.changes))
    return _supervised(work, run, json, quiet)


def _supervised(work: Callable[[TerminalObserver, StopRequest], Report], run: Path, json: bool, quiet: bool) -> int:
    from streampgs.run.report import NOTHING_NEW, REJECTED, StopRequest

    stop = StopRequest()
    stop.opening = True
    stop_on_signals(stop)
    with closing(TerminalObserver(quiet)) as observer:
        report = work(observer, stop)
    # Notes say why no row was trained on, or why training was undone.
    if not quiet and report.forecast_rss_mb and report.outcome != REJECTED:
        _say_report(report, run)
    if json:
        print_json({**report.record(), "notes": [*map(command_words, report.notes)]})
    if report.stopped_by in EXIT_CODES:
        return EXIT_CODES[report.stopped_by]
    if report.outcome == REJECTED:
        return FAILED_VALIDATION
    waits = report.outcome == NOTHING_NEW and report.found.waiting_shards
    return INCOMPLETE if report.found.incomplete_files or waits else 0


def _say_report(report: Report, run: Path) -> None:
    taken = report.stream_rows
    done = f"{report.epochs:.2f} epochs" if taken is None else f"{taken:,} taken from the stream"
    steps = f", {report.t:,} steps" if SOLVERS[report.solver].steps_on_rows else ""
    pace = f"{time_text(report)} at {count(report.rows_per_second)} rows/s"
    say(f" after {report.rows:,} rows ({done}{steps}); this call took {pace}", _end_text(report))
    say(", ".join(_figures(report)))
    say_skipped(report.skipped_rows)
    for line in _next_steps(report, f"streampgs resume {quote(str(run))}", run):
        say(line)


def _end_text(report: Report) -> str:
    if report.stopped_by in EXIT_CODES:
        return f"paused by {report.stopped_by}"
    ends = {"converged": "converged", "end of stream": "end of the stream"}
    return f"done: {ends.get(report.stopped_by, f'reached the limit of {report.stopped_by}')}"


def _figures(report: Report) -> list[str]:
    needs = SOLVERS[report.solver].needs
    when = "training" if needs.columns else "progressive"
    measured = {
        f"{when} loss": report.progressive_loss,
        f"{when} accuracy": report.progressive_accuracy,
        "accuracy at the last comparison": report.judged_accuracy,
    }
    figures = [f"{name} {value:.5f}" for name, value in measured.items() if value is not None]
    if report.gap is not None:
        order = "whole epochs" if report.stream_rows is None else "the order of the stream"
        estimate = "" if needs.passes else f" (an estimate: rows came in {order})"
        figures.append(f"certified gap {report.gap:.3g}{estimate}")
    if report.zeros:
        figures.append(weights_text(report.nonzeros, report.zeros))
    figures.append(f"peak memory {report.peak_rss_mb:,.0f} MB (forecast {report.forecast_rss_mb:,.0f})")
    return figures


def _next_steps(report: Report, resume: str, run: Path) -> list[str]:
    if report.stream_rows is not None:
        limit = f" --{report.stopped_by} N" if report.stopped_by in ("rows", "seconds") else ""
        return [
            f"{report.stream_rows:,} rows were taken from the stream; continue after them with: producer | {resume} -{limit}",
            f"or, if the stream starts at its first row again: producer | {resume} - --skip-taken{limit}",
        ]
    if report.checkpoint is None:
        return [f"nothing was trained yet; start with: {resume}"]
    if report.stopped_by in EXIT_CODES:
        return [f"continue with: {resume}"]
    longer = "" if report.stopped_by == "converged" else f", or train longer: {resume} --epochs +1"
    return [f"next: streampgs evaluate {quote(str(run))} TEST-DATA{longer}"]
