"""A short history of the parts that decide where training continues: the order of rows, the state of a learner, the saver and
the checkpoints, on the simulated disk. A thousand of them take a few seconds; whole_history.py has whole sessions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from scripts.simulator_parts.disk import Killed
from scripts.simulator_parts.laws import LawBroken
from scripts.simulator_parts.machine import ROOT, Machine
from scripts.simulator_parts.plain_order import PlainOrder
from scripts.simulator_parts.tally import Tally
from streampgs.engine.worker import Worker, cursor_in
from streampgs.files import remove_leftovers
from streampgs.kernels.randomness import shuffled
from streampgs.learn import state as states
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import GroupSizes, Schedule, Sizes, WindowPlan
from streampgs.reading.window import Window
from streampgs.run.folder import RunFolder
from streampgs.run.lock import UNFINISHED
from streampgs.run.report import Silent
from streampgs.run.saver import Saver
from streampgs.stage import Bundle

RUN = Path(ROOT, "runs", "run")
_EPOCHS, _PRIME = 6, (1 << 31) - 1


@dataclass(frozen=True)
class _Event:
    """Groups joined or left before any further row was trained on."""

    rows: int
    known: int
    features: int
    catching_up: bool
    last_epoch: int | None
    begins_again: bool
    going: tuple[int, ...]


@contextmanager
def unobserved(machine: Machine) -> Iterator[Callable[[ShortHistory], None]]:
    """Short histories call no command: nobody observes them."""
    yield lambda history: None


class _Source:
    """Windows of row numbers. Their plans are pure functions of the cursor, so they are computed once a history."""

    ends, epoch_rows, rows_taken, has_unsaved, seconds_waiting = "epochs", 0, None, False, 0.0

    def __init__(self, history: ShortHistory, known: int) -> None:
        self._history, self._known = history, known

    def window(self, cursor: Cursor, stop: Any) -> Window:
        plan, numbers = self._history.planned(cursor.at_row(0), self._known)
        window = Window()
        window.plan, window.rows = plan, len(numbers)
        window.number_rows = lambda: numbers
        return window

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
        self.fields = {
            "visits": Field((history.total_rows * _EPOCHS, LANE), Merge.SUM, dtype=np.uint8, low=0),
            "trail": counter(Merge.REFUSED),
            "weights": Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL),
        }
        self.state: State = states.fresh(self.fields, self.sizes)
        self.events: tuple[_Event, ...] = ()
        self.visited: Callable[[WindowPlan, list[int]], None] = lambda plan, numbers: None

    @property
    def sizes(self) -> dict[str, int]:
        return {COORDINATE: self.features + 1, LANE: 1}

    def sections(self) -> dict[str, Bundle]:
        arrays = states.arrays_to_save(self.fields, self.state, 1)
        own = {"rows": self.rows, "features": self.features}
        return {"learner": Bundle(own, arrays), "worker": self.worker.state()}

    @staticmethod
    def restored(history: ShortHistory, sections: dict[str, Bundle]) -> _Training:
        own, section = sections["learner"], sections["worker"]
        training = _Training(history, cursor_in(section), section.values["known"], own.values["features"])
        training.state = states.from_saved(training.fields, own.arrays, training.sizes)
        training.rows = own.values["rows"]
        training.worker.restore(section)
        return training

    def train(self, rows: int) -> None:
        """At most so many rows, of one window."""
        worker = self.worker
        window = worker.open(None)  # type: ignore[arg-type]
        assert window is not None
        assert window.plan is not None
        first = worker.cursor.row
        stop = min(window.rows, first + rows)
        numbers, epoch = window.numbers[first:stop].tolist(), window.plan.start.epoch
        trail, width = int(self.state["trail"]), self.features + 1
        visits, weights = self.state["visits"], self.state["weights"]
        for number in numbers:
            trail = (trail * 31 + number * _EPOCHS + epoch + 1) % _PRIME
            visits[number * _EPOCHS + epoch] += 1
            weights[number % width] += trail
        self.state["trail"][...] = trail
        self.visited(window.plan, numbers)
        self.rows += stop - first
        worker.advance_to(stop)
        worker.release()

    def place(self, event: _Event) -> None:
        history, cursor = self.history, self.worker.cursor
        spans = tuple((group, group + 1) for group in event.going)
        schedule = history.schedule(event.known)
        if event.begins_again:
            cursor = schedule.begin_again(cursor, event.known, event.known, spans)
        else:
            cursor = schedule.arrive(cursor, event.known, event.known, event.last_epoch, event.catching_up, spans)
        self.known = event.known
        self.worker = Worker(_Source(history, event.known), cursor)  # type: ignore[arg-type]
        if event.features > self.features:
            self.features = event.features
            self.state = states.grow(self.fields, self.state, self.sizes)
        self.events = (*self.events, event)


class ShortHistory:
    def __init__(self, machine: Machine, seed: int, say: Callable[[str], None] | None = None) -> None:
        self.machine, self.random, self.say = machine, Random(seed), say or (lambda line: None)
        self.tally = Tally(1)
        machine.renew(seed)
        self.disk, random = machine.disk, self.random
        count = random.randint(1, 5)
        rows = [random.randint(1, 8), *(random.randint(0, 8) for _ in range(count - 1))]
        self.groups = GroupSizes(
            np.array(rows, np.int64),
            np.array([random.choice((1.0, 10.0, 30.0)) for _ in rows]),
            np.array([random.random() < 0.3 for _ in rows]),
            np.array([random.random() < 0.5 for _ in rows]),
        )
        self.row_starts = np.concatenate([[0], np.cumsum(rows)]).tolist()
        self.total_rows = self.row_starts[-1]
        self.sizes = Sizes(random.choice((40, 150, 1000)), random.choice((1, 30, 100)))
        self.first_known = random.randint(1, count)
        self.seed = seed
        self._plans: dict[tuple[Cursor, int], tuple[WindowPlan, np.ndarray]] = {}
        self._schedules: dict[int, Schedule] = {}
        self._begun: list[tuple[_Event, ...]] = [()]
        """By the number of a checkpoint: the arrivals before it."""
        self._reported = 0
        self._gone: tuple[int, ...] = ()

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
        for _ in range(self.random.choice((1, 1, 1, 2))):
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
        saver = Saver(folder, Silent())
        until = min(_EPOCHS - 1, training.worker.cursor.epoch + random.choice((0, 1, 1)))
        if random.random() < 0.5:
            self._change(training, until)
        until = max(until, 1, training.worker.cursor.epoch)
        self._save(saver, training)
        stretch = random.choice((3, 10, 100))
        cadence = random.choice((0.0, 0.1, 0.4))
        while training.worker.cursor.epoch < until:
            training.train(stretch)
            if random.random() < 0.15:
                self._change(training, until)
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
        if found is None:
            cursor = Cursor((Arrival(0, 0, self.first_known, self.first_known),))
            training = _Training(self, cursor, self.first_known, 1)
        else:
            training = _Training.restored(self, found.sections)
        self.say(f"loaded checkpoint {number} after {training.rows} rows")
        training.events, self._reported = self._begun[number], number
        return training

    def _save(self, saver: Saver, training: _Training) -> None:
        def sections() -> dict[str, Bundle]:
            self._begun.append(training.events)
            return {**training.sections(), "simulator": Bundle({"number": len(self._begun) - 1})}

        before = len(self._begun)
        saver.save((training.rows, training.worker.cursor), False, training.rows, sections)
        if len(self._begun) > before:
            self._reported = before
            self.tally.counts["checkpoints"] += 1
            self.say(f"wrote checkpoint {before} after {training.rows} rows")

    def _change(self, training: _Training, until: int) -> None:
        random, cursor = self.random, training.worker.cursor
        gone = {group for event in training.events for group in event.going}
        known = min(len(self.groups), training.known + random.randint(0, 2))
        live = [group for group in range(training.known) if group not in gone and self.groups.rows[group]]
        going: tuple[int, ...] = ()
        begins_again = False
        if len(live) > 1 and random.random() < 0.2:
            going, begins_again = (random.choice(live),), not cursor.begins_epoch or random.random() < 0.5
        if known == training.known and not going:
            return
        event = _Event(
            training.rows, known, training.features + random.randint(0, 2), random.random() < 0.5,
            random.choice((None, until)), begins_again, going,
        )  # fmt: skip
        training.place(event)
        self.say(f"placed {event}")
        self.tally.counts["arrivals"] += 1

    # The law.

    def _compare(self, training: _Training) -> None:
        cursor = Cursor((Arrival(0, 0, self.first_known, self.first_known),))
        twin = _Training(self, cursor, self.first_known, 1)
        order = PlainOrder(cursor, self.row_starts)
        twin.visited = lambda plan, numbers: order.visit(plan.start.epoch, plan.start.part, numbers)
        try:
            for event in training.events:
                while twin.rows < event.rows:
                    twin.train(event.rows - twin.rows)
                before = twin.worker.cursor
                twin.place(event)
                order.placed(before, twin.worker.cursor, self.row_starts, event.known, event.begins_again)
            while twin.rows < training.rows:
                twin.train(training.rows - twin.rows)
            order.end(twin.worker.cursor)
            found = RunFolder(RUN).newest_checkpoint()
            assert found is not None
            order.check_state(found.sections["learner"].arrays["visits"][:, 0].tolist(), _EPOCHS)
        except AssertionError as error:
            raise LawBroken(f"the order of rows: {error}") from error
        for name, expected in twin.sections().items():
            section = found.sections[name]
            same = section.values == json.loads(json.dumps(expected.values))
            arrays = all(
                section.arrays[key].tobytes() == np.ascontiguousarray(array).tobytes()
                for key, array in expected.arrays.items()
            )
            if not same or not arrays:
                raise LawBroken(f"other bits than without disturbances in {name}: {section} instead of {expected}")
