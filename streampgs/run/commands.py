"""The options of one call of train or resume, as the command line and Python give them by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streampgs.options.commands import (
    RESUME_OPTIONS,
    TRAIN_OPTIONS,
    EncodingOptions,
    Growth,
    Limits,
    ModelOptions,
    NewLimits,
    Resources,
    ResumeOptions,
)
from streampgs.options.fields import build
from streampgs.stores.addresses import absolute


@dataclass(frozen=True)
class TrainCall:
    """A call that starts a run."""

    model: ModelOptions
    encoding: EncodingOptions = field(default_factory=EncodingOptions)
    limits: Limits = field(default_factory=Limits)
    resources: Resources = field(default_factory=Resources)
    growth: Growth = field(default_factory=Growth)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> TrainCall:
        model, *others = build("train", options, *TRAIN_OPTIONS)
        # Absolute, as a resume may start in another folder.
        return cls(replace(model, validation=tuple(map(absolute, model.validation))), *others)


@dataclass(frozen=True)
class ResumeCall:
    """A call that continues a run. `stream`: '-' if there are more rows of a stream on standard input."""

    limits: Limits | NewLimits = field(default_factory=NewLimits)
    resources: Resources = field(default_factory=Resources)
    growth: Growth = field(default_factory=Growth)
    changes: ResumeOptions = field(default_factory=ResumeOptions)
    stream: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], stream: str | None) -> ResumeCall:
        limits, resources, growth, changes = build("resume", options, *RESUME_OPTIONS)
        return cls(limits, resources, growth, changes, stream)
