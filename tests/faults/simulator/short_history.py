"""A short history of the parts that decide where training continues: the order of rows, the state of a learner, the saver and
the checkpoints, on the simulated disk. A thousand of them take a few seconds; whole_history.py has whole sessions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from streampgs.base.files import remove_leftovers
from streampgs.base.stage import Bundle
from streampgs.engine.worker import Worker, cursor_in
from streampgs.kernels.randomness import shuffled
from streampgs.learn import state as states
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.order.arrivals import UpdateSizes
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import GroupSizes, Schedule, Sizes, WindowPlan
from streampgs.reading.window import Window
from streampgs.run.checkpoint import Kept
from streampgs.run.folder import RunFolder
from streampgs.run.lock import UNFINISHED
from streampgs.run.report import Observer
from streampgs.run.saver import Saver
from tests.faults.simulator.disk import Killed
from tests.faults.simulator.laws import LawBroken
from tests.faults.simulator.machine import ROOT, Machine
from tests.faults.simulator.plain_order import Coming, OrderBroken, PlainOrder, visits_in
from tests.faults.simulator.tally import Tally

RUN = Path(ROOT, "runs", "run")
_EPOCHS, _PRIME = 6, (1 << 31) - 1
_MOST_GROUPS, _MOST_GROUP_ROWS = 7, 8
_MOST_PLACES = _MOST_GROUPS * _MOST_GROUP_ROWS * _EPOCHS


@dataclass(frozen=True)
class _Event:
    """Before any further row was trained on, a look found groups that come or go; or the model became wider."""

    rows: int
    coming: Coming | None = None
    features: int = 0


@contextmanager
def unobserved(machine: Machine) -> Iterator[Callable[[ShortHistory], None]]:
    """Short histories call no command: nobody observes them."""
    yield lambda history: None


class _Source:
    """Windows of row numbers. Their plans are pure functions of the cursor, so they are computed once a history."""

    ends, epoch_rows, seconds_waiting = "epochs", 0, 0.0

    def __init__(self, history: ShortHistory, known: int) -> None:
        self._history, self._known = history, known

    def window(self, cursor: Cursor, stop: Any) -> Window:
        plan, numbers = self._history.planned(cursor.at_row(0), self._known)
        places = np.arange(len(numbers))
        return Window(places, places + 1, number_rows=lambda: numbers, span=plan)

    def release(self, window: Window) -> None:
        pass

    def state(self) -> Bundle:
        return Bundle({"known": self._known})

    def restore(self, bundle: Bundle) -> None:
        pass


class _Training:
    """What a process holds in memory."""

    def __init__(self, history: ShortHistory, cursor: Cursor, known: int, features: int) -> None:
        self.history, self.known, self.features = history, known, features
        self.worker = Worker(_Source(history, known), cursor)  # type: ignore[arg-type]
        self.rows = 0
        self.order = PlainOrder(history.row_starts, history.first_known)
        self.fields = {
            "visits": Field((_MOST_PLACES, LANE), Merge.SUM, dtype=np.uint8, low=0),
            "trail": counter(Merge.REFUSED),
            "weights": Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL),
        }
        self.state: State = states.fresh(self.fields, self.sizes)
        self.events: tuple[_Event, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        return {COORDINATE: self.features + 1, LANE: 1}

    def sections(self) -> dict[str, Bundle]:
        arrays = states.arrays_to_save(self.fields, self.state, 1)
        own = {"rows": self.rows, "features": self.features}
        return {"learner": Bundle(own, arrays), "worker": self.worker.state()}

    @staticmethod
    def restored(history: ShortHistory, sections: dict[str, Bundle], cursor: Cursor, known: int) -> _Training:
        own, section = sections["learner"], sections["worker"]
        training = _Training(history, cursor, known, own.values["features"])
        training.state = states.from_saved(training.fields, own.arrays, training.sizes)
        training.rows = own.values["rows"]
        training.worker.restore(section)
        return training

    def train(self, rows: int) -> None:
        """At most so many rows, of one window."""
        worker = self.worker
        window = worker.open(None)  # type: ignore[arg-type]
        assert window is not None
        assert window.span is not None
        first = worker.cursor.row
        stop = min(len(window), first + rows)
        numbers, epoch = window.numbers[first:stop].tolist(), window.span.start.epoch
        trail, width = int(self.state["trail"]), self.features + 1
        visits, weights = self.state["visits"], self.state["weights"]
        for number in numbers:
            trail = (trail * 31 + number * _EPOCHS + epoch + 1) % _PRIME
            visits[number * _EPOCHS + epoch] += 1
            weights[number % width] += trail
        self.state["trail"][...] = trail
        self._follow(window.span.start, numbers)
        self.rows += stop - first
        worker.advance_to(stop)
        worker.release()

    def _follow(self, start: Cursor, numbers: list[int]) -> None:
        try:
            self.order.visit(start, numbers, self.history.schedule(self.known).update_pass(start))
        except OrderBroken as error:
            raise LawBroken(f"the order of rows: {error}") from error

    def place(self, event: _Event) -> None:
        self.events = (*self.events, event)
        if event.coming is not None:
            self._grow(event.coming)
        else:
            self.features = event.features
            self.state = states.grow(self.fields, self.state, self.sizes)

    def _grow(self, coming: Coming) -> None:
        history, groups = self.history, coming.groups
        spans = tuple((group, group + 1) for group in sorted(coming.going))
        sizes = UpdateSizes(coming.passes, coming.replay)
        cursor = history.schedule(groups).arrive(self.worker.cursor, groups, groups, sizes, spans)
        self.known = groups
        self.worker = Worker(_Source(history, groups), cursor)  # type: ignore[arg-type]
        self.order.comes(coming, history.row_starts)


class ShortHistory:
    def __init__(self, machine: Machine, seed: int, say: Callable[[str], None] | None = None) -> None:
        self.machine, self.random, self.say = machine, Random(seed), say or (lambda line: None)
        self.tally = Tally(1)
        machine.renew(seed)
        self.disk, random = machine.disk, self.random
        self.count = random.randint(1, _MOST_GROUPS)
        self.groups = self._made_up(0)
        self.row_starts = [0]
        self._number_rows()
        self.sizes = Sizes(random.choice((40, 150, 1000)), random.choice((1, 30, 100)))
        self.first_known = random.randint(1, min(self.count, 4))
        self.passes, self.replay = random.choice((1, 2, 3)), random.choice((0.0, 1.0, 3.0, 3.0, 100.0))
        self.seed = seed
        self._plans: dict[tuple[Cursor, int], tuple[WindowPlan, np.ndarray]] = {}
        self._schedules: dict[int, Schedule] = {}
        self._saved: list[tuple[tuple[_Event, ...], PlainOrder]] = []
        """By the number of a checkpoint, from 1: what had come before it, and what it owes to every row."""
        self._reported = 0

    def _made_up(self, first: int) -> GroupSizes:
        """All groups of the table. Those before `first` are the ones that there were."""
        random, count = self.random, self.count
        rows = [random.randint(0 if group else 1, _MOST_GROUP_ROWS) for group in range(count)]
        row_bytes = [random.choice((1.0, 10.0, 30.0)) for _ in rows]
        decoded, cached = ([random.random() < chance for _ in rows] for chance in (0.3, 0.5))
        if first:
            before = self.groups
            rows[:first], row_bytes[:first] = before.rows[:first].tolist(), before.row_bytes[:first].tolist()
            decoded[:first], cached[:first] = before.decoded[:first].tolist(), before.cached[:first].tolist()
        return GroupSizes(np.array(rows, np.int64), np.array(row_bytes), np.array(decoded), np.array(cached))

    def _number_rows(self) -> None:
        self.row_starts = np.concatenate([[0], np.cumsum(self.groups.rows)]).tolist()

    def _replace_groups(self, first: int) -> None:
        """Shards that have not begun are other ones now."""
        self.groups = self._made_up(first)
        self._number_rows()
        self._plans = {key: value for key, value in self._plans.items() if key[1] <= first}
        self._schedules = {known: schedule for known, schedule in self._schedules.items() if known <= first}

    # Pure functions of the seed.

    def schedule(self, known: int) -> Schedule:
        if known not in self._schedules:
            g = self.groups
            arrived = GroupSizes(g.rows[:known], g.row_bytes[:known], g.decoded[:known], g.cached[:known])
            self._schedules[known] = Schedule(self.seed, arrived, self.sizes)
        return self._schedules[known]

    def planned(self, cursor: Cursor, known: int) -> tuple[WindowPlan, np.ndarray]:
        key = cursor, known
        if key not in self._plans:
            plan = self.schedule(known).window(cursor)
            pieces = plan.pieces
            firsts = [self.row_starts[group] for group in pieces.group.tolist()]
            as_read = [
                first + row
                for first, start, stop in zip(firsts, pieces.start.tolist(), pieces.stop.tolist(), strict=True)
                for row in range(start, stop)
            ]
            numbers = np.empty(len(as_read), np.int64)
            numbers[shuffled(np.uint64(plan.shuffle_key), len(as_read))] = as_read
            self._plans[key] = plan, numbers
        return self._plans[key]

    # The history.

    def run(self) -> None:
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self._session(self.random.randint(1, 25), self.random.random() < 0.6)
        training = self._session(0, False)
        assert training is not None
        self._compare(training)
        self.tally.counts["same bits"] += 1
        self.tally.counts["operations of the disk"] += self.disk.operations

    def _session(self, kill_at: int, loses_power: bool) -> _Training | None:
        """None: it was killed."""
        first = self.disk.operations
        self.tally.counts["sessions"] += 1

        def before(number: int, what: str) -> None:
            if number - first == kill_at:
                raise Killed

        self.disk.before, self.disk.torn_write = before, self.random.randrange
        try:
            return self._process()
        except Killed:
            self.say("power failure" if loses_power else "killed")
            self.tally.counts["power failures" if loses_power else "kills"] += 1
            if loses_power:
                self.disk.fail_power(self.random)
            return None
        finally:
            self.disk.kill()

    def _process(self) -> _Training:
        random, folder = self.random, RunFolder(RUN)
        folder.make()
        remove_leftovers(RUN, UNFINISHED)
        folder.sync()
        training = self._loaded(folder)
        saver = Saver(folder, Observer())
        until = min(_EPOCHS - 1, training.worker.cursor.epoch + random.choice((0, 1, 1)))
        if random.random() < 0.7:
            self._change(training)
        until = max(until, 1, training.worker.cursor.epoch)
        self._save(saver, training)
        stretch = random.choice((3, 10, 100))
        cadence = random.choice((0.0, 0.1, 0.4))
        while training.worker.cursor.epoch < until:
            training.train(stretch)
            if random.random() < 0.2:
                self._change(training)
            if random.random() < cadence:
                self._save(saver, training)
        self._save(saver, training)
        return training

    def _loaded(self, folder: RunFolder) -> _Training:
        found = folder.newest_checkpoint()
        number = 0 if found is None else found.sections["simulator"].values["number"]
        if number < self._reported:
            raise LawBroken(f"checkpoint {self._reported} was written, and {number} is used")
        if found is not None and found.damaged:
            raise LawBroken(f"a crash has damaged {found.damaged}")
        self._reported = number
        if found is None:
            cursor = Cursor((Arrival(0, 0, self.first_known, self.first_known),))
            training = _Training(self, cursor, self.first_known, 1)
        else:
            training = self._continued(number, found.sections)
        self.say(f"loaded checkpoint {number} after {training.rows} rows")
        if self.random.random() < 0.5:
            self._replace_groups(training.known)
            training.order.row_starts = self.row_starts
            self.say(f"rows of the groups: {self.groups.rows.tolist()}")
        return training

    def _continued(self, number: int, sections: dict[str, Bundle]) -> _Training:
        """Of what had come before the checkpoint, only what has begun."""
        events, order = self._saved[number - 1]
        order = order.copy()
        order.resume()
        saved = cursor_in(sections["worker"])
        cursor = self.schedule(saved.arrivals[-1].groups).without_waiting(saved)
        known = cursor.arrivals[-1].groups
        if self.row_starts[known] != self.row_starts[order.known]:
            raise LawBroken(f"{known} groups have begun, and not {order.known}")
        order.known = known  # groups without rows make no difference
        training = _Training.restored(self, sections, cursor, known)
        training.events, training.order = _begun(events, order), order
        self.tally.counts["arrivals that had not begun"] += events != training.events
        return training

    def _save(self, saver: Saver, training: _Training) -> None:
        def sections() -> dict[str, Bundle]:
            self._saved.append((training.events, training.order.copy()))
            return {**training.sections(), "simulator": Bundle({"number": len(self._saved)})}

        before = len(self._saved)
        saver.save((training.rows, training.worker.cursor), training.rows, sections, Kept())
        if len(self._saved) > before:
            self._reported = len(self._saved)
            self.tally.counts["checkpoints"] += 1
            self.say(f"wrote checkpoint {self._reported} after {training.rows} rows")

    def _change(self, training: _Training) -> None:
        random = self.random
        if random.random() < 0.2:
            event = _Event(training.rows, None, training.features + random.randint(1, 2))
        else:
            known = min(self.count, training.known + random.randint(0, 2))
            going = frozenset[int]()
            if random.random() < 0.2 and not training.order.waiting:
                known, going = training.known, self._some_group(training)
            if known == training.known and not going:
                return
            event = _Event(training.rows, Coming(known, going, self.passes, self.replay))
            self.tally.counts["arrivals"] += 1
        training.place(event)
        self.say(f"placed {event}")

    def _some_group(self, training: _Training) -> frozenset[int]:
        """One with rows that may leave, because there is another one."""
        gone = training.order.all_gone
        live = [group for group in range(training.known) if group not in gone and self.groups.rows[group]]
        return frozenset({self.random.choice(live)}) if len(live) > 1 else frozenset()

    # The law.

    def _compare(self, training: _Training) -> None:
        cursor = Cursor((Arrival(0, 0, self.first_known, self.first_known),))
        twin = _Training(self, cursor, self.first_known, 1)
        try:
            for event in training.events:
                while twin.rows < event.rows:
                    twin.train(event.rows - twin.rows)
                twin.place(event)
            while twin.rows < training.rows:
                twin.train(training.rows - twin.rows)
            twin.order.end(twin.worker.cursor)
            found = RunFolder(RUN).newest_checkpoint()
            assert found is not None
            visits = visits_in(found.sections["learner"].arrays["visits"][:, 0].tolist(), _EPOCHS)
            if visits != twin.order.visits():
                raise LawBroken(f"the state has the visits {visits - twin.order.visits()} too many")
        except OrderBroken as error:
            raise LawBroken(f"the order of rows: {error}") from error
        self._count_passes(twin.order)
        for name, expected in twin.sections().items():
            section = found.sections[name]
            same = section.values == json.loads(json.dumps(expected.values))
            arrays = all(
                section.arrays[key].tobytes() == np.ascontiguousarray(array).tobytes()
                for key, array in expected.arrays.items()
            )
            if not same or not arrays:
                raise LawBroken(f"other bits than without disturbances in {name}: {section} instead of {expected}")

    def _count_passes(self, order: PlainOrder) -> None:
        counts, replayed = self.tally.counts, order.replayed
        counts["updates"] += order.updates
        counts["old rows wanted in passes"] += round(replayed.wanted)
        counts["old rows trained on in passes"] += round(replayed.to_be_trained_on)


def _begun(events: tuple[_Event, ...], order: PlainOrder) -> tuple[_Event, ...]:
    kept = []
    for event in events:
        coming = None if event.coming is None else order.remains_of(event.coming)
        if event.coming is None or coming is not None:
            kept.append(replace(event, coming=coming))
    return tuple(kept)
