"""The machine of a simulated process: its disk, its clock and its memory take the place of the real ones."""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

from streampgs.data.shards import ShardSource
from streampgs.run import loop, memory, start
from tests.faults.simulator import learner, shards
from tests.faults.simulator.disk import FIRST_DESCRIPTOR, Disk
from tests.faults.simulator.source import SimulatedSource

ROOT = "/simulated"
_STRETCH_ROWS = 5
_BY_PATH = (
    "open", "replace", "rename", "link", "unlink", "remove", "mkdir", "stat", "lstat", "listdir", "scandir", "access",
    "statvfs",
)  # fmt: skip
_BY_DESCRIPTOR = (
    "close", "fsync", "write", "pwrite", "pread", "preadv", "read", "lseek", "ftruncate", "fstat", "posix_fadvise",
)  # fmt: skip


class Clock:
    """Each look at the clock moves it a little. Sometimes it jumps: the machine slept, or was set to another time."""

    def __init__(self, random: Random, disk: Disk) -> None:
        self._random, self._disk = random, disk
        self._seconds = 0.0
        self.asleep: Callable[[], None] = lambda: None
        """Called when the process sleeps."""

    def perf_counter(self) -> float:
        self._seconds += 0.01 if self._random.random() < 0.9 else self._random.choice((1.0, 40.0, 1e6))
        return self._seconds

    monotonic = perf_counter

    def time_ns(self) -> int:
        jump = self._random.choice((0, 0, 0, 5 * 10**9, -3600 * 10**9))
        return self._disk.clock_ns + jump

    def time(self) -> float:
        return self.time_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds
        self._disk.clock_ns += int(seconds * 1e9)
        self.asleep()


class Machine:
    def __init__(self) -> None:
        self.disk = Disk()
        self.clock = Clock(Random(0), self.disk)

    def renew(self, seed: int) -> None:
        self.disk = Disk()
        self.disk.mkdir(ROOT)
        self.disk.root.sync()
        self.clock = Clock(Random(seed), self.disk)


class _OneByOne:
    """In place of a pool of threads."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> _OneByOne:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        return [function(*each) for each in zip(*arguments, strict=False)]


class _Time:
    """In place of the module `time`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine.clock, name)


@contextmanager
def simulated() -> Iterator[Machine]:
    """Within, paths below ROOT are on the disk of the machine, whose clock and memory streampgs sees."""
    machine, undo = Machine(), []

    def put(owner: Any, name: str, new: Any) -> None:
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    try:
        for name in _BY_PATH:
            put(os, name, _by_path(machine, name, getattr(os, name)))
        for name in _BY_DESCRIPTOR:
            put(os, name, _by_descriptor(machine, name, getattr(os, name)))
        put(fcntl, "flock", _by_descriptor(machine, "flock", fcntl.flock))
        put(io, "open", _opening(machine, io.open))
        put(builtins, "open", io.open)
        learner.register()
        shards.register()
        put(loop, "_STRETCH_ROWS", _STRETCH_ROWS)
        others = {
            id(time): _Time(machine),
            id(ThreadPoolExecutor): _OneByOne,
            id(memory.available_bytes): lambda: 1 << 40,
            id(memory.bounds): lambda *_: [],
            id(memory.tightest): lambda *_: None,
            id(memory.rss_bytes): lambda: 50_000_000,
            id(memory.peak_rss_bytes): lambda: 60_000_000,
            id(ShardSource): SimulatedSource,
        }
        for module in [module for name, module in sys.modules.items() if name.startswith("streampgs")]:
            for name, value in list(vars(module).items()):
                if id(value) in others and not (module.__name__ == ShardSource.__module__ and name == "ShardSource"):
                    put(module, name, others[id(value)])
        yield machine
    finally:
        for owner, name, before in reversed(undo):
            setattr(owner, name, before)
        learner.SOLVERS.pop("visits", None)
        shards.FORMATS.pop("toy", None)


def _by_path(machine: Machine, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        path = arguments[0] if arguments else "."
        if type(path) is int:
            if path >= FIRST_DESCRIPTOR and name == "stat":
                return machine.disk.fstat(path)
        elif str(path).startswith(ROOT):
            return getattr(machine.disk, name)(*arguments, **more)
        return real(*arguments, **more)

    return call


def _by_descriptor(machine: Machine, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(descriptor: Any, *arguments: Any) -> Any:
        if type(descriptor) is int and descriptor >= FIRST_DESCRIPTOR:
            return getattr(machine.disk, name)(descriptor, *arguments)
        return None if name == "fsync" else real(descriptor, *arguments)

    return call


def _opening(machine: Machine, real: Callable[..., Any]) -> Callable[..., Any]:
    flags = {"r": os.O_RDONLY, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
             "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND}  # fmt: skip

    def call(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **more: Any) -> Any:
        if type(file) is int:
            if file >= FIRST_DESCRIPTOR:
                return machine.disk.file(file, mode, buffering)
        elif str(file).startswith(ROOT):
            return machine.disk.file(machine.disk.open(file, flags[mode[0]]), mode, buffering)
        return real(file, mode, buffering, *arguments, **more)

    return call


_ = start  # all modules of a run are loaded before their clocks are replaced
