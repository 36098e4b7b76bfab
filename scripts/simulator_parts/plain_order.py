"""What the order of rows owes to every row, by sets of rows only: the plain twin of streampgs/order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from streampgs.order.cursor import Arrival, Cursor


class OrderBroken(AssertionError):
    """A row was lost, or visited more often than its epoch allows."""


class PlainOrder:
    """Follows a history without disturbances. `row_starts`: the first row of each group of the catalog, and the end."""

    def __init__(self, cursor: Cursor, row_starts: Sequence[int], by_epochs: bool = True) -> None:
        """`by_epochs`: each row is visited once an epoch; otherwise rows are drawn independently, and only counted."""
        self.by_epochs = by_epochs
        self.arrivals: list[Arrival] = list(cursor.arrivals)
        self.row_starts = row_starts
        self._now = (cursor.epoch, cursor.part)
        self._visited: Counter[int] = Counter()
        """In the present part of the epoch."""
        self._before: Counter[int] = Counter()
        """In the earlier parts, since the epoch began or began again."""
        self.visits: Counter[tuple[int, int]] = Counter()
        """How often each row was visited in each epoch: (row, epoch)."""
        self._dues: dict[tuple[int, int], Counter[int]] = {}

    def placed(
        self, before: Cursor, cursor: Cursor, row_starts: Sequence[int], groups: int, begins_again: bool
    ) -> None:
        """Shards have come or gone, and there are so many groups now; `begins_again`: the epoch starts again, without the
        arrivals that were waiting."""
        self.row_starts = row_starts
        self._dues.clear()
        last = cursor.arrivals[-1]
        is_new = last not in self.arrivals
        if last.groups != groups or (is_new and not cursor.epoch <= last.epoch <= cursor.epoch + 1):
            raise OrderBroken(f"after {before} {groups} groups are placed as {last}")
        if is_new:
            if last.copies not in ((1,) if begins_again else (1, last.epoch + 1)):
                raise OrderBroken(f"new groups are visited {last.copies} times in epoch {last.epoch}")
            going_on, place = cursor.arrivals[:-1], before.place if begins_again else last.place
            kept = [a for a in self.arrivals if a.place <= place or a in going_on]
            self.arrivals = [*kept, last]
        if begins_again and not before.begins_epoch:
            self._visited.clear()
            self._before.clear()
            self._now = (cursor.epoch, cursor.part)

    def visit(self, epoch: int, part: int, rows: Sequence[int]) -> None:
        self.visits.update((row, epoch) for row in rows)
        if not self.by_epochs:
            return
        if (epoch, part) != self._now:
            self._finish((epoch, part))
        due = self._due(epoch, part)
        self._visited.update(rows)
        for row in rows:
            if self._visited[row] > due[row]:
                raise OrderBroken(
                    f"row {row} is visited {self._visited[row]} times in part {part} of epoch {epoch}, "
                    f"which allows {due[row]}"
                )

    def end(self, cursor: Cursor) -> None:
        """The history ends here."""
        if self.by_epochs and (cursor.epoch, cursor.part) > self._now:
            self._finish((cursor.epoch, cursor.part))

    def check_state(self, visits: Sequence[int], epochs: int) -> None:
        """The state counts the same visits; a row has so many places in it."""
        counted = Counter({divmod(place, epochs): count for place, count in enumerate(visits) if count})
        if counted != self.visits:
            raise OrderBroken(f"the state has {sorted((counted - self.visits).items())[:5]} too many visits and "
                              f"{sorted((self.visits - counted).items())[:5]} too few")  # fmt: skip

    def _finish(self, following: tuple[int, int]) -> None:
        """All rows of the part that was under way have been visited; at the end of an epoch, all rows."""
        now = self._now
        lost = self._due(*now) - self._visited
        if lost:
            raise OrderBroken(f"rows {sorted(lost)[:10]} are not visited in part {now[1]} of epoch {now[0]}")
        self._before += self._visited
        self._visited.clear()
        self._now = following
        if following[0] == now[0]:
            return
        lost_groups = [
            group
            for group in self._live(now[0])
            if any(row not in self._before for row in range(self.row_starts[group], self.row_starts[group + 1]))
        ]
        if lost_groups or following != (now[0] + 1, 0):
            raise OrderBroken(f"groups {lost_groups} are left out of epoch {now[0]}; then comes {following}")
        self._before.clear()

    def _live(self, epoch: int) -> Iterator[int]:
        """The groups that are used in an epoch."""
        known = max(a.groups for a in self.arrivals if a.epoch <= epoch)
        gone = self._gone(epoch, max(a.part for a in self.arrivals))
        return (group for group in range(known) if group not in gone)

    def _gone(self, epoch: int, part: int) -> set[int]:
        return {
            group
            for a in self.arrivals
            if (a.epoch, a.part) <= (epoch, part)
            for first, stop in a.retired
            for group in range(first, stop)
        }

    def _due(self, epoch: int, part: int) -> Counter[int]:
        """How often each row is to be visited in a part of an epoch, by the arrivals so far."""
        if (epoch, part) not in self._dues:
            self._dues[epoch, part] = self._found_due(epoch, part)
        return self._dues[epoch, part]

    def _found_due(self, epoch: int, part: int) -> Counter[int]:
        own = [a for a in self.arrivals if (a.epoch, a.part) == (epoch, part)]
        known = max((a.groups for a in self.arrivals if (a.epoch, a.part) < (epoch, part)), default=0)
        since = next((a.since for a in own if a.position == 0), 0)
        runs = [(since, known, 1)]
        for arrival in own:
            first = max(known, since)
            known = max(first, arrival.groups)
            runs.append((first, known, arrival.copies))
        due: Counter[int] = Counter()
        gone = self._gone(epoch, part)
        for first, stop, copies in runs:
            for group in range(first, stop):
                if group not in gone:
                    due.update(dict.fromkeys(range(self.row_starts[group], self.row_starts[group + 1]), copies))
        return due
