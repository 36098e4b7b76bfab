"""Rows and samples read from a pipe do not depend on the batches of the writer, and a stop loses no rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from streampgs.base.errors import DataError
from streampgs.encoding.learning import read_bytes
from streampgs.reading.blocks import Stopped
from streampgs.reading.stream_input import StreamInput
from tests.end_to_end.mixed_tables import mixed
from tests.end_to_end.streaming import written

pytestmark = pytest.mark.timeout(60)  # a reader and a producer that wait for each other can hang

MOST = 10_000_000


@contextmanager
def opened(data: bytes, stopping: Callable[[], bool] = lambda: False, ends: bool = True) -> Iterator[StreamInput]:
    reading, writing = os.pipe()
    done = threading.Event()

    def write() -> None:
        with open(writing, "wb") as pipe:
            pipe.write(data)
            pipe.flush()
            if not ends:
                done.wait()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield StreamInput(reading, MOST, stopping)
    finally:
        done.set()
        while os.read(reading, 1 << 20):
            pass
        os.close(reading)
        thread.join()


def pieces(stream: StreamInput, rows: int) -> list[tuple[pa.RecordBatch, int]]:
    found = []
    while (piece := stream.next_batch(rows)) is not None:
        found.append(piece)
    return found


@pytest.mark.parametrize("dictionaries", [True, False])
@pytest.mark.parametrize("cuts", [[1], [7, 300], [10_000]])
def test_rows_are_complete_and_in_order(cuts: list[int], dictionaries: bool) -> None:
    table = mixed(1_000)
    if not dictionaries:
        table = table.set_column(3, "city", table.column("city").cast(pa.string()))
    with opened(written(table, cuts)) as stream:
        found = pieces(stream, 64)
        assert stream.given == 1_000
    first = 0
    for batch, number in found:
        assert number == first
        assert 0 < batch.num_rows <= 64
        assert batch.to_pylist() == table.slice(first, batch.num_rows).to_pylist()
        first += batch.num_rows
    assert first == 1_000


@pytest.mark.parametrize("most_bytes", [1, 400_000, 10**9])
def test_the_sample_does_not_depend_on_the_batches(most_bytes: int) -> None:
    table = mixed(7_000)
    samples = []
    for cuts in ([1], [999, 13], [7_000]):
        with opened(written(table, cuts)) as stream:
            sample = stream.sample(6_000, most_bytes)
            samples.append([{name: array.to_pylist() for name, array in columns.items()} for columns in sample])
            assert sum(batch.num_rows for batch, _ in pieces(stream, 100)) == 7_000, (
                "the rows of the sample are returned as well"
            )
            assert sum(map(read_bytes, sample)) < most_bytes + 1_000_000
    assert samples[0] == samples[1] == samples[2]
    rows = sum(len(columns["age"]) for columns in samples[0])
    assert rows == (6_000 if most_bytes == 10**9 else 2_048 if most_bytes == 1 else rows) > 2_047


def test_a_stop_loses_no_complete_batch() -> None:
    table, stopping = mixed(1_000), threading.Event()
    whole, more = written(table.slice(0, 900), [90], ends=False), written(table, [90], ends=False)
    with opened(more[: len(whole) + 100], stopping.is_set, ends=False) as stream:
        given = stream.next_batch(850)
        assert given is not None
        threading.Timer(0.3, stopping.set).start()
        with pytest.raises(Stopped):
            while (piece := stream.next_batch(850)) is not None:
                given = pa.concat_batches([given[0], piece[0]]), 0
        rest = [batch for batch, _ in stream.rest(30)]
        assert given[0].num_rows + sum(batch.num_rows for batch in rest) == 900
        assert stream.given == 900


def test_damage_is_reported_with_the_number_of_rows_before_it() -> None:
    data = written(mixed(1_000), [100])
    for place in (len(data) // 2, len(data) * 3 // 4):
        with opened(data[:place]) as stream:
            rows = sum(batch.num_rows for batch, _ in pieces(stream, 1_000))
            assert rows % 100 == 0
            assert stream.fault is not None
            assert f"after row {rows:,}" in str(stream.fault)


def test_rows_that_were_read_before_are_skipped() -> None:
    table = mixed(1_000)
    with opened(written(table, [70])) as stream:
        stream.pass_over(333)
        assert stream.given == 333
        batch, first = pieces(stream, 10)[0]
        assert first == 333
        assert batch.to_pylist()[0] == table.slice(333, 1).to_pylist()[0]
    with opened(written(table, [70])) as stream, pytest.raises(DataError, match="after 1,000 rows; 1,001 were taken"):
        stream.pass_over(1_001)
