"""`follow` on shards in an object store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import streampgs
from streampgs.base.errors import DataError
from streampgs.run.folder import RunFolder
from streampgs.run.report import Observer, StopRequest
from tests.end_to_end.test_growth import COUNTED_ROWS, COUNTING, visits, write_counted
from tests.faults.torture.follow_trials import is_idle
from tests.stores.moto import BUCKET, Moto, Proxy

SMALL = {"memory": "60MB", "window": "20kB"}


class StopAt(Observer):
    """Asks for a stop at the checkpoint of this row, and after a minute, so that no test hangs."""

    def __init__(self, rows: int) -> None:
        self.rows, self.stop = rows, StopRequest()
        self.patience = threading.Timer(60.0, self.stop.ask, ["the time limit of the test"])
        self.patience.daemon = True
        self.patience.start()

    def saved(self, checkpoint: str) -> None:
        if int(Path(checkpoint).stem.split("-")[1]) >= self.rows:
            self.stop.ask("SIGTERM")


class StopWhenIdle(StopAt):
    """Asks for a stop when so many rows were trained on and no epoch is left."""

    def __init__(self, run: Path, rows: int) -> None:
        super().__init__(rows)
        self.run = run

    def saved(self, checkpoint: str) -> None:
        if is_idle(self.run, self.rows, 2):
            self.stop.ask("SIGTERM")


def followed(address: str, run: Path, rows: int) -> None:
    observer = StopWhenIdle(run, rows)
    streampgs.train(
        address, run=run, epochs=2, follow=True, poll_seconds=0.05, observer=observer, stop=observer.stop,
        **COUNTING, **SMALL,
    )  # fmt: skip
    observer.patience.cancel()


def test_a_listing_that_lacks_an_object_does_not_end_its_training(proxied: Proxy, moto: Moto, tmp_path: Path) -> None:
    for number in range(4):
        write_counted(tmp_path / "table" / f"{number}.parquet", number * COUNTED_ROWS)
    address, run, listings = moto.upload(tmp_path / "table", "late"), tmp_path / "run", list[str]()

    def late(request: tuple[str, str, int]) -> str | None:
        if "list-type" not in request[1] or not (run / "catalog.arrows").exists():
            return None
        listings.append(request[1])
        return "late"

    proxied.fault = late
    followed(address, run, 4 * COUNTED_ROWS)
    assert listings
    assert visits(run) == [2] * (4 * COUNTED_ROWS)


def test_an_object_that_was_removed_is_no_longer_trained_on(proxied: Proxy, moto: Moto, tmp_path: Path) -> None:
    for number in range(3):
        write_counted(tmp_path / "table" / f"{number}.parquet", number * COUNTED_ROWS)
    address, run = moto.upload(tmp_path / "table", "removed"), tmp_path / "run"
    streampgs.train(address, run=run, epochs=1, **COUNTING, **SMALL)
    moto.delete("removed/1.parquet")
    observer = StopAt(5 * COUNTED_ROWS)
    streampgs.resume(run, epochs=2, follow=True, poll_seconds=0.05, observer=observer, stop=observer.stop)
    observer.patience.cancel()
    assert visits(run) == [2] * COUNTED_ROWS + [1] * COUNTED_ROWS + [2] * COUNTED_ROWS
    assert [event["lost_names"] for event in RunFolder(run).events() if event["event"] == "changed"] == [
        [f"s3://{BUCKET}/removed/1.parquet"]
    ]


def test_an_object_that_is_incomplete_is_left_out_until_it_is_complete(
    proxied: Proxy, moto: Moto, tmp_path: Path
) -> None:
    for number in range(2):
        write_counted(tmp_path / "table" / f"{number}.parquet", number * COUNTED_ROWS)
    address, run = moto.upload(tmp_path / "table", "incomplete"), tmp_path / "run"
    write_counted(tmp_path / "later.parquet", 2 * COUNTED_ROWS)
    whole = (tmp_path / "later.parquet").read_bytes()
    moto.put("incomplete/2.parquet", whole[: len(whole) // 2])
    completing = threading.Timer(0.5, moto.put, ["incomplete/2.parquet", whole])
    completing.start()
    try:
        followed(address, run, 3 * COUNTED_ROWS)
    except DataError as error:
        pytest.fail(str(error))
    finally:
        completing.join()
    found = visits(run)
    assert found[: 2 * COUNTED_ROWS] == [2] * (2 * COUNTED_ROWS)
    # In both epochs, or in an update after the first or the last one.
    assert len(found) == 3 * COUNTED_ROWS
    assert {1, 2} >= set(found[2 * COUNTED_ROWS :])
