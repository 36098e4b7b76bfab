"""Windows that a thread fills ahead arrive in order, errors arrive in their positions, and no thread is left running."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from streampgs.base.errors import DataError
from streampgs.order.cursor import Arrival, Cursor
from streampgs.reading.prefetch import Pipeline
from streampgs.reading.window import Window, WindowMemory

from .plain_reader import WRITERS, PlainRow, Reader, Setup, rows_in, sparse_table


@dataclass
class Stop:
    reason: str | None = None


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "data").mkdir()
    WRITERS["arrow"](sparse_table(200, seed=1), tmp_path / "data/a.arrow", 50)
    WRITERS["parquet"](sparse_table(200, seed=2), tmp_path / "data/b.parquet", 50)
    return Setup(tmp_path / "data", tmp_path / "cache")


@pytest.fixture(autouse=True)
def _no_thread_is_left_over() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "streampgs-reader"] == []


def cursor_of(reader: Reader, epoch: int = 0) -> Cursor:
    return Cursor((Arrival(0, 0, len(reader.catalog.shards), reader.catalog.groups),), epoch)


def drained(pipeline: Pipeline) -> Iterator[list[PlainRow]]:
    while (window := pipeline.next(Stop())) is not None:
        yield rows_in(window)
        pipeline.release(window)


def test_windows_are_the_same_as_without_a_thread(setup):
    with setup.reader() as reader:
        expected = [rows_in(window) for window in reader.windows(epochs=3)]
    reader = setup.reader()
    pipeline = Pipeline(reader.filler, reader.schedule, cursor_of(reader), last_epoch=3)
    assert list(drained(pipeline)) == expected
    pipeline.close()


def test_a_pipeline_uses_only_two_windows_of_memory(setup):
    reader = setup.reader()
    pipeline = Pipeline(reader.filler, reader.schedule, cursor_of(reader), last_epoch=None)
    seen: dict[int, Window] = {}
    for _ in range(10):
        window = pipeline.next(Stop())
        seen[id(window)] = window
        pipeline.release(window)
    assert len(seen) == 2
    pipeline.close()


def test_an_error_is_raised_after_the_windows_before_it(setup, monkeypatch):
    reader = setup.reader()
    fill = reader.filler.fill

    def failing(plan: object, memory: WindowMemory, meanwhile: object) -> Window:
        if plan.start.position > 0:
            raise DataError("the second window is damaged")
        return fill(plan, memory, meanwhile)

    monkeypatch.setattr(reader.filler, "fill", failing)
    pipeline = Pipeline(reader.filler, reader.schedule, cursor_of(reader), last_epoch=1)
    assert len(pipeline.next(Stop())) > 0
    with pytest.raises(DataError, match="the second window"):
        pipeline.next(Stop())
    pipeline.close()


@pytest.mark.timeout(30)
def test_a_stop_does_not_wait_for_a_window(setup, monkeypatch):
    """A call that waits for a window ends at a stop even if the window never arrives."""
    reader = setup.reader()
    let_go = threading.Event()
    monkeypatch.setattr(reader.filler, "fill", lambda *_: let_go.wait())
    pipeline = Pipeline(reader.filler, reader.schedule, cursor_of(reader), last_epoch=1)
    stop = Stop()
    threading.Timer(0.05, lambda: setattr(stop, "reason", "signal")).start()
    assert pipeline.next(stop) is None
    assert pipeline.seconds_waiting > 0
    let_go.set()
    pipeline.close()
