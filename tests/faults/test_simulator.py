"""The short form of scripts/checks/simulator.py, the disk of the simulator, and that it notices a broken promise."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from streampgs.base import files
from streampgs.engine.worker import Worker
from streampgs.learn import state as states
from streampgs.order import schedule as schedules
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Schedule, UpdatePass
from streampgs.run import checkpoint, lineages
from streampgs.run.folder import RunFolder
from tests.faults.simulator.disk import Disk, Killed
from tests.faults.simulator.nodes import File, Folder
from tests.faults.simulator.runner import simulate

SEED = 20_000_000
SHORT, WHOLE = 2_500, 150


@pytest.mark.slow
def test_the_last_checkpoint_is_used_and_no_row_is_lost() -> None:
    tally = simulate("short", range(SEED, SEED + SHORT))
    assert tally.failures == []
    assert tally.counts["same bits"] == SHORT
    for what in ("power failures", "kills", "arrivals", "updates"):
        assert tally.counts[what] > SHORT // 10, what
    wanted, trained = (tally.counts[f"old rows {what} in passes"] for what in ("wanted", "trained on"))
    assert abs(trained / wanted - 1) < 0.05


@pytest.mark.slow
def test_runs_end_with_the_bits_of_undisturbed_ones_or_are_refused() -> None:
    tally = simulate("whole", range(SEED, SEED + WHOLE))
    assert tally.failures == []
    refused = sum(count for reason, count in tally.refusals.items() if reason.startswith("for good"))
    assert tally.counts["same bits"] + refused == WHOLE
    assert refused < WHOLE // 10
    for what in (
        "power failures",
        "kills",
        "faults",
        "arrivals",
        "updates",
        "table: remove",
        "table: replace",
        "table: rename",
    ):
        assert tally.counts[what] > 0, what


# Each of these is a mistake that a change of the product could make. The simulator notices it.

Patch = pytest.MonkeyPatch


def files_are_not_synced(patch: Patch) -> None:
    sync = Disk.fsync
    patch.setattr(Disk, "fsync", lambda disk, fd: sync(disk, fd) if isinstance(disk.node_of(fd), Folder) else None)


def folders_are_not_synced(patch: Patch) -> None:
    sync = Disk.fsync
    patch.setattr(Disk, "fsync", lambda disk, fd: sync(disk, fd) if isinstance(disk.node_of(fd), File) else None)


def files_are_synced_after_they_get_their_name(patch: Patch) -> None:
    sync, rename, late = Disk.fsync, Disk.replace, []

    def sync_later(disk: Disk, fd: int) -> None:
        node = disk.node_of(fd)
        late.append(node) if isinstance(node, File) else sync(disk, fd)

    def then_sync(disk: Disk, source: Any, target: Any) -> None:
        rename(disk, source, target)
        disk.operation("fsync")
        while late:
            late.pop().sync()

    patch.setattr(Disk, "fsync", sync_later)
    patch.setattr(Disk, "replace", then_sync)


def the_folder_of_the_run_is_not_synced(patch: Patch) -> None:
    patch.setattr(files, "_sync_if_possible", lambda folder: None)


def the_oldest_checkpoint_is_used(patch: Patch) -> None:
    found = checkpoint.checkpoints_in
    patch.setattr(checkpoint, "checkpoints_in", lambda folder: found(folder)[::-1])


def a_window_ends_one_row_early(patch: Patch) -> None:
    advance = Worker.advance_to

    def early(worker: Worker, row: int) -> None:
        assert worker.window is not None
        advance(worker, len(worker.window) if row == len(worker.window) - 1 else row)

    patch.setattr(Worker, "advance_to", early)


def updates_have_one_more_pass(patch: Patch) -> None:
    arrive = Schedule.arrive

    def often(schedule: Schedule, cursor: Cursor, *arguments: Any) -> Cursor:
        found = arrive(schedule, cursor, *arguments)
        last = found.arrivals[-1]
        return replace(found, arrivals=(*found.arrivals[:-1], replace(last, passes=last.passes + (last.passes > 0))))

    patch.setattr(Schedule, "arrive", often)


def groups_that_left_are_visited_until_the_end_of_the_epoch(patch: Patch) -> None:
    patch.setattr(schedules, "retired_within", lambda cursor: [])


def new_groups_join_before_they_begin(patch: Patch) -> None:
    patch.setattr(Schedule, "without_waiting", lambda schedule, cursor: cursor)


def an_arrival_is_forgotten_in_the_middle_of_a_window(patch: Patch) -> None:
    arrive = Schedule.arrive
    patch.setattr(Schedule, "arrive", lambda s, cursor, *a: cursor if cursor.row else arrive(s, cursor, *a))


def grown_state_is_not_kept(patch: Patch) -> None:
    patch.setattr(states, "grow", lambda fields, state, sizes: states.fresh(fields, sizes))


def the_catalog_is_not_written_before_a_checkpoint_needs_it(patch: Patch) -> None:
    create = RunFolder.create
    write = RunFolder.write_catalog

    def created(folder: RunFolder, *arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as only_here:
            only_here.setattr(RunFolder, "write_catalog", write)
            create(folder, *arguments)

    patch.setattr(RunFolder, "create", created)
    patch.setattr(RunFolder, "write_catalog", lambda folder, catalog: None)


def each_pass_holds_out_other_rows(patch: Patch) -> None:
    draw = lineages._drawn

    def other(seed: int, purpose: str, update: UpdatePass, *arguments: Any) -> Any:
        return draw(seed, f"{purpose} in pass {update.number}", update, *arguments)

    patch.setattr(lineages, "_drawn", other)


def the_recent_lineage_trains_on_old_rows(patch: Patch) -> None:
    choose = lineages.rows_of_pass

    def all_rows(*arguments: Any) -> Any:
        long, new = choose(*arguments)
        return long, long | new

    patch.setattr(lineages, "rows_of_pass", all_rows)


BREAKS: list[tuple[str, int, Callable[[Patch], None]]] = [
    ("short", 100, files_are_not_synced),
    ("short", 100, folders_are_not_synced),
    ("short", 100, files_are_synced_after_they_get_their_name),
    ("short", 100, the_folder_of_the_run_is_not_synced),
    ("short", 100, the_oldest_checkpoint_is_used),
    ("short", 100, a_window_ends_one_row_early),
    ("short", 100, updates_have_one_more_pass),
    ("short", 200, groups_that_left_are_visited_until_the_end_of_the_epoch),
    ("short", 200, new_groups_join_before_they_begin),
    ("short", 100, an_arrival_is_forgotten_in_the_middle_of_a_window),
    ("short", 100, grown_state_is_not_kept),
    ("whole", 100, each_pass_holds_out_other_rows),
    ("whole", 100, the_recent_lineage_trains_on_old_rows),
    ("whole", 60, the_catalog_is_not_written_before_a_checkpoint_needs_it),
]


@pytest.mark.parametrize(("kind", "histories", "broken"), BREAKS, ids=[broken.__name__ for *_, broken in BREAKS])
def test_a_broken_promise_is_noticed(
    kind: str, histories: int, broken: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    for first in range(SEED, SEED + histories, 10):
        tally = simulate(kind, range(first, first + 10))
        if tally.failures:
            break
    (_, seed, what), *_ = tally.failures
    replayed = simulate(kind, [seed])
    assert [(seed, what) for _, seed, what in replayed.failures] == [(seed, what)], "the replay fails in the same way"


# The disk.


def new_file(disk: Disk, content: bytes, sync: bool) -> None:
    fd = disk.open("/file", os.O_CREAT | os.O_RDWR)
    disk.write(fd, content)
    if sync:
        disk.fsync(fd)
    disk.close(fd)


def sync_root(disk: Disk) -> None:
    disk.root.sync()


def left_after_power_failures(of: Callable[[Disk], None]) -> set[bytes | None]:
    """What a hundred power failures leave of the file."""
    found = set()
    for seed in range(100):
        disk = Disk()
        of(disk)
        disk.fail_power(Random(seed))
        node = disk.root.names.get("file")
        assert node is None or isinstance(node, File)
        found.add(None if node is None else bytes(node.data))
    return found


def test_what_is_synced_survives_and_the_rest_may_be_lost_or_torn() -> None:
    content = bytes(600)

    def synced(disk: Disk) -> None:
        new_file(disk, content, sync=True)
        sync_root(disk)

    def without_name(disk: Disk) -> None:
        new_file(disk, content, sync=True)

    def without_content(disk: Disk) -> None:
        new_file(disk, content, sync=False)
        sync_root(disk)

    def renamed(disk: Disk) -> None:
        synced(disk)
        fd = disk.open("/other", os.O_CREAT | os.O_RDWR)
        disk.write(fd, b"new")
        disk.fsync(fd)
        disk.replace("/other", "/file")

    assert left_after_power_failures(synced) == {content}
    assert left_after_power_failures(without_name) == {content, None}
    assert left_after_power_failures(without_content) == {content, bytes(512), b""}
    assert left_after_power_failures(renamed) == {content, b"new"}


def test_a_killed_process_does_nothing_more_and_loses_nothing() -> None:
    disk = Disk()

    def kill(number: int, what: str) -> None:
        if what.startswith("rename"):
            raise Killed

    disk.before = kill
    new_file(disk, b"content", sync=False)
    with pytest.raises(Killed):
        disk.replace("/file", "/other")
    with pytest.raises(Killed):
        disk.unlink("/file")
    disk.kill()
    assert disk.listdir("/") == ["file"]
    assert disk.stat("/file").st_size == 7
