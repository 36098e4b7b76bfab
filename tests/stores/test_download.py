"""A copy is put together of ranges, and has its name only when it proved right."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from streampgs.errors import DataError
from streampgs.stores import download as module
from streampgs.stores.access import RemoteObject
from streampgs.stores.download import download
from tests.stores.moto import BUCKET, Moto, Proxy
from tests.stores.test_faults import EveryOtherTime

CONTENT = bytes(range(251)) * 4_000


def fetched(remote: RemoteObject) -> bytes:
    with ThreadPoolExecutor(4) as parts:
        download(remote, parts, threading.Event())
    assert [file.name for file in remote.copy.parent.iterdir()] == [remote.name]
    return remote.copy.read_bytes()


def test_ranges_that_come_side_by_side_make_a_whole(
    proxied: Proxy, moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 70_000)
    proxied.fault = EveryOtherTime("truncate")
    etag = moto.put("ranges/part-x", CONTENT)
    assert fetched(RemoteObject(f"s3://{BUCKET}/ranges/part-x", len(CONTENT), etag, tmp_path / "copies")) == CONTENT
    assert sum(method == "GET" for method, _, _ in proxied.requests) > len(CONTENT) // 70_000


def test_an_empty_object_is_an_empty_file(store: Moto, tmp_path: Path) -> None:
    etag = store.put("ranges/empty", b"")
    assert fetched(RemoteObject(f"s3://{BUCKET}/ranges/empty", 0, etag, tmp_path / "copies")) == b""


class Untold:
    """A store whose ETags are of parts of unknown size: content comes as it is told here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, contents: list[bytes]) -> None:
        self.contents = contents

        @contextmanager
        def opened(remote: RemoteObject, stopping: threading.Event) -> Iterator[Untold]:
            yield self

        monkeypatch.setattr(module, "opened", opened)
        monkeypatch.setattr(module, "looked_up", lambda address: self.remote)

    size = 3

    def read(self, size: int, offset: int) -> bytes:
        return self.contents.pop(0)


@pytest.mark.parametrize(
    ("contents", "kept"),
    [([b"abc", b"abc"], b"abc"), ([b"abX", b"abc", b"abc"], b"abc"), ([b"abW", b"abX", b"abY", b"abZ"], None)],
)
def test_what_no_etag_tells_must_come_twice_alike(
    contents: list[bytes], kept: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Untold(monkeypatch, contents)
    version = hashlib.md5(b"of parts of unknown size").hexdigest() + "-7"
    store.remote = RemoteObject("s3://bucket/x", 3, version, tmp_path / "copies")
    if kept is None:
        with pytest.raises(DataError, match="do not match its ETag"):
            fetched(store.remote)
        assert list((tmp_path / "copies").iterdir()) == []
    else:
        assert fetched(store.remote) == kept
    assert contents == []
