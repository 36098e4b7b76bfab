"""The order of a solver of columns: rows in epoch 0 and in updates, columns in later epochs.

Shards that arrive in an epoch of columns wait for its end. Then a single pass visits their rows, and no others.
"""

from __future__ import annotations

from dataclasses import replace

from streampgs.order.arrivals import USUAL_UPDATES, UpdateSizes
from streampgs.order.columns import of_columns
from streampgs.order.cursor import Cursor, Span
from streampgs.order.schedule import Schedule

_ONE_PASS = UpdateSizes(passes=1, replay=0.0)


class ColumnSchedule(Schedule):
    def arrive(
        self,
        cursor: Cursor,
        shards: int,
        groups: int,
        sizes: UpdateSizes | None = USUAL_UPDATES,
        retired: tuple[Span, ...] = (),
        are_old: bool = False,
    ) -> Cursor:
        arrived = super().arrive(cursor, shards, groups, _ONE_PASS, retired, are_old)
        return replace(arrived, arrivals=tuple(replace(arrival, holds_out=False) for arrival in arrived.arrivals))

    def _boundary(self, cursor: Cursor) -> Cursor:
        if not of_columns(cursor):
            return super()._boundary(cursor)
        return cursor if cursor.begins_epoch else Cursor(cursor.arrivals, cursor.epoch + 1)

    def _settled(self, cursor: Cursor) -> Cursor:
        return cursor if of_columns(cursor) else super()._settled(cursor)

    def _is_leaving(self, cursor: Cursor, retired: tuple[Span, ...]) -> bool:
        return not of_columns(cursor) and super()._is_leaving(cursor, retired)
