"""The commands. Each is thin over a function of the same name."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from streampgs import __version__
from streampgs.cli.console import (
    EXIT_CODES,
    TerminalObserver,
    count,
    duration,
    end_of_signals,
    fail,
    print_json,
    say,
    stop_on_signals,
)
from streampgs.cli.options import (
    SIGMA,
    SIZE,
    encoding_options,
    growth_options,
    limit_options,
    model_options,
    resource_options,
    skip_option,
)
from streampgs.cli.pack_command import pack
from streampgs.errors import OptionError, StreampgsError
from streampgs.options import DEFAULT_REPLAY, EncodingOptions, Growth, Limits, ModelOptions, Resources, StreamOptions
from streampgs.stores.addresses import absolute

_EXIT_HELP = (
    "Exit codes: 0 done, 1 a fault in data or run (the message says what to do), 2 a wrong option, "
    "130 paused by Ctrl-C, 143 paused by SIGTERM."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, epilog=_EXIT_HELP)
@click.version_option(__version__, prog_name="streampgs")
def cli() -> None:
    """Linear models on tables far larger than memory.

    Training starts within a second, stays inside a memory budget, can be paused at any moment and goes on bit for
    bit; shards may be added meanwhile.

    \b
      streampgs pack data.csv.gz shards/         make shards of what you have
      streampgs train shards/ --run my-run       start; Ctrl-C pauses
      streampgs resume my-run                    go on
      streampgs evaluate my-run test-shards/     how good is it?
      streampgs predict my-run new/ --out predictions.parquet
    """


@cli.command()
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--run",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for checkpoints, metrics and cache; must not hold a run yet.",
)
@model_options
@encoding_options
@limit_options
@click.option(
    "--window",
    type=SIZE,
    default=None,
    help="How much data to mix at once. Default: as much as --memory allows, at most 268MB.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Where decoded Parquet blocks are kept. Default: in the run's folder.",
)
@click.option(
    "--cache-limit",
    type=SIZE,
    default=None,
    help="The most that the cache may take. It decides how finely rows are mixed. Default: no limit.",
)
@click.option("--no-cache", is_flag=True, help="Decode Parquet in every epoch.")
@growth_options
@click.option(
    "--replay",
    type=float,
    default=None,
    metavar="RATIO",
    help="Of a stream (DATA is -, an Arrow IPC stream on standard input): rows from the reservoir, a uniform sample of all "
    f"that passed, beside each new row. Default: {DEFAULT_REPLAY:g}.",
)
@resource_options
def train(data: tuple[str, ...], run: Path, no_intercept: bool, as_json: bool, quiet: bool, **chosen: Any) -> int:
    """Start a run on DATA: files, folders or globs of Parquet or Arrow shards.

    A shard is a table with a label column. Its other columns become features: numbers, strings, lists, maps, structs;
    or it holds rows of features already, sparse ones (columns 'indices' and 'values', lists) or dense ones (column
    'features', a list). Limits are totals from the run's first row; the first that is reached ends training.

    \b
      streampgs train shards/ --run my-run --epochs 3
      streampgs train 'day=*/*.parquet' --run my-run --loss hinge --sigma 1e-5 --memory 2GB
      streampgs train people/ --run my-run --label income --ignore 'id*' --category zip
      streampgs train stories/ --run my-run --label topic --text title --text body --ngrams 1-2
      producer | streampgs train - --run my-run --replay 1
    """
    if no_intercept:
        chosen["intercept"] = 0.0
    chosen["checkpoint_seconds"] = chosen.pop("checkpoint_every")
    chosen["validation"] = tuple(absolute(source) for source in chosen["validation"])
    kinds = (ModelOptions, Limits, Resources, EncodingOptions, Growth)
    options, limits, resources, encoding, growth = (_fields(kind, chosen) for kind in kinds)
    replay = chosen["replay"]

    def work(observer: TerminalObserver, stop: Any) -> Any:
        from streampgs.run import start as trainer

        return trainer.train(
            data, run, ModelOptions(**options), Limits(**limits), Resources(**resources), observer, stop,
            EncodingOptions(**encoding), Growth(**growth), None if replay is None else StreamOptions(replay),
        )  # fmt: skip

    return _session(work, run, as_json, quiet)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("stream", metavar="[-]", required=False)
@limit_options
@click.option(
    "--on-bad-row",
    type=click.Choice(("error", "skip")),
    default=None,
    help="Change what happens at a row that cannot be used.",
)
@click.option("--add", multiple=True, metavar="DATA", help="More files, folders, globs or addresses for this run.")
@click.option(
    "--sigma",
    type=SIGMA,
    default=None,
    help="Another weight of the regularizer from now on; auto: found anew, for the best one shrinks as the data grow. "
    "The weights stay what they are; averages and the certificate begin anew.",
)
@click.option("--accept-touched", is_flag=True, help="Trust shards whose time stamp alone has changed.")
@click.option(
    "--accept-rewrite",
    is_flag=True,
    help="Go on though shards were deleted or replaced: they take no more part, and the present epoch begins again.",
)
@click.option(
    "--skip-taken", is_flag=True, help="The stream begins again at its first row: pass over the rows that were taken."
)
@growth_options
@resource_options
def resume(
    run: Path,
    stream: str | None,
    on_bad_row: str | None,
    skip_taken: bool,
    as_json: bool,
    quiet: bool,
    **chosen: Any,
) -> int:
    """Go on with RUN where it was paused, until its limit or a new one.

    Limits count from the run's first row: after 3 epochs, --epochs 5 trains two more. Shards that have come to the
    run's folders or globs join in, also when all its epochs are over; a shard that was changed is refused.

    \b
      streampgs resume my-run                       what is left, and what has come
      streampgs resume my-run --add more-shards/    more data, from elsewhere
      streampgs resume my-run --follow              and wait for more
      producer | streampgs resume my-run -          a run on a stream goes on with it
    """
    chosen["checkpoint_seconds"] = chosen.pop("checkpoint_every")
    limits, resources, growth = (_fields(kind, chosen) for kind in (Limits, Resources, Growth))

    def work(observer: TerminalObserver, stop: Any) -> Any:
        from streampgs.run import start as trainer

        return trainer.resume(
            run,
            Limits(**limits),
            Resources(**resources),
            observer,
            stop,
            on_bad_row,
            Growth(**growth),
            stream,
            skip_taken,
        )

    return _session(work, run, as_json, quiet)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects on standard output.")
def history(run: Path, as_json: bool) -> int:
    """What RUN has lived through: a line for every start, pause, append and choice."""
    from streampgs.cli.history_text import history_text
    from streampgs.run.folder import RunFolder

    folder = RunFolder(run)
    folder.record()  # or an error that says what is wrong with it
    events = folder.events()
    say(history_text(events))
    if as_json:
        print_json(events)
    return 0


def _fields(kind: type, chosen: dict[str, Any]) -> dict[str, Any]:
    return {field.name: chosen[field.name] for field in dataclasses.fields(kind) if field.name in chosen}


def _session(work: Callable[[TerminalObserver, Any], Any], run: Path, as_json: bool, quiet: bool) -> int:
    from streampgs.run.report import StopRequest

    stop = StopRequest()
    stop_on_signals(stop)
    with TerminalObserver(quiet) as observer:
        report = work(observer, stop)
    if not quiet and report.forecast_rss_mb:  # otherwise there was nothing to do, and that has been said
        _say_report(report, run)
    if as_json:
        print_json(dataclasses.asdict(report))
    return EXIT_CODES.get(report.stopped_by, 0)


def _say_report(report: Any, run: Path) -> None:
    paused = report.stopped_by in EXIT_CODES
    reason = f"paused by {report.stopped_by}" if paused else f"done: {_end_text(report.stopped_by)}"
    come = f"{report.epochs:.2f} epochs" if report.stream_rows is None else f"{report.stream_rows:,} of the stream"
    seconds = report.seconds_training + report.seconds_reading_wait
    say(
        f"{click.style(reason, bold=True)} after {report.rows:,} rows ({come}, {report.t:,} steps) "
        f"in {duration(seconds)}; {count(report.rows_per_second)} rows/s in this session"
    )
    figures = []
    if report.progressive_loss is not None:
        figures.append(f"progressive loss {report.progressive_loss:.5f}")
    if report.progressive_accuracy is not None:
        figures.append(f"progressive accuracy {report.progressive_accuracy:.5f}")
    if report.judged_accuracy is not None:
        figures.append(f"accuracy when last judged {report.judged_accuracy:.5f}")
    if report.gap is not None:
        order = "in whole epochs" if report.stream_rows is None else "as a stream has them"
        kind = "in expectation" if report.sampling == "independent" else f"an estimate: rows came {order}"
        figures.append(f"certified gap {report.gap:.3g} ({kind})")
    figures.append(f"peak memory {report.peak_rss_mb:,.0f} MB (forecast {report.forecast_rss_mb:,.0f})")
    say(", ".join(figures))
    for fault, rows in report.skipped_rows.items():
        say(click.style("skipped: ", fg="yellow") + f"{rows:,} rows: {fault}")
    resume = f"streampgs resume {run}"
    if report.stream_rows is not None:
        limit = f" --{report.stopped_by} N" if report.stopped_by in ("rows", "seconds") else ""
        say(
            f"{report.stream_rows:,} rows of the stream are taken; behind them go on with: producer | {resume} -{limit}"
        )
        say(f"or, if the stream begins again at its first row: producer | {resume} - --skip-taken{limit}")
    elif report.checkpoint is None:
        say(f"nothing was trained yet; start with: {resume}")
    elif paused:
        say(f"go on with: {resume}")
    else:
        say(f"next: streampgs evaluate {run} TEST-DATA   or train on: streampgs resume {run} --epochs N")


def _end_text(stopped_by: str) -> str:
    return stopped_by if stopped_by == "end of stream" else f"limit of {stopped_by} reached"


def _say_damage(model: Any) -> None:
    for fault in model.damaged:
        say(click.style("note: ", fg="yellow") + f"checkpoint {fault} is damaged; using the one before")
    if model.paused is not None:
        say(click.style("note: ", fg="yellow") + model.paused)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
@skip_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def evaluate(run: Path, data: tuple[str, ...], on_bad_row: str, as_json: bool) -> int:
    """How good RUN's model is on DATA: loss, accuracy and AUC, or mean squared error and R²."""
    from streampgs.evaluation import evaluate as evaluate_model
    from streampgs.model import Model

    model = Model.load(run)
    _say_damage(model)
    result = evaluate_model(model, data, on_bad_row == "skip")
    for name, value in result.items():
        if name in ("skipped_rows", "unknown_entries", "labels"):
            continue
        say(f"{name:<9} " + (f"{value:,}" if name == "rows" else "unknown" if value is None else f"{value:.6g}"))
    for label, figures in result.get("labels", {}).items():
        known = (f"{name} {value:.6g}" for name, value in figures.items() if value is not None)
        say(f"{label:<9} " + ", ".join(known))
    for fault, rows in result.get("skipped_rows", {}).items():
        say(click.style("skipped: ", fg="yellow") + f"{rows:,} rows: {fault}")
    if result.get("unknown_entries"):
        say(
            f"{click.style('note: ', fg='yellow')}{result['unknown_entries']:,} entries are of features that the model never saw"
        )
    if as_json:
        print_json(result)
    return 0


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The file to write: .parquet, .arrow or .csv.",
)
@skip_option
def predict(run: Path, data: tuple[str, ...], out: Path, on_bad_row: str) -> int:
    """Write score, prediction and probability of every row of DATA, in the order of the rows."""
    from streampgs.evaluation import predict as predict_rows
    from streampgs.model import Model

    model = Model.load(run)
    _say_damage(model)
    rows = predict_rows(model, data, out, on_bad_row == "skip")
    say(f"{rows:,} predictions in {out}")
    return 0


