"""The Python interface: the commands as functions with keywords."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.model.model import Model, load_model
from streampgs.model.trial import trial_for
from streampgs.options.commands import (
    RESUME_OPTIONS,
    TRAIN_OPTIONS,
    EncodingOptions,
    EvaluateOptions,
    HistoryOptions,
    InspectOptions,
    PredictOptions,
)
from streampgs.options.fields import build
from streampgs.options.messages import python_words
from streampgs.packing import packer
from streampgs.packing.options import PackOptions
from streampgs.python.keywords import public
from streampgs.python.progress import shown
from streampgs.python.rows_in_memory import (
    GivenRows,
    column_names,
    labelled_rows,
    paths_in,
    read_table,
    temporary_shards,
    write_into_new_run,
    write_into_run,
)
from streampgs.reading.expected_rows import ExpectedRows
from streampgs.reading.in_memory import is_matrix, plain_source
from streampgs.reading.other_columns import ALL
from streampgs.run import start
from streampgs.run.commands import ResumeCall, TrainCall
from streampgs.run.folder import RunFolder
from streampgs.run.report import Observer, Report, StopRequest
from streampgs.table.layout import NoColumn

_SIGINT = "SIGINT"


@contextmanager
def _interruptible(stop: StopRequest | None) -> Iterator[StopRequest]:
    """While it is open, the first Ctrl-C asks for a stop if training has begun; a second one interrupts at once.

    Only in the main thread, and only if the program has no handler of its own. `stop`: of a caller that takes care of
    interrupts.
    """
    asked = stop or StopRequest()
    asked.opening = stop is None
    in_main_thread = threading.current_thread() is threading.main_thread()
    handles = stop is None and in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.opening or asked.reason is not None:
            raise KeyboardInterrupt
        asked.ask(_SIGINT)

    if handles:
        signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        if handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)


Progress = bool | Literal["auto"]
_ARRAYS = ("weight", "offset")
"""Options that name a column, or are an array of its values."""
_PLACE = "place in the data frame"
"""A column that is added to the rows of a data frame of pandas: the index is not written, and some rows may be left out."""


@public("train", *TRAIN_OPTIONS, required=("run",))
def train(
    data: Any,
    labels: Any = None,
    *,
    run: str | Path | None = None,
    progress: Progress = "auto",
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Report:
    """Start a run in the folder `run` and train until a limit.

    `data` are files, folders, globs or addresses of shards, or '-' for an Arrow stream on standard input. Or rows in
    memory: a table of polars, pandas, DuckDB or pyarrow, an iterator of record batches, a NumPy or SciPy sparse matrix,
    or a list of rows, with `labels` for each row if they have none. With rows in memory `label`, `weight` and `offset`
    may be arrays, and `validation` may be a table or a pair (X, y). Rows in memory are first written to the run's
    folder, so that the run can be resumed.

    `progress`: 'auto' shows it in notebooks and terminals, True everywhere, False nowhere. Ctrl-C saves a checkpoint and
    raises KeyboardInterrupt.
    """
    folder = _folder(run)
    sources, arrays = paths_in(data), _arrays_of(options)
    if labels is not None:
        arrays["label"] = labels
    parts = {}
    if sources is None:
        if "label" not in arrays and is_matrix(plain_source(data)):
            raise OptionError(
                "a matrix without labels", "pass them as the second argument: streampgs.train(X, y, run=…)"
            )
        parts["data"] = GivenRows(data, _named(arrays, options))
    elif arrays:
        found = f"an array for '{next(iter(arrays))}', but the rows are in files"
        raise OptionError(found, "name a column of the files instead")
    validation = options.get("validation")
    if validation is not None and paths_in(validation) is None:
        columns = _label_name(options), options.get("weight") or "weight"
        parts["validation"] = labelled_rows(validation, *columns, "validation")
    if parts:
        build("train", {name: value for name, value in options.items() if name != "validation"}, *TRAIN_OPTIONS)
        written = write_into_new_run(folder, parts)
        sources = [written["data"]] if "data" in written else sources
        options |= {name: (written[name],) for name in written if name == "validation"}
    assert sources is not None
    work = partial(start.train, sources, folder, TrainCall.of(options))
    return _supervised(work, folder, progress, observer, stop)


@public("resume", *RESUME_OPTIONS)
def resume(
    run: str | Path,
    stream: str | None = None,
    *,
    progress: Progress = "auto",
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Report:
    """Continue a run until its limit or a new one, with the shards that arrived since.

    `stream` is '-' for a run on a stream. `add` and `validation` may also be rows in memory: a table, or a pair (X, y).
    Those of `add` are written to the run's folder. `progress`: as for `train`.
    """
    folder = Path(run)
    given = {name: options[name] for name in ("add", "validation") if options.get(name) is not None}
    in_memory = {name: rows for name, rows in given.items() if paths_in(rows) is None}
    if in_memory:
        build("resume", {name: value for name, value in options.items() if name not in in_memory}, *RESUME_OPTIONS)
    with ExitStack() as stack:
        if "add" in in_memory:
            rows = _with_labels(folder, "add", in_memory["add"])
            is_kept = not options.get("dry_run")
            options["add"] = (write_into_run(folder, rows),) if is_kept else stack.enter_context(temporary_shards(rows))
        if "validation" in in_memory:
            rows = _with_labels(folder, "validation", in_memory["validation"])
            options["validation"] = tuple(stack.enter_context(temporary_shards(rows)))
        call = ResumeCall.of(options, stream)
        work = partial(start.resume, folder, call, trial=trial_for(call.changes))
        return _supervised(work, folder, progress, observer, stop)


def _with_labels(run: Path, keyword: str, rows: Any) -> GivenRows:
    """Rows in memory for a run, with the names that its label and weight have."""
    options = RunFolder(run).run_record().options
    if isinstance(rows, tuple) and options.label_expressions:
        raise OptionError(
            f"{keyword} as a tuple, but the label of the run is the expression '{options.labels[0]}'",
            "give a table that has the columns of the expression",
        )
    return labelled_rows(rows, options.labels[0], options.weight or "weight", keyword)


def _folder(run: str | Path | None) -> Path:
    if not isinstance(run, str | Path):
        found = "no folder for the run" if run is None else f"run={run!r} is not a folder"
        raise OptionError(found, "name a new one: streampgs.train(…, run='my-run')")
    return Path(run)


def _arrays_of(options: dict[str, Any]) -> dict[str, Any]:
    """Take arrays out of the options that otherwise name columns."""
    arrays = {}
    for name in ("label", *_ARRAYS):
        value = options.get(name)
        names = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
        if value is not None and not isinstance(value, str) and not (name == "label" and names):
            arrays[name] = options.pop(name)
    return arrays


def _label_name(options: dict[str, Any]) -> str:
    label = options.get("label", "label")
    return label if isinstance(label, str) else "label"


def _named(arrays: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The arrays by the names of their columns, which become the options."""
    options |= {name: name for name in arrays if name in _ARRAYS}
    return {_label_name(options) if name == "label" else name: values for name, values in arrays.items()}


