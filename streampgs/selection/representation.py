"""What becomes of columns where the user leaves it open: decided by rows of a sample that the compared models were not
trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

from streampgs.data.memory import first_epoch, in_order
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds.curve import Curve
from streampgs.encoding.kinds.kind import Arrays
from streampgs.encoding.learning import with_straight_numbers
from streampgs.kernels.rows import Rows
from streampgs.options.commands import EncodingOptions, KernelOptions, ModelOptions
from streampgs.options.solvers import SolverOptions
from streampgs.selection.crosses import FEWEST_ROWS, crossable, found_crosses
from streampgs.selection.grid import scores_by_halves, searched

_FEWEST_ROWS, _MOST_ROWS, _MOST_TESTED = 50, 1 << 14, 1 << 16


class Sample(Protocol):
    """Rows of a table, from which encodings are learned and compared."""

    @property
    def batches(self) -> Sequence[Arrays]: ...

    def learned(self, options: EncodingOptions) -> Encoding: ...

    def rows(self, encoding: Encoding, most: int) -> tuple[Rows, list[Arrays]]:
        """About so many of the usable rows, evenly from all of them, as the encoding has them and as they were read."""


def chosen_encoding(
    given: EncodingOptions, options: ModelOptions, sample: Sample, encoding: Encoding
) -> tuple[Encoding, list[str]]:
    """The encoding to use, and notes that say why. `encoding`: the one of the options, with curves if they leave them open."""
    usual: dict[str, Any] = {one.name: one.default for kind in (SolverOptions, KernelOptions) for one in fields(kind)}
    options = replace(options, **usual, validation=(), threads=1, batch=1)
    notes: list[str] = []
    if given.numbers == "auto":
        encoding, notes = _with_or_without_curves(encoding, options, sample)
    if given.find_crosses == "auto" and len(options.losses) == 1:
        encoding, of_crosses = _with_crosses(encoding, options, sample)
        notes += of_crosses
    return encoding, notes


def _with_or_without_curves(curved: Encoding, options: ModelOptions, sample: Sample) -> tuple[Encoding, list[str]]:
    """Curves must lower the loss by more than a share of 1/√rows: they cost time, and the losses of few rows are not known
    better."""
    if not any(column.kind == Curve.name for column in curved.columns):
        return curved, []
    straight = with_straight_numbers(curved, sample.batches)
    rows, _ = sample.rows(straight, _MOST_ROWS)
    if len(rows) < _FEWEST_ROWS:
        return straight, []
    before, _ = _searched(options, rows)
    after, _ = _searched(options, sample.rows(curved, _MOST_ROWS)[0])
    text = f"on {len(rows):,} rows curves of numbers changed the held-out loss from {before:.4g} to {after:.4g}"
    if (before - after) * len(rows) ** 0.5 <= before:
        return straight, [f"{text}: numbers are used without them (`--numbers curves` uses them)"]
    return curved, [f"{text}: they are used (`--numbers linear` leaves them out)"]


def _with_crosses(encoding: Encoding, options: ModelOptions, sample: Sample) -> tuple[Encoding, list[str]]:
    if len(crossable(encoding.columns)) < 2:
        return encoding, []
    rows, batches = sample.rows(encoding, _MOST_TESTED)
    if len(rows) < FEWEST_ROWS:
        return encoding, []
    before, sigma = _searched(options, sample.rows(encoding, _MOST_ROWS)[0])
    scores, labels = scores_by_halves(options, in_order(rows), _layout(rows), sigma * min(1.0, _MOST_ROWS / len(rows)))
    found = found_crosses(encoding.columns, batches, rows.numbers, scores, labels, options.losses[0])
    pairs = [pair for pair in found if pair not in encoding.options.cross]
    if not pairs:
        return encoding, []
    crossed = sample.learned(replace(encoding.options, cross=(*encoding.options.cross, *pairs)))
    after, _ = _searched(options, sample.rows(crossed, _MOST_ROWS)[0])
    listed = ", ".join("×".join(pair) for pair in pairs)
    text = f"crosses {listed} changed the held-out loss from {before:.4g} to {after:.4g}"
    if after >= before:
        return encoding, [f"{text}: they are not used (`--cross A,B` adds one)"]
    return crossed, [f"{text}: they are used (`--find-crosses off` leaves them out)"]


def _searched(options: ModelOptions, rows: Rows) -> tuple[float, float]:
    return searched(options, first_epoch(rows, options.seed), _layout(rows))


def _layout(rows: Rows) -> str:
    return "sparse" if rows.indices.size else "dense"
