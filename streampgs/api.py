"""The Python interface: what the commands do, as functions of plain arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from streampgs import trainer
from streampgs.errors import OptionError
from streampgs.options import EncodingOptions, Limits, ModelOptions, Resources, parse_size
from streampgs.progress import Observer, Report, StopRequest

Sources = str | Path | Sequence[str | Path]


def train(
    data: Sources,
    *,
    run: str | Path,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Report:
    """Start a run on files, folders or globs of shards and train until a limit.

    Options are those of `streampgs train`, as keywords: loss, p, sigma, ball, epochs, rows, memory, text, … (the fields
    of `ModelOptions`, `EncodingOptions`, `Limits` and `Resources` in streampgs.options).
    """
    model, limits, resources, encoding = _split(options, ModelOptions, Limits, Resources, EncodingOptions)
    if "validation" in model:  # a resume may be started elsewhere
        model["validation"] = tuple(str(Path(source).absolute()) for source in _listed(model["validation"]))
    return trainer.train(
        _listed(data),
        Path(run),
        ModelOptions(**model),
        Limits(**limits),
        Resources(**resources),
        observer,
        stop,
        EncodingOptions(**encoding),
    )


def resume(
    run: str | Path,
    *,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    on_bad_row: str | None = None,
    accept_touched: bool = False,
    **options: Any,
) -> Report:
    """Go on with a run until its limit, or until a new one (epochs, rows, seconds, …)."""
    limits, resources = _split(options, Limits, Resources)
    return trainer.resume(
        Path(run), Limits(**limits), Resources(**resources), observer, stop, on_bad_row, accept_touched
    )


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