def _supervised(
    work: Callable[[Observer, StopRequest], Report],
    run: Path,
    progress: Progress,
    observer: Observer | None,
    stop: StopRequest | None,
) -> Report:
    """With a display, and with a Ctrl-C that saves, unless the caller gives an observer or a stop."""
    with shown(progress) as display, _interruptible(stop) as asked:
        report = work(observer or display, asked)
        if stop is None and asked.reason == _SIGINT:
            saved = f"saved after {report.rows:,} rows; continue with streampgs.resume('{run}')"
            display.note(saved)
            raise KeyboardInterrupt(saved)
    return replace(report, notes=[python_words(note) for note in report.notes])


@public("evaluate", EvaluateOptions)
def evaluate(
    run: str | Path | Model, data: Any, labels: Any = None, *, weight: Any = None, offset: Any = None, **options: Any
) -> dict[str, Any]:
    """Measure the model of a run, or a loaded model, on other rows. Returns the metrics by name.

    `data` are files, folders, globs or addresses of shards, or rows in memory as for `train`, with `labels`, `weight` and
    `offset` for each row if they have no such columns.
    """
    from streampgs.model import evaluation

    (chosen,) = build("evaluate", options, EvaluateOptions)
    model, arrays = _model(run), {"label": labels, "weight": weight, "offset": offset}
    with _sources(model, data, arrays) as (sources, model):
        skips = chosen.on_bad_row == "skip"
        result = evaluation.evaluate(model, sources, skips, chosen.by, chosen.threshold, chosen.where)
    if chosen.record:
        evaluation.record(model, paths_in(data) or ["rows in memory"], result)
    return result


