"""The Python interface: what the commands do, as functions of plain arguments."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from streampgs.errors import OptionError, RunError
from streampgs.options import EncodingOptions, Growth, Limits, ModelOptions, Resources, parse_size
from streampgs.run import start as trainer
from streampgs.run.folder import RunFolder
from streampgs.run.lock import RunLock
from streampgs.run.report import Observer, Report, StopRequest
from streampgs.stores.addresses import absolute

Sources = str | Path | Sequence[str | Path]


def train(
    data: Any,
    labels: Any = None,
    *,
    run: str | Path,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Report:
    """Start a run on files, folders or globs of shards and train until a limit.

    Or on rows that the program holds: a table of polars, pandas, DuckDB, pyarrow, …, an iterator of record batches, a
    NumPy matrix or a SciPy sparse matrix; `labels`, where they are apart, are numbers or strings, one for each row. Such
    rows are written into the run's folder first, so that it can be resumed like any other.

    Options are those of `streampgs train`, as keywords: loss, p, sigma, ball, epochs, rows, memory, text, … (the fields
    of `ModelOptions`, `EncodingOptions`, `Limits` and `Resources` in streampgs.options).
    """
    model, limits, resources, encoding, growth = _split(
        options, ModelOptions, Limits, Resources, EncodingOptions, Growth
    )
    if "validation" in model:  # a resume may be started elsewhere
        model["validation"] = tuple(absolute(source) for source in _listed(model["validation"]))
    return trainer.train(
        _listed(data) if _are_paths(data) and labels is None else [_spooled(data, labels, Path(run))],
        Path(run),
        ModelOptions(**model),
        Limits(**limits),
        Resources(**resources),
        observer,
        stop,
        EncodingOptions(**encoding),
        Growth(**growth),
    )


def resume(
    run: str | Path,
    *,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    on_bad_row: str | None = None,
    **options: Any,
) -> Report:
    """Go on with a run until its limit, or until a new one (epochs, rows, seconds, …), with the shards that have come to
    its data; `add` names more. Options are those of `streampgs resume`."""
    limits, resources, growth = _split(options, Limits, Resources, Growth)
    return trainer.resume(
        Path(run), Limits(**limits), Resources(**resources), observer, stop, on_bad_row, Growth(**growth)
    )


def _are_paths(data: Any) -> bool:
    if isinstance(data, list | tuple):
        return all(isinstance(source, str | Path) for source in data)
    return isinstance(data, str | Path)


def _spooled(data: Any, labels: Any, run: Path) -> str:
    """The folder of shards, inside the run's, that the rows were written to."""
    from streampgs.packing.in_memory import batches_of
    from streampgs.packing.shards import write_shards

    if labels is None and (isinstance(data, np.ndarray) or hasattr(data, "tocsr")):
        raise OptionError("a matrix without labels", "give them behind it: streampgs.train(X, y, run=…)")
    folder = RunFolder(run)
    folder.refuse_if_taken()
    if folder.data.exists() and not folder.was_started:
        raise RunError(
            f"'{folder.data}' is there already, and not from a start that was interrupted",
            "name a new folder for the run, apart from the data",
        )
    folder.make()
    with RunLock(run):  # another trainer may be using what is there
        folder.refuse_if_taken()
        shutil.rmtree(folder.data, ignore_errors=True)
        write_shards(batches_of(data, labels), folder.data)
    return str(folder.data)


def _listed(data: Sources) -> list[str]:
    return [str(data)] if isinstance(data, str | Path) else [str(source) for source in data]


def _split(options: dict[str, Any], *kinds: type) -> list[dict[str, Any]]:
    """The options that belong to each kind."""
    options = dict(options)
    for name in ("memory", "window", "cache_limit"):
        if options.get(name) is not None:
            options[name] = parse_size(options[name])
    if options.get("cache") is not None:
        options["cache"] = Path(options["cache"])
    parts = [{f.name: options.pop(f.name) for f in fields(kind) if f.name in options} for kind in kinds]
    if options:
        known = ", ".join(f.name for kind in kinds for f in fields(kind))
        raise OptionError(f"unknown option '{next(iter(options))}'", f"the options are {known}")
    return parts
