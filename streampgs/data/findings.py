"""What a call of train or resume found in its data, for its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_ROLES = ("label", "weight", "offset")


def unused_columns(left_out: Mapping[str, str]) -> dict[str, str]:
    """The columns that are neither features nor used in another role, with their reasons."""
    return {name: why for name, why in left_out.items() if why not in _ROLES}


@dataclass
class Findings:
    """The fields are keys of `train --json` and `resume --json`."""

    new_shards: list[str] = field(default_factory=list)
    """Shards that joined the run in this call, after its start."""
    waiting_shards: list[str] = field(default_factory=list)
    """New shards that were not trained on, because a limit was reached before they could join."""
    new_rows: int = 0
    """In the new shards."""
    lost_shards: list[str] = field(default_factory=list)
    """Shards that are no longer trained on: gone, replaced or left out."""
    rejected_shards: list[str] = field(default_factory=list)
    """New shards that are left out, because a resume that brought them was rejected, now or before."""
    ignored_columns: dict[str, str] = field(default_factory=dict)
    """Columns that are not used, with the reason."""
    missing_columns: list[str] = field(default_factory=list)
    """Columns of the run that the new shards lack; they count as null there."""
    new_columns: list[str] = field(default_factory=list)
    """Columns of the new shards that are features from now on."""
    changed_nulls: dict[str, float] = field(default_factory=dict)
    """The shares of nulls in the new shards, by column, where they are far from those in training."""
    incomplete_files: list[str] = field(default_factory=list)
    """Files without an end, which were left out: they are still being written, or their writer was interrupted."""
    ignored_files: dict[str, str] = field(default_factory=dict)
    """Other files that were left out, with the reason."""
