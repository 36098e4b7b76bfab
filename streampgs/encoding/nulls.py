"""Shares of nulls, and whether new rows have others than the rows that an encoding was learned from."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from streampgs.encoding.kinds.kind import Arrays, Column, arrays_of

# A share has changed if it differs by so much, and by so many standard errors.
_MUCH, _ERRORS = 0.1, 4.0
_MOST_NAMES = 5


def null_shares(columns: Iterable[Column], sample: Sequence[Arrays]) -> dict[str, float]:
    """By column of the table. Rows without a column count as null."""
    rows = max(1, sum(len(next(iter(batch.values()))) for batch in sample))
    names = [name for column in columns for name in column.sources]
    valid = {name: sum(len(array) - array.null_count for array in arrays_of(sample, name)) for name in names}
    return {name: 1.0 - count / rows for name, count in valid.items()}


def changed_shares(
    before: Mapping[str, float], now: Mapping[str, float], rows: int, missing: Collection[str]
) -> dict[str, float]:
    """The shares in so many new rows that chance does not explain; without the columns that are missing."""
    changed = {}
    for name, share in now.items():
        middle = (before[name] + share) / 2.0
        by_chance = _ERRORS * math.sqrt(middle * (1.0 - middle) / max(1, rows))
        if name not in missing and abs(share - before[name]) > max(_MUCH, by_chance):
            changed[name] = share
    return changed


def text_of_nulls(before: Mapping[str, float], changed: Mapping[str, float]) -> list[str]:
    listed = [f"'{name}' {share:.0%} (before {before[name]:.0%})" for name, share in changed.items()]
    more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    return [f"other shares of nulls in the new shards: {', '.join(listed[:_MOST_NAMES])}{more}"] if listed else []
