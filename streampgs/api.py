"""The Python interface: the commands as functions with keywords."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from streampgs.errors import OptionError, RunError
from streampgs.option_fields import build
from streampgs.options import RESUME_OPTIONS, TRAIN_OPTIONS
from streampgs.run import start as trainer
from streampgs.run.folder import RunFolder
from streampgs.run.lock import RunLock
from streampgs.run.report import Observer, Report, StopRequest
from streampgs.stores.addresses import absolute


def train(
    data: Any,
    labels: Any = None,
    *,
    run: str | Path,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Report:
    """Start a run in the folder `run` and train until a limit.

    `data` are files, folders, globs or addresses of shards, or '-' for an Arrow stream on standard input. Or rows in
    memory: a table of polars, pandas, DuckDB or pyarrow, an iterator of record batches, a NumPy or SciPy sparse matrix,
    with `labels` for each row if the table has none. Rows in memory are first written to the run's folder, so that the
    run can be resumed.

    Options are those of `streampgs train`: loss, sigma, epochs, memory, text, … docs/reference.md lists their names.
    """
    model, encoding, limits, resources, growth, stream = build("train", options, *TRAIN_OPTIONS)
    # Absolute, as a resume may start in another folder.
    model = replace(model, validation=tuple(absolute(source) for source in model.validation))
    sources = _paths(data) if labels is None else None
    return trainer.train(
        [_spooled(data, labels, Path(run))] if sources is None else sources,
        Path(run),
        model,
        limits,
        resources,
        observer,
        stop,
        encoding,
        growth,
        stream if "replay" in options else None,
    )


def resume(
    run: str | Path,
    stream: str | None = None,
    *,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Report:
    """Continue a run until its limit or a new one, with the shards that arrived since.

    `stream` is '-' for a run on a stream. Options are those of `streampgs resume`: epochs, add, sigma, …
    """
    limits, resources, growth, changes = build("resume", options, *RESUME_OPTIONS)
    return trainer.resume(
        Path(run), limits, resources, observer, stop, changes.on_bad_row, growth, stream, changes.skip_taken
    )


def _paths(data: Any) -> list[str] | None:
    """None: the data are rows in memory."""
    sources = data if isinstance(data, list | tuple) else [data]
    return [str(source) for source in sources] if all(isinstance(each, str | Path) for each in sources) else None


def _spooled(data: Any, labels: Any, run: Path) -> str:
    """Write rows in memory to shards in the run's folder."""
    import numpy as np

    from streampgs.packing.shards import write_shards
    from streampgs.reading.in_memory import batches_of

    if labels is None and (isinstance(data, np.ndarray) or hasattr(data, "tocsr")):
        raise OptionError("a matrix without labels", "pass them as the second argument: streampgs.train(X, y, run=…)")
    folder = RunFolder(run)
    folder.refuse_if_taken()
    if folder.data.exists() and not folder.was_started:
        raise RunError(
            f"'{folder.data}' exists already, but not from an interrupted start",
            "choose a new folder for the run, outside the data",
        )
    folder.make()
    with RunLock(run):  # another trainer may be using the folder
        folder.refuse_if_taken()
        shutil.rmtree(folder.data, ignore_errors=True)
        write_shards(batches_of(data, labels), folder.data)
    return str(folder.data)
