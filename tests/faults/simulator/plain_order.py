"""What the order of rows owes to every row, by sets of rows only: the plain twin of streampgs/order.

It follows a run window by window. It is told which groups come and go, and at which moment, and decides by itself when
they begin: with the next window, and new groups that find all epochs over begin an update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

from streampgs.order.cursor import Cursor

_HELD_OUT = 0.25
LINEAGES = LONG, RECENT, FRESH = "lanes", "recent", "fresh"
"""The sections of a checkpoint with the lineages."""


class OrderBroken(AssertionError):
    """A row was lost, or visited more often than it should be."""


@dataclass(frozen=True)
class Coming:
    """Groups come and go: what one look at the table has found."""

    groups: int
    """In the catalog from now on."""
    going: frozenset[int] = frozenset()
    passes: int = 3
    replay: float = 3.0


@dataclass(frozen=True)
class _Update:
    first_part: int
    first_group: int
    stop_group: int
    passes: int
    replay: float
    holds_out: bool
    rows: int
    """New rows at its beginning."""

    @property
    def all_passes(self) -> int:
        return self.passes + self.holds_out


@dataclass
class Replayed:
    """Old rows in the passes of updates, summed over passes that need not take all of them."""

    wanted: float = 0.0
    planned: int = 0
    to_be_trained_on: float = 0.0


@dataclass(frozen=True)
class _Phase:
    """The rows that an epoch, or a pass of an update, has planned."""

    epoch: int
    update: _Update | None
    number: int
    """Of the pass."""
    planned: Counter[int]
    old_share: float
    is_abandoned: bool = False
    """A window of it was left and begun again."""

    def named(self) -> tuple[int, int]:
        """Of an update: its epoch and its first part."""
        return self.epoch, 0 if self.update is None else self.update.first_part


@dataclass
class PlainOrder:
    row_starts: Sequence[int]
    """The first row of each group of the catalog, and the end."""
    known: int
    """Groups that have begun."""
    waiting: tuple[Coming, ...] = ()
    """Those whose new groups have not begun."""
    gone: frozenset[int] = frozenset()
    epoch: int = 0
    part: int = 0
    update: _Update | None = None
    """The one that is going on."""
    updates: int = 0
    had_updates: bool = False
    due: set[int] = field(default_factory=set)
    """Rows that the present epoch or pass has yet to visit."""
    drawn: set[int] = field(default_factory=set)
    """Old rows that the present pass has visited."""
    window: tuple[int, int, int, int] | None = None
    """Where the present window begins; None before the first one."""
    old_share: float = 1.0
    undisturbed: bool = True
    """No group has left since the update began."""
    planned: Counter[int] = field(default_factory=Counter)
    """How often each row came in the present epoch or pass."""
    phases: tuple[_Phase, ...] = ()
    """The epochs and passes before."""
    before: PlainOrder | None = None
    """As it was before the present window."""
    has_forgotten: bool = False
    """Rows were visited in the first window of new groups. It was left, because it had rows of groups that went away, and
    then the new groups went away, too: nothing but the models knows of the visits."""
    in_window: Counter[int] = field(default_factory=Counter)
    """How often each row came in the present window."""
    replayed: Replayed = field(default_factory=Replayed)

    def __post_init__(self) -> None:
        if self.window is None:
            self.due = self._rows(0, self.known)

    def copy(self) -> PlainOrder:
        return replace(
            self,
            due=set(self.due),
            drawn=set(self.drawn),
            planned=Counter(self.planned),
            in_window=Counter(self.in_window),
            replayed=replace(self.replayed),
        )

    # Groups come and go.

    def comes(self, coming: Coming, row_starts: Sequence[int], rewinds: bool = False) -> None:
        """`rewinds`: the present window cannot be filled again, because it has rows of groups that leave; it counts as not
        begun."""
        self.row_starts = row_starts
        if rewinds:
            self._rewind()
        self.waiting = (*self.waiting, coming)
        if self.window is None and not self.phases:  # the run begins with them
            self._retire()
            self._join()

    def _rewind(self) -> None:
        assert self.before is not None
        now, before = replace(self), self.before.copy()
        for one in fields(PlainOrder):
            if one.name not in ("row_starts", "replayed"):
                setattr(self, one.name, getattr(before, one.name))
        self.waiting = (*before.waiting, *now.waiting)
        self.phases = (*now.phases, replace(now._phase(), planned=now.in_window, is_abandoned=True))
        if (now.epoch, now.part) != (before.epoch, before.part):
            self.planned = Counter()  # it is among the phases already

    def resume(self) -> None:
        """New groups that have not begun have never come. Those that have left stay away."""
        begins_at = self.row_starts[self.known]
        abandoned = (row for phase in self.phases if phase.is_abandoned for row in phase.planned)
        self.has_forgotten |= any(row >= begins_at for row in abandoned)
        kept = (self.remains_of(coming) for coming in self.waiting)
        self.waiting = tuple(coming for coming in kept if coming is not None)
        self.gone = frozenset(group for group in self.gone if group < self.known)

    def remains_of(self, coming: Coming) -> Coming | None:
        """What a resume leaves of it."""
        if coming.groups <= self.known:
            return coming
        going = frozenset(group for group in coming.going if group < self.known)
        return replace(coming, groups=self.known, going=going) if going else None

    @property
    def all_gone(self) -> frozenset[int]:
        """Also those that leave with the next window."""
        return self.gone.union(*(coming.going for coming in self.waiting))

    # Rows are visited.

    def visit(self, start: Cursor, rows: Sequence[int], said: Any = None) -> None:
        """Some rows of the window that starts there. `said`: the product's own account of the pass."""
        window = (start.epoch, start.part, start.position, start.slice)
        if window != self.window:
            before = replace(self.copy(), before=None)
            if start.slice == 0:
                self._next_window(start)
            elif self.window is None or window[:3] != self.window[:3]:
                raise OrderBroken(f"slice {start.slice} follows {self.window}")
            self.window, self.before, self.in_window = window, before, Counter()
            self._check_account(said)
        self.planned.update(rows)
        self.in_window.update(rows)
        for row in rows:
            if row in self.due:
                self.due.discard(row)
            elif self.update is not None:
                self._visit_old(row)
            else:
                raise OrderBroken(f"row {row} must not be visited now, in part {self.part} of epoch {self.epoch}")

    def _visit_old(self, row: int) -> None:
        assert self.update is not None
        if row >= self.row_starts[self.update.first_group]:
            raise OrderBroken(f"new row {row} is visited twice in a pass, or has not begun")
        if row in self.drawn:
            raise OrderBroken(f"old row {row} is visited twice in pass {self.part} of epoch {self.epoch}")
        if row not in self._rows(0, self.update.first_group):
            raise OrderBroken(f"row {row} of a shard that is gone is visited")
        self.drawn.add(row)

    def end(self, cursor: Cursor) -> None:
        """The history ends here."""
        gone = self._rows_of({group for coming in self.waiting for group in coming.going})
        if (cursor.epoch, cursor.part) != (self.epoch, self.part) and self.due - gone:
            raise OrderBroken(f"rows {sorted(self.due)[:10]} are left out of part {self.part} of epoch {self.epoch}")

    # What models have been trained on.

    def visits(self) -> Counter[tuple[int, int]]:
        """How often each row came in each epoch: (row, epoch)."""
        found: Counter[tuple[int, int]] = Counter()
        for phase in (*self.phases, self._phase()):
            for row, times in phase.planned.items():
                found[row, phase.epoch] += times
        return found

    def check_lineage(self, name: str, counted: Counter[tuple[int, int]]) -> None:
        """How often a model of this lineage has been trained on each row, in each epoch: (row, epoch)."""
        allowed = self._allowed(name)
        wrong = {key: counted[key] for key in {*counted, *allowed} if counted[key] not in allowed.get(key, {0})}
        if wrong:
            some = {key: f"{wrong[key]}, not {allowed.get(key, 0)}" for key in sorted(wrong)[:5]}
            raise OrderBroken(f"visits of (row, epoch) by {name}: {some}")

    def _allowed(self, name: str) -> dict[tuple[int, int], set[int]]:
        """The numbers of visits that are right."""
        found: dict[tuple[int, int], set[int]] = {}

        def add(row: int, epoch: int, times: set[int]) -> None:
            found[row, epoch] = {a + b for a in found.get((row, epoch), {0}) for b in times}

        for (epoch, _), phases in groupby(
            (phase for phase in (*self.phases, self._phase()) if phase.planned), _Phase.named
        ):
            passes = list(phases)
            update = passes[-1].update
            if update is None:
                for phase in passes:
                    for row, times in phase.planned.items():
                        add(row, epoch, {times} if name != FRESH or self._had_update_before(epoch) else {0})
                continue
            if name == FRESH:
                found.clear()
            new = self.row_starts[update.first_group]
            for phase in passes:
                for row in phase.planned:
                    if row >= new and phase.is_abandoned:
                        add(row, epoch, {0, 1})
                    elif row < new and name == LONG:
                        add(row, epoch, {1} if phase.old_share == 1.0 else {0, 1})
            passes = [phase for phase in passes if not phase.is_abandoned]
            for row in {row for phase in passes for row in phase.planned if row >= new}:
                add(row, epoch, self._of_new_row(row, update, passes, name == LONG))
        return found

    @staticmethod
    def _of_new_row(row: int, update: _Update, passes: Sequence[_Phase], once: bool) -> set[int]:
        """`once`: by the lineage that trains on new rows in the first pass only. A row that is held out comes in the last
        pass only."""
        came = {phase.number for phase in passes if row in phase.planned}
        usual = int(0 in came) if once else len(came - {update.passes})
        return {usual, int(update.passes in came)} if update.holds_out else {usual}

    def _had_update_before(self, epoch: int) -> bool:
        return any(phase.update is not None and phase.epoch < epoch for phase in self.phases)

    # Windows, epochs and passes.

    def _next_window(self, start: Cursor) -> None:
        """The moment between two windows: groups leave, and join an epoch that still has rows; or the next pass or epoch
        begins."""
        now, then = (self.epoch, self.part), (start.epoch, start.part)
        goes_on = bool(self.due) or self.window is None
        self._retire()
        if then == now and self.update is None:
            if not goes_on:
                raise OrderBroken(f"epoch {self.epoch} goes on after all of its rows")
            self._join()
        while (self.epoch, self.part) != then:
            if self.due:
                raise OrderBroken(
                    f"rows {sorted(self.due)[:10]} are left out of part {self.part} of epoch {self.epoch}; "
                    f"then comes part {start.part} of epoch {start.epoch}"
                )
            self._finish_pass()
            self.phases = (*self.phases, self._phase())
            self.planned = Counter()
            self._next_phase()
            if (self.epoch, self.part) > then:
                raise OrderBroken(f"a window of {then} comes where {self.epoch, self.part} is due")

    def _retire(self) -> None:
        going = frozenset().union(*(coming.going for coming in self.waiting))
        if going:
            self.waiting = tuple(replace(coming, going=frozenset()) for coming in self.waiting)
            self.gone |= going
            self.due -= self._rows_of(going)
            self.undisturbed = False

    def _join(self) -> None:
        """Groups that were waiting join the epoch that is going on."""
        new = self._all_begin()
        self.due |= new

    def _all_begin(self) -> set[int]:
        """All groups that were waiting begin; gives their rows."""
        before = self.known
        self.known = max([before, *(coming.groups for coming in self.waiting)])
        self.waiting = ()
        return self._rows(before, self.known)

    def _next_phase(self) -> None:
        update = self.update
        self.drawn, self.old_share = set(), 1.0
        if update is not None and self.part + 1 < update.first_part + update.all_passes:
            self.part += 1
            self.due = self._rows(update.first_group, update.stop_group)
            return
        first, waiting = self.known, self.waiting
        new = self._all_begin()
        if new:
            last = max(waiting, key=lambda coming: coming.groups)
            self.part += 1
            self.update = _Update(
                self.part, first, self.known, last.passes, last.replay, not self.had_updates, len(new)
            )  # fmt: skip
            self.had_updates, self.undisturbed, self.due = True, True, new
            self.updates += 1
            return
        self.update = None
        self.epoch, self.part = self.epoch + 1, 0
        self.due = self._rows(0, self.known)

    def _phase(self) -> _Phase:
        number = 0 if self.update is None else self.part - self.update.first_part
        return _Phase(self.epoch, self.update, number, self.planned, self.old_share)

    # How many old rows come.

    def _finish_pass(self) -> None:
        update = self.update
        if update is None or not self.undisturbed:
            return
        old = self._rows(0, update.first_group)
        wanted = update.rows * update.replay / update.passes
        if self.part == update.first_part + update.passes:
            wanted *= _HELD_OUT
        trained = len(self.drawn) * self.old_share
        blocks = [self.row_starts[g + 1] - self.row_starts[g] for g in range(update.first_group) if g not in self.gone]
        if wanted >= len(old):
            if len(self.drawn) != len(old) or self.old_share < 1.0:
                raise OrderBroken(f"{len(self.drawn)} of {len(old)} old rows come in a pass that needs {wanted}")
        elif not wanted and self.drawn:
            raise OrderBroken("old rows come in an update without replay")
        else:
            self.replayed.wanted += wanted
            self.replayed.planned += len(self.drawn)
            self.replayed.to_be_trained_on += trained
            if trained > 2 * wanted + max(blocks):
                raise OrderBroken(f"{trained} old rows come in a pass that needs {wanted}")

    def _check_account(self, said: Any) -> None:
        """What the product says about its present pass."""
        update = self.update
        if (said is None) != (update is None):
            raise OrderBroken(f"in part {self.part} of epoch {self.epoch} the product speaks of the update {said}")
        if update is None:
            return
        self.old_share = said.old_share
        expected = {
            "epoch": self.epoch,
            "first_part": update.first_part,
            "number": self.part - update.first_part,
            "passes": update.passes,
            "holds_out": update.holds_out,
            "first_new_row": self.row_starts[update.first_group],
        }
        if self.undisturbed:
            expected["rows"] = update.rows
        different = {name: getattr(said, name) for name, value in expected.items() if getattr(said, name) != value}
        if different or not 0.0 < said.old_share <= 1.0:
            raise OrderBroken(f"{said} instead of {expected}")

    # Rows.

    def _rows(self, first: int, stop: int) -> set[int]:
        """Of the groups [first, stop) that have not left."""
        return self._rows_of(group for group in range(first, stop) if group not in self.gone)

    def _rows_of(self, groups: Any) -> set[int]:
        starts = self.row_starts
        return {row for group in groups for row in range(starts[group], starts[group + 1])}


def visits_in(state: Sequence[int], epochs: int) -> Counter[tuple[int, int]]:
    """(row, epoch), by the state of a learner that counts visits, in which a row has so many places."""
    return Counter({divmod(place, epochs): count for place, count in enumerate(state) if count})
