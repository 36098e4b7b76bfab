"""What becomes of columns where the user leaves it open: decided by rows of a sample that the compared models were not
trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, Protocol

from streampgs.data.feature_maps import Numbering
from streampgs.data.memory import first_epoch, in_order
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds.category import name_of_cross
from streampgs.encoding.kinds.curve import Curve
from streampgs.encoding.kinds.kind import Arrays
from streampgs.encoding.learning import with_straight_numbers
from streampgs.kernels.rows import Rows
from streampgs.options.commands import EncodingOptions, KernelOptions, ModelOptions
from streampgs.options.solvers import SolverOptions
from streampgs.selection.cross_validation import MOST_CLASSES
from streampgs.selection.crosses import FEWEST_ROWS, crossable, found_crosses
from streampgs.selection.grid import scores_by_halves, searched

_FEWEST_ROWS, _MOST_ROWS, _MOST_TESTED = 50, 1 << 14, 1 << 16


class Judged(NamedTuple):
    """How well the best model of some rows predicts others, and its sigma."""

    loss: float
    sigma: float
    rows: int


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
    if len(options.classes or ()) > MOST_CLASSES:  # a few of the classes would decide for all
        return with_straight_numbers(encoding, sample.batches) if given.numbers == "auto" else encoding, []
    notes: list[str] = []
    known: Judged | None = None
    if given.numbers == "auto":
        encoding, known, notes = _with_or_without_curves(encoding, options, sample)
    if given.find_crosses == "auto" and len(options.losses) == 1:
        encoding, of_crosses = _with_crosses(encoding, known, options, sample)
        notes += of_crosses
    return encoding, notes


def _with_or_without_curves(
    curved: Encoding, options: ModelOptions, sample: Sample
) -> tuple[Encoding, Judged | None, list[str]]:
    """Curves must lower the loss by more than a share of 1/√rows: they cost time, and the losses of few rows are not known
    better."""
    if not any(column.kind == Curve.name for column in curved.columns):
        return curved, None, []
    straight = with_straight_numbers(curved, sample.batches)
    rows, _ = sample.rows(straight, _MOST_ROWS)
    if len(rows) < _FEWEST_ROWS:
        return straight, None, []
    before, after = _judged(options, rows), _judged(options, sample.rows(curved, _MOST_ROWS)[0])
    text = (
        f"on {len(rows):,} rows curves of numbers changed the held-out loss from {before.loss:.4g} to {after.loss:.4g}"
    )
    if (before.loss - after.loss) * len(rows) ** 0.5 <= before.loss:
        return straight, before, [f"{text}: numbers are used without them (`--numbers curves` uses them)"]
    return curved, after, [f"{text}: they are used (`--numbers linear` leaves them out)"]


def _with_crosses(
    encoding: Encoding, known: Judged | None, options: ModelOptions, sample: Sample
) -> tuple[Encoding, list[str]]:
    """`known`: how good models of the encoding are, if that has been judged."""
    if len(crossable(encoding.columns)) < 2:
        return encoding, []
    rows, batches = sample.rows(encoding, _MOST_TESTED)
    if len(rows) < FEWEST_ROWS:
        return encoding, []
    before = known or _judged(options, sample.rows(encoding, _MOST_ROWS)[0])
    sigma = before.sigma * before.rows / len(rows)
    scores, labels = scores_by_halves(options, in_order(_numbered(rows)), _layout(rows), sigma)
    found = found_crosses(encoding.columns, batches, rows.numbers, scores, labels, options.losses[0])
    taken = {column.name for column in encoding.columns}
    pairs = [pair for pair in found if name_of_cross(pair) not in taken]
    if not pairs:
        return encoding, []
    crossed = sample.learned(replace(encoding.options, cross=(*encoding.options.cross, *pairs)))
    after = _judged(options, sample.rows(crossed, _MOST_ROWS)[0])
    listed = ", ".join(map(name_of_cross, pairs))
    text = f"crosses {listed} changed the held-out loss from {before.loss:.4g} to {after.loss:.4g}"
    if after.loss >= before.loss:
        return encoding, [f"{text}: they are not used (`--cross A,B` adds one)"]
    return crossed, [f"{text}: they are used (`--find-crosses off` leaves them out)"]


def _judged(options: ModelOptions, rows: Rows) -> Judged:
    loss, sigma = searched(options, first_epoch(_numbered(rows), options.seed), _layout(rows))
    return Judged(loss, sigma, len(rows))


def _numbered(rows: Rows) -> Rows:
    """With room in the models for those features alone that the rows have."""
    return Numbering(rows.features).taken(rows) if rows.indices.size else rows


def _layout(rows: Rows) -> str:
    return "sparse" if rows.indices.size else "dense"