@cli.command()
@click.argument("target", nargs=-1, required=True)
@click.option("--label", default="label", show_default=True, metavar="COLUMN", help="Of data: the column to predict.")
@click.option(
    "--memory",
    type=SIZE,
    default="512MB",
    show_default=True,
    help="Of data: the budget that training would have.",
)
@encoding_options
@click.option("--top", type=click.IntRange(0), default=0, metavar="N", help="Of a run: the N features that weigh most.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def inspect(target: tuple[str, ...], label: str, memory: int, top: int, as_json: bool, **chosen: Any) -> int:
    """What a run has come to, or what data look like: TARGET is a run's folder, or files, folders and globs.

    \b
      streampgs inspect my-run --top 30              the model, and what weighs most in it
      streampgs inspect people/ --label income       the columns, and what becomes of them

    Of data it also says how clustered the labels are in the shards (0 mixed, 1 sorted), and warns when the windows
    that fit into the memory cannot mix them well.
    """
    from streampgs.cli.inspection_text import data_text, run_text
    from streampgs.inspection import inspect_data, inspect_run
    from streampgs.run.folder import RunFolder

    if len(target) == 1 and RunFolder(Path(target[0])).exists:
        result = inspect_run(Path(target[0]), top)
        say(run_text(result))
    else:
        options, encoding = ModelOptions(label=label), EncodingOptions(**chosen)
        result = inspect_data(target, options, encoding, Resources(memory=memory))
        say(data_text(result))
    if as_json:
        print_json(result)
    return 0


@cli.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--rows", type=int, required=True, help="Rows to make.")
@click.option(
    "--kind",
    type=click.Choice(("sparse", "dense", "regression", "gaussian")),
    default="sparse",
    show_default=True,
    help="sparse: shaped like RCV1; gaussian: the paper's toy sets.",
)
@click.option("--shards", type=int, default=8, show_default=True, help="Files to spread them over.")
@click.option("--format", "file_format", type=click.Choice(("arrow", "parquet")), default="arrow", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--sorted", "sort", is_flag=True, help="Sort the rows by label: the worst case for training on parts.")
@click.option("--features", type=int, default=None, help="Default: 47,236 sparse, 28 dense, 20 gaussian.")
@click.option(
    "--test-rows",
    type=int,
    default=0,
    help="More rows of the same kind, never sorted, into the folder OUT-test.",
)
def synth(
    out: Path,
    rows: int,
    kind: str,
    shards: int,
    file_format: str,
    seed: int,
    sort: bool,
    features: int | None,
    test_rows: int,
) -> int:
    """Make up a dataset: stream shards of random rows into the folder OUT."""
    from streampgs.synth import write_dataset

    shards = min(shards, rows) if rows >= 1 else shards
    report = write_dataset(
        out,
        rows=rows,
        kind=kind,
        shards=shards,
        format=file_format,
        seed=seed,
        sort=sort,
        features=features,
        test_rows=test_rows,
    )
    say(
        f"{report.rows:,} {kind} rows, {report.features:,} features, {report.nonzeros:,} entries, {report.bytes / 1e6:,.1f} MB "
        f"in {report.files} shards, {report.seconds:.1f} s: {out}"
        + (f" and {report.test_folder}" if report.test_folder else "")
    )
    return 0


cli.add_command(pack)


def run_commands() -> None:
    for stream in (sys.stdout, sys.stderr):  # names of files may hold bytes that are no text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(standalone_mode=False)
    except OptionError as error:
        fail(error)
        code = 2
    except StreampgsError as error:
        code = fail(error)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        code = 130
    except BrokenPipeError:
        code = 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "start new thread" not in str(error):
            raise
        code = fail(
            StreampgsError(
                f"the system gives no more memory{f' ({error})' if str(error) else ''}",
                "give --memory less, or the process more; a run's last checkpoint is intact: streampgs resume goes on",
            )
        )
    except OSError as error:
        code = fail(StreampgsError(f"the system refused: {error}", "mend what it names, then run the command again"))
    end_of_signals()
    sys.exit(code)
