"""What a run tells before its first step, and before the first one of an update."""

from __future__ import annotations

from collections.abc import Iterable

from streampgs.data.budget import Forecast
from streampgs.options import Resources
from streampgs.order.schedule import UpdatePass
from streampgs.reading.window import Window
from streampgs.run.fitting import Fit
from streampgs.run.input import Input
from streampgs.run.lineages import bytes_besides
from streampgs.run.models import Models
from streampgs.run.report import Observer
from streampgs.run.words import announced, large_model_note


def announce(
    models: Models,
    data: Input,
    fit: Fit,
    resources: Resources,
    window: Window,
    update: UpdatePass | None,
    observer: Observer,
) -> tuple[Forecast, dict[str, str]]:
    """Show every choice. The memory forecast, and the choices; an error if memory is short."""
    racing = len(models.lanes) > 1 and models.race.next_mark is not None
    besides = bytes_besides(models.lineages, window, update, data.form.options.threads)
    forecast = fit.checked(models.lanes, models.features, racing, besides)
    choices = announced(models, data.form.encoding, data.choices(window, models.features), forecast)
    observer.choices(choices)
    note = large_model_note(forecast, resources.budget, data.form.encoding)
    tell([*([] if note is None else [note]), *data.hints(window)], observer)
    return forecast, choices


def tell(notes: Iterable[str], observer: Observer) -> None:
    for note in notes:
        observer.note(note)
