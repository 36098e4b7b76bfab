"""Streams for tests: on the standard input of this process, and from producers that are processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from streampgs.options.commands import EncodingOptions, Growth, Limits, ModelOptions, Resources, ResumeOptions
from streampgs.run import start as trainer
from streampgs.run.commands import ResumeCall, TrainCall
from streampgs.run.report import Observer, Report, StopRequest

# Windows so small that a stream of some thousand rows has many.
SMALL = Resources(memory=60_000_000, window=200_000, checkpoint_seconds=1e-6)

PRODUCER = """
import sys, time
import pyarrow as pa
table = pa.ipc.open_file(sys.argv[1]).read_all()
with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
    for number, batch in enumerate(table.slice(int(sys.argv[3])).to_batches(max_chunksize=int(sys.argv[2]))):
        writer.write_batch(batch)
        sys.stdout.buffer.flush()
        time.sleep(float(sys.argv[4]))
"""


def written(table: pa.Table, cuts: Sequence[int], ends: bool = True) -> bytes:
    """A stream in batches of so many rows, in turn; `ends`: with the mark of its end."""
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, table.schema)
    first = number = 0
    while first < table.num_rows:
        for batch in table.slice(first, cuts[number % len(cuts)]).to_batches():
            writer.write_batch(batch)
        first, number = first + cuts[number % len(cuts)], number + 1
    if ends:
        writer.close()
    return bytes(sink.getvalue())


@contextmanager
def standard_input(data: bytes, stalls: bool = False) -> Iterator[None]:
    """What this process reads from its standard input, by way of a pipe; `stalls`: which stays open and gives no more."""
    done = threading.Event()
    reading, writing = os.pipe()
    before = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)

    def write() -> None:
        with suppress(BrokenPipeError), open(writing, "wb") as pipe:
            pipe.write(data)
            pipe.flush()
            if stalls:
                done.wait()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        os.dup2(before, 0)
        os.close(before)
        thread.join()


def train(
    data: bytes,
    run: Path,
    limits: Limits | None = None,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    resources: Resources = SMALL,
    replay: float | None = None,
    encoding: EncodingOptions | None = None,
    **options: Any,
) -> Report:
    with standard_input(data):
        return trainer.train(
            ["-"],
            run,
            TrainCall(
                ModelOptions(**options),
                encoding or EncodingOptions(),
                limits or Limits(),
                resources,
                Growth(replay=replay),
            ),
            observer,
            stop,
        )


def resume(
    data: bytes,
    run: Path,
    limits: Limits | None = None,
    resources: Resources = SMALL,
    growth: Growth | None = None,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    **changes: Any,
) -> Report:
    growth, changed = growth or Growth(), ResumeOptions(**changes)
    call = ResumeCall(limits or Limits(rows=10**9), resources, growth, changed, "-")
    with standard_input(data):
        return trainer.resume(run, call, observer, stop)


@contextmanager
def piped(
    table: Path, words: Sequence[object], first: int = 0, rows: int = 50, pause: float = 0.0
) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """producer | streampgs …: both processes."""
    source = [sys.executable, "-c", PRODUCER, str(table), str(rows), str(first), str(pause)]
    producer = subprocess.Popen(source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    command = [sys.executable, "-m", "streampgs", *map(str, words)]
    trainer = subprocess.Popen(command, stdin=producer.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert producer.stdout is not None
    producer.stdout.close()
    try:
        yield producer, trainer
    finally:
        for process in (trainer, producer):
            process.kill()
            process.wait()
        for pipe in (trainer.stdout, trainer.stderr):
            assert pipe is not None
            pipe.close()


def calls_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    waiting = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come to pass")
