"""Copies of remote shards: which are downloaded, kept and deleted."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Executor
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from streampgs.base.errors import DataError, RunError
from streampgs.stores import copies as download
from streampgs.stores import copies as module
from streampgs.stores.access import RemoteObject
from streampgs.stores.copies import COPY_TIME_NS, PART_BYTES, Copies


@pytest.fixture
def downloaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The downloaded addresses, in order. Downloads of addresses that end in 'bad' fail."""
    came: list[str] = []
    lock = threading.Lock()

    def download(remote: RemoteObject, parts: Executor, stopping: threading.Event) -> None:
        with lock:
            came.append(remote.address)
        if remote.address.endswith("bad"):
            raise DataError("bad")
        if remote.address.endswith("full"):
            raise OSError(28, "No space left on device")
        remote.copy.write_bytes(bytes(remote.size))
        os.utime(remote.copy, ns=(COPY_TIME_NS, COPY_TIME_NS))

    monkeypatch.setattr(module, "download", download)
    return came


def objects(folder: Path, names: str, size: int = 10) -> list[RemoteObject]:
    return [RemoteObject(f"s3://bucket/{name}", size, "v1", folder) for name in names.split()]


def never() -> None:
    """No stop is requested."""


def here(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_the_least_recently_used_copies_are_deleted_first(tmp_path: Path, downloaded: list[str]) -> None:
    a, b, c, d = objects(tmp_path, "a b c d")
    with closing(Copies(tmp_path, 30)) as copies:
        gone: list[RemoteObject] = []
        copies.evicted = gone.append
        for step, wanted in enumerate([[a, b], [b, c], [a], [d]]):
            copies.begin(step, wanted)
            copies.wait_for(wanted, never)
            assert all(remote.copy.stat().st_size == 10 for remote in wanted)
        assert gone == [b]
        assert here(tmp_path) == {a.name, c.name, d.name}
    assert sorted(downloaded) == [remote.address for remote in (a, b, c, d)]


def test_a_failed_download_is_raised_by_wait_and_tried_again(tmp_path: Path, downloaded: list[str]) -> None:
    (bad,) = objects(tmp_path, "bad")
    with closing(Copies(tmp_path, 30)) as copies:
        for tries in (1, 2):
            copies.announce(tries, [bad])
            copies.begin(tries, [bad])
            with pytest.raises(DataError, match="bad"):
                copies.wait_for([bad], never)
            assert len(downloaded) == tries
        (full,) = objects(tmp_path, "full")
        copies.begin(3, [full])
        with pytest.raises(RunError, match=r"cannot be written: No space left"):
            copies.wait_for([full], never)


def test_no_download_is_left_waiting_after_close(tmp_path, monkeypatch):
    """Parts that did not start must end too: a thread that waits for them would keep the process alive."""
    answered, asked = threading.Event(), threading.Event()

    class Source:
        size = 64 * PART_BYTES

        def read_part(self, size: int, offset: int) -> bytes:
            asked.set()
            answered.wait(30)
            return bytes(size)

    monkeypatch.setattr(download, "opened", lambda remote, stopping: nullcontext(Source()))
    copies = Copies(tmp_path, None)
    remote = RemoteObject("s3://bucket/large", Source.size, "version", tmp_path)
    copies.begin("window", [remote])
    assert asked.wait(30)
    copies.close(waiting=False)
    answered.set()
    for thread in threading.enumerate():
        if thread.name.startswith("streampgs-"):
            thread.join(30)
            assert not thread.is_alive(), thread.name
