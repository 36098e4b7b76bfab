"""Whether numbers get curves: decided by rows of a sample that the compared models were not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from streampgs.data.memory import first_epoch
from streampgs.data.open import RowsOf
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds.kind import Arrays
from streampgs.encoding.learning import with_straight_numbers
from streampgs.kernels.rows import Rows
from streampgs.options.commands import KernelOptions, ModelOptions
from streampgs.options.solvers import SolverOptions
from streampgs.selection.grid import searched_loss

_FEWEST_ROWS = 50


def chosen_encoding(
    curved: Encoding, sample: Sequence[Arrays], options: ModelOptions, rows_of: RowsOf
) -> tuple[Encoding, list[str]]:
    """The encoding with curves or without them, and a note that says why. Curves must lower the loss by more than a share of
    1/√rows: they cost time, and the losses of few rows are not known better."""
    straight = with_straight_numbers(curved, sample)
    rows = rows_of(straight)
    if len(rows) < _FEWEST_ROWS:
        return straight, []
    losses = [_loss(options, found) for found in (rows, rows_of(curved))]
    gain = 1.0 - losses[1] / losses[0] if losses[0] > 0.0 else 0.0
    text = f"on {len(rows):,} rows curves of numbers changed the held-out loss from {losses[0]:.4g} to {losses[1]:.4g}"
    if gain * len(rows) ** 0.5 <= 1.0:
        return straight, [f"{text}: numbers are used without them (`--numbers curves` uses them)"]
    return curved, [f"{text}: they are used (`--numbers linear` leaves them out)"]


def _loss(options: ModelOptions, rows: Rows) -> float:
    """On rows that were not trained on, with the default solver."""
    usual: dict[str, Any] = {one.name: one.default for kind in (SolverOptions, KernelOptions) for one in fields(kind)}
    options = replace(options, **usual, validation=(), threads=1, batch=1)
    return searched_loss(options, first_epoch(rows, options.seed), "sparse" if rows.indices.size else "dense")