@public("predict", PredictOptions)
def predict(
    run: str | Path | Model, data: Any, out: str | Path | None = None, *, offset: Any = None, **options: Any
) -> Any:
    """Predict the rows of `data`, given as for `evaluate`, with the model of a run or a loaded model.

    Of an array or a sparse matrix: the array of the predictions. Of other rows: a table with the score, the prediction and
    the probability of each row, as a data frame if `data` is one of pandas or polars, else as an Arrow table. With `out`
    the table is written to this file, in bounded memory, and a summary is returned.
    """
    from streampgs.model import prediction

    (chosen,) = build("predict", {**options, "out": out}, PredictOptions)
    model = _model(run)
    if out is None and is_matrix(plain_source(data)):
        for name in options.keys() - {"threshold"}:
            raise OptionError(f"{name} with a matrix", "give a table of named columns, or a file to write with out=")
        chosen_model = model if chosen.threshold is None else model.with_threshold(chosen.threshold)
        return chosen_model.predict(data, offset)
    keep, given = chosen.keep, {"offset": offset}
    if out is None and _library(data) == "pandas":
        given[_PLACE] = np.arange(len(data))
        keep = keep if keep == ALL else (*keep, _PLACE)
    with _sources(model, data, given) as (sources, model), TemporaryDirectory(prefix="streampgs-") as folder:
        file = chosen.out or Path(folder) / "predictions.arrow"
        result = prediction.predict(
            model, sources, file, chosen.on_bad_row == "skip", keep, chosen.force, chosen.threshold, chosen.where
        )
        return _like(data, read_table(file)) if out is None else result


@public("history", HistoryOptions)
def history(run: str | Path, **options: Any) -> list[dict[str, Any]]:
    """The history of a run, oldest event first: starts, stops, arrivals of shards, choices of a model."""
    (chosen,) = build("history", options, HistoryOptions)
    folder = RunFolder(Path(run))
    folder.record()  # raises an error if it is damaged
    return folder.events(chosen.last)


@public("inspect", InspectOptions, EncodingOptions)
def inspect(target: Any, **options: Any) -> dict[str, Any]:
    """Summarize a run, or profile data: `target` is a run's folder, or data as for `train`."""
    from streampgs.model.inspection import inspected

    sources = paths_in(target)
    with temporary_shards(GivenRows(target)) if sources is None else nullcontext(sources) as found:
        return inspected(found, options)


pack = public("pack", PackOptions)(packer.pack)


def _model(run: str | Path | Model) -> Model:
    return run if isinstance(run, Model) else load_model(Path(run))


@contextmanager
def _sources(model: Model, data: Any, given: dict[str, Any]) -> Iterator[tuple[list[str], Model]]:
    """The data as shards with the columns that the model expects. Weights are optional in memory."""
    options, sources = model.options, paths_in(data)
    arrays = {name: values for name, values in given.items() if values is not None}
    if sources is not None:
        if arrays:
            raise OptionError(f"{next(iter(arrays))} in addition to files", "it must be a column of the files")
        yield sources, model
        return
    if "label" in arrays and len(options.labels) > 1:
        raise OptionError("labels for a model of several labels", "give a table with a column for each")
    if "offset" in arrays and options.offset is None:
        raise OptionError("offset for a model that was trained without one", "leave it out")
    names = {"label": options.labels[0], "weight": options.weight or "weight", "offset": options.offset or "offset"}
    rows = GivenRows(data, {names.get(name, name): values for name, values in arrays.items()})
    if "label" in arrays:
        options = replace(options, label_expressions=())  # the array has its values
    expected = ExpectedRows(model.encoding, model.layout, model.features)
    with _missing_arrays_named(), temporary_shards(rows, lambda data: expected.batches(data)[1]) as written:
        weighted = "weight" in arrays or options.weight in column_names(written[0])
        yield written, replace(model, options=replace(options, weight=names["weight"] if weighted else None))


@contextmanager
def _missing_arrays_named() -> Iterator[None]:
    """A column that rows in memory lack may be given as an array."""
    try:
        yield
    except DataError as error:
        cause = error if isinstance(error, NoColumn) else error.__cause__
        if not isinstance(cause, NoColumn):
            raise
        keyword = "labels" if cause.role == "label" else cause.role
        raise DataError(
            f"the rows in memory have no {cause.role} column '{cause.name}'",
            f"add it, or give its values with {keyword}=…, one for each row",
        ) from error


def _library(data: Any) -> str:
    return type(data).__module__.split(".")[0]


def _like(data: Any, table: pa.Table) -> Any:
    """The table as the kind of data frame that was given."""
    if _library(data) == "polars":
        import polars

        return polars.from_arrow(table)
    if _library(data) == "pandas":
        frame = table.to_pandas()
        return frame.set_index(data.index[frame.pop(_PLACE)])
    return table
