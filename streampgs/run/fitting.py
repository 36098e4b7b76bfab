"""Whether a run fits into the memory of its machine: the default budget, and the refusal before the first row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from streampgs.base.errors import DataError, RunError, sized
from streampgs.data.budget import Forecast, memory_to_decode
from streampgs.data.row_form import RowForm
from streampgs.encoding.encoding import Encoding
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lanes import Lanes
from streampgs.options.commands import DEFAULT_MEMORY, LOSS_FOR_NUMBERS, SMALLEST_MEMORY, Resources
from streampgs.run.memory import Bound, available_bytes, bounds, rss_bytes, tightest
from streampgs.selection.grid import targets_of

_SHARE = 4  # of the limit: Python, decoders and the model need the rest
_MANY_CLASSES = 20
# Memory for a feature: reading out the weights of one lane takes three vectors for a moment. While lanes are dropped, those
# that stay are there twice.
_READING_BYTES = 24
_FEWEST_HASH_BITS = 10
_IN_RECORD = "its window and its model are recorded: resume it where there is more memory"


def with_default_memory(
    resources: Resources, note: Callable[[str], None], needed: int = 0, bound: Bound | None = None
) -> Resources:
    """With the default for --memory on this machine, if none was given. `needed`: by the recorded window of a run."""
    if resources.memory is not None:
        return resources
    bound = bound or tightest()
    memory = DEFAULT_MEMORY
    if bound is not None:
        memory = max(SMALLEST_MEMORY, min(DEFAULT_MEMORY, bound.limit // _SHARE))
    if memory < DEFAULT_MEMORY and not needed and bound is not None:
        note(
            f"{bound.name} has {_megabytes(bound.limit)}: --memory is {_megabytes(memory)} instead of "
            f"{_megabytes(DEFAULT_MEMORY)}, so windows mix fewer rows than on a larger machine. The same --memory gives the "
            "same model everywhere"
        )
    return replace(resources, memory=max(memory, needed))


def with_memory_to_decode(
    given: Resources, used: Resources, decoder_bytes: int, note: Callable[[str], None]
) -> Resources:
    """With more than the default for --memory, if none was given and the row groups of the table cannot be decoded in it."""
    needed = memory_to_decode(decoder_bytes)
    if given.memory is not None or needed <= used.budget:
        return used
    note(
        f"decoding a row group takes {sized(decoder_bytes)}, for the table's many columns or long values: --memory is "
        f"{_megabytes(needed)} instead of {_megabytes(used.budget)}. Smaller row groups need less"
    )
    return replace(used, memory=needed)


@dataclass(frozen=True)
class Fit:
    """Whether the models of a run fit into memory, before they get it."""

    form: RowForm
    resources: Resources
    forecast_of: Callable[[int, int, int], Forecast]
    """A function of the bytes of the process, the number of features and the bytes of a feature."""
    process_bytes: int
    resumed: bool

    def checked(
        self, lanes: Lanes, features: int, racing: bool, more_of_feature: int = 0, more_of_window: int = 0
    ) -> Forecast:
        """The forecast; an error if it is too much. `more_of_feature`, `more_of_window`: bytes besides the lanes that the
        run began with, and besides its windows."""
        options = self.form.options
        own = lanes.bytes_per_feature(options.threads)
        of_feature = own + max(_READING_BYTES, own // 2 if racing else 0) + more_of_feature
        forecast = self.forecast_of(self.process_bytes, features, of_feature)
        forecast = replace(forecast, windows=forecast.windows + more_of_window)
        refuse_too_large(forecast, self.form, self.resources, len(lanes), self.resumed, features)
        return forecast

    def check(self, specs: Sequence[LaneSpec], features: int) -> None:
        """Refuse the first lanes if they do not fit."""
        self.checked(Lanes(specs), features, len(specs) > len(targets_of(self.form.options)))


def refuse_too_large(
    forecast: Forecast,
    form: RowForm,
    resources: Resources,
    models: int,
    resumed: bool,
    features: int,
    limits: Sequence[Bound] | None = None,
) -> None:
    """An error if the forecast is more than this process can take. Otherwise the system would kill it hours later."""
    limits = bounds() if limits is None else limits
    missing = forecast.total - rss_bytes()
    short = [bound for bound in limits if forecast.total > bound.limit or missing > bound.free]
    if not short:
        return
    bound = min(short, key=lambda bound: min(bound.limit - forecast.total, bound.free - missing))
    beyond = max(forecast.total - bound.limit, missing - bound.free)
    raise RunError(
        f"this run needs about {_megabytes(forecast.total)} of memory ({_megabytes(forecast.model)} for the model, "
        f"{_megabytes(forecast.total - forecast.model - forecast.process)} for rows, {_megabytes(forecast.process)} for the "
        f"process), {_megabytes(missing)} more than now; {bound.name}, with {_megabytes(bound.limit)}, has "
        f"{_megabytes(bound.free)} left",
        _IN_RECORD if resumed else _remedy(forecast, beyond, form, resources, models, features),
    )


def _remedy(forecast: Forecast, beyond: int, form: RowForm, resources: Resources, models: int, features: int) -> str:
    options, encoding = form.options, form.encoding
    smaller = resources.budget - beyond
    if forecast.model < forecast.total - forecast.model and smaller >= SMALLEST_MEMORY:
        return f"give at most `--memory {_megabytes(smaller)}`"
    classes = options.classes or ()
    if len(classes) > _MANY_CLASSES and not isinstance(classes[0], str):
        return (
            f"is '{options.labels[0]}' a number? Then predict it with `--loss {LOSS_FOR_NUMBERS}`. Now a model is trained for "
            f"each of {len(classes):,} classes"
        )
    remedies = []
    if encoding is not None and encoding.has_hashed and encoding.options.hash_bits != _FEWEST_HASH_BITS:
        remedies.append(f"`--hash-bits {_fitting_bits(forecast, beyond, encoding)}`")
    if models > max(1, len(classes), len(options.labels)):
        remedies.append(f"a known --sigma ({models} models are trained now)")
    if options.feature_count is not None:
        remedies.append(f"a --feature-count below {options.feature_count:,}")
    if len(classes) > _MANY_CLASSES:
        remedies.append(f"fewer classes than {len(classes):,}")
    if not remedies and encoding is None:
        remedies.append(
            f"`--feature-count N` if index {features - 1:,} of a row is wrong: rows with larger indices are then reported, or "
            "skipped"
        )
    return f"use {', or '.join(remedies)}" if remedies else "leave out columns with --ignore, or use a larger machine"


def _fitting_bits(forecast: Forecast, beyond: int, encoding: Encoding) -> int:
    """Half as many features take half as much memory."""
    bits, model = encoding.hash_bits, float(forecast.model)
    while bits > _FEWEST_HASH_BITS and model > forecast.model - beyond:
        bits, model = bits - 1, model / 2
    return bits


def _megabytes(size: int) -> str:
    """Also a size that the command line takes."""
    return f"{size // 10**6}MB"


def refuse_too_wide(lanes: Lanes, window: Rows, workers: int) -> None:
    """A stray index must not ask for more memory than there is."""
    features = window.features
    needed = (features - lanes.features) * lanes.bytes_per_feature(workers)
    available = available_bytes() if needed > 0 else None  # asking takes milliseconds
    if available is not None and needed > available:
        raise DataError(
            f"a row has feature {features - 1:,}: a model that wide takes {sized(needed)} more, and {sized(available)} "
            "are free",
            "give `--feature-count N` with the true number: rows with larger indices are then reported, or skipped",
        )
