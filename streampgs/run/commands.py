"""Train and resume with options by name, as the command line and Python give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streampgs.options.commands import RESUME_OPTIONS, TRAIN_OPTIONS, ResumeOptions
from streampgs.options.fields import build
from streampgs.run import start
from streampgs.run.on_trial import Trial
from streampgs.run.report import Observer, Report, StopRequest
from streampgs.stores.addresses import absolute


def train(
    sources: Sequence[str], run: Path, options: Mapping[str, Any], observer: Observer, stop: StopRequest
) -> Report:
    model, encoding, limits, resources, growth = build("train", options, *TRAIN_OPTIONS)
    # Absolute, as a resume may start in another folder.
    model = replace(model, validation=tuple(absolute(source) for source in model.validation))
    return start.train(sources, run, model, limits, resources, observer, stop, encoding, growth)


def resume(
    run: Path,
    stream: str | None,
    options: Mapping[str, Any],
    observer: Observer,
    stop: StopRequest,
    trial_for: Callable[[ResumeOptions], Trial | None],
) -> Report:
    """`trial_for`: what measures the model before and after training."""
    limits, resources, growth, changes = build("resume", options, *RESUME_OPTIONS)
    return start.resume(
        run, limits, resources, observer, stop, changes.on_bad_row, growth, stream, changes.skip_taken,
        changes.back_to, trial_for(changes), tuple(map(absolute, changes.validation)), changes.dry_run,
    )  # fmt: skip
