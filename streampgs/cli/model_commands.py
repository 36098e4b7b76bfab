"""The commands that read a run or data: inspect, history, evaluate, predict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampgs.base.errors import OptionError, counted
from streampgs.cli.console import (
    AsJson,
    exiting_on_signals,
    print_json,
    print_result,
    say,
    say_note,
    say_skipped,
    say_warning,
)
from streampgs.cli.options import Command
from streampgs.options.commands import EncodingOptions, EvaluateOptions, HistoryOptions, InspectOptions, PredictOptions
from streampgs.options.fields import COMMON, Choice, build, option

if TYPE_CHECKING:
    from streampgs.model.model import Model


@dataclass(frozen=True)
class _Shown:
    columns: str = option("few", Choice(names=("few", "all")), COMMON,
        "For data: list all columns, or summarize them if there are more than 20.")  # fmt: skip


@click.command(
    "inspect",
    cls=Command,
    short_help="Summarize a run, or profile data.",
    kinds=(InspectOptions, _Shown, EncodingOptions, AsJson),
)
@click.argument("target", nargs=-1, required=True)
def inspect(target: tuple[str, ...], columns: str = "few", json: bool = False, **options: Any) -> int:
    """Summarize a run, or profile data: TARGET is a run's folder, or files, folders and globs of shards.

    \b
      streampgs inspect my-run --top 30           the model, its largest weights and curves
      streampgs inspect my-run --curves all.png   what each value of a number adds to the score
      streampgs inspect my-run --path path.png    weights against l1, of a run with several values
      streampgs inspect people/                   the columns, and the features made from them
      streampgs inspect people/ --label income    also how the labels are mixed

    For data with a label, reports how clustered the labels are (0 mixed, 1 sorted), and warns if the windows that fit into
    memory cannot mix them well.
    """
    from streampgs.cli.inspection_text import data_text, run_text
    from streampgs.model.inspection import inspected

    result = inspected(target, options)
    for warning in result.get("warnings", ()):
        say_warning(warning)
    print_result(run_text(result) if "run" in result else data_text(result, columns == "all"), result, json)
    return 0


@click.command("history", cls=Command, short_help="Show the history of a run.", kinds=(HistoryOptions, AsJson))
@click.argument("run", type=click.Path(path_type=Path))
def history(run: Path, json: bool = False, **given: Any) -> int:
    """Show the history of RUN: a line for each start, pause, arrival of shards and choice of a model.

    \b
      streampgs history my-run
      streampgs history my-run --last 10
    """
    from streampgs.cli.history_text import history_text
    from streampgs.cli.inspection_text import undo_text
    from streampgs.run.checkpoint import rows_in_name
    from streampgs.run.folder import RunFolder
    from streampgs.run.history import is_cut

    [options] = build("history", given, HistoryOptions)
    folder = RunFolder(run)
    folder.record()  # raises an error if it is damaged
    events = folder.events(options.last)
    if options.last is None and is_cut(folder.history):
        say_note(f"older events are only in '{folder.history}'")
    print_result(history_text(events), events, json)
    earlier = [rows_in_name(path) for path in folder.checkpoints()[:-1]]
    if earlier and not json:
        say_note(undo_text(str(run), map(str, earlier)))
    return 0


@click.command("evaluate", cls=Command, short_help="Measure a model on other rows.", kinds=(EvaluateOptions, AsJson))
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
def evaluate(run: Path, data: tuple[str, ...], json: bool = False, **given: Any) -> int:
    """Measure the model of RUN on DATA: for classes accuracy, precision, recall, AUC and calibration; for numbers R² and
    errors. Next to each metric is the figure of the best constant prediction.

    \b
      streampgs evaluate my-run test-shards/
      streampgs evaluate my-run test-shards/ --by country
      streampgs evaluate my-run yesterday/ --record        and keep the metrics in the history
      streampgs evaluate my-run 'test/*.parquet' --on-bad-row skip --json
    """
    from streampgs.cli.evaluation_text import evaluation_text
    from streampgs.model import evaluation
    from streampgs.model.model import load_model

    [options] = build("evaluate", given, EvaluateOptions)
    model = load_model(run)
    _say_state(model)
    skips = options.on_bad_row == "skip"
    result = evaluation.evaluate(model, data, skips, options.by, options.threshold, options.where)
    print_result(evaluation_text(result), result, json)
    _say_left_out(result, given="where" in given)
    say_skipped(result.get("skipped_rows", {}))
    if unknown := result.get("unknown_class_rows"):
        say_note(f"{counted(unknown, 'row')} of classes that the model does not know: errors of the accuracy")
    if entries := result.get("unknown_entries"):
        say_note(f"{entries:,} entries belong to features that the model does not have")
    if options.record:
        evaluation.record(model, data, result)
    return 0


@click.command("predict", cls=Command, short_help="Write a prediction for each row.", kinds=(PredictOptions, AsJson))
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
def predict(run: Path, data: tuple[str, ...], json: bool = False, **given: Any) -> int:
    """Write the score, prediction and probability of each row of DATA, in the order of the rows.

    \b
      streampgs predict my-run new-shards/ --out predictions.parquet
      streampgs predict my-run new-shards/ --out predictions.csv --keep customer --keep day
      streampgs predict my-run new-shards/ --out - | another-program
    """
    from streampgs.model.model import load_model
    from streampgs.model.prediction import STREAM
    from streampgs.model.prediction import predict as predict_rows

    [options] = build("predict", given, PredictOptions)
    if json and options.out == STREAM:
        raise OptionError("--json with --out -: both write to standard output", "leave out one of them")
    model = load_model(run)
    _say_state(model)
    with exiting_on_signals():
        result = predict_rows(
            model, data, options.out, options.on_bad_row == "skip", options.keep, options.force, options.threshold,
            options.where,
        )  # fmt: skip
    _say_left_out(result, given=True)
    say_skipped(result.get("skipped_rows", {}))
    if json:
        print_json(result)
    elif options.out != STREAM:
        say(f"wrote {counted(result['rows'], 'prediction')} to {options.out}")
    return 0


def _say_left_out(result: dict[str, Any], given: bool) -> None:
    if "where" in result:
        whose = "" if given else " of the run; --where true takes all rows"
        say_note(f'{counted(result["left_out"], "row")} left out by --where "{result["where"]}"{whose}')


def _say_state(model: Model) -> None:
    for fault in model.damaged:
        say_note(f"checkpoint {fault} is damaged; using the one before")
    if model.paused is not None:
        say_note(model.paused)
