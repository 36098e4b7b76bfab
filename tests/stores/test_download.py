"""A copy is assembled from ranges and gets its final name only if its content is right."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path

import pytest

from streampgs.base.errors import DataError
from streampgs.stores import access
from streampgs.stores import copies as module
from streampgs.stores.access import RemoteObject
from streampgs.stores.copies import download
from tests.stores.moto import BUCKET, Moto, Proxy
from tests.stores.test_faults import EveryOtherTime

CONTENT = bytes(range(251)) * 4_000


def fetched(remote: RemoteObject) -> bytes:
    with ThreadPoolExecutor(4) as parts:
        download(remote, parts, threading.Event())
    assert [file.name for file in remote.copy.parent.iterdir()] == [remote.name]
    return remote.copy.read_bytes()


def test_ranges_fetched_in_parallel_give_the_whole_object(
    proxied: Proxy, moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 70_000)
    proxied.fault = EveryOtherTime("truncate")
    etag = moto.put("ranges/part-x", CONTENT)
    assert fetched(RemoteObject(f"s3://{BUCKET}/ranges/part-x", len(CONTENT), etag, tmp_path / "copies")) == CONTENT
    assert sum(method == "GET" for method, _, _ in proxied.requests) > len(CONTENT) // 70_000


def test_an_empty_object_becomes_an_empty_file(store: Moto, tmp_path: Path) -> None:
    etag = store.put("ranges/empty", b"")
    assert fetched(RemoteObject(f"s3://{BUCKET}/ranges/empty", 0, etag, tmp_path / "copies")) == b""


def test_an_object_uploaded_in_parts_is_downloaded_once(
    store: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ETag of such an object is not a checksum of its content."""
    store.put("ranges/parts", CONTENT)
    remote = RemoteObject(f"s3://{BUCKET}/ranges/parts", len(CONTENT), "0" * 32 + "-7", tmp_path / "copies")
    monkeypatch.setattr(access, "_version", lambda *_: remote.version)
    assert fetched(remote) == CONTENT


@pytest.mark.parametrize("version", ["0" * 32, "0" * 32 + "-7"])
def test_an_object_that_was_replaced_during_the_download_is_refused(
    version: str, store: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("ranges/replaced", CONTENT)
    remote = RemoteObject(f"s3://{BUCKET}/ranges/replaced", len(CONTENT), version, tmp_path / "copies")
    versions = chain([version], repeat("another"))
    monkeypatch.setattr(access, "_version", lambda *_: next(versions))
    with pytest.raises(DataError, match="was replaced while in use"):
        fetched(remote)
    assert list((tmp_path / "copies").iterdir()) == []


@pytest.mark.parametrize("is_md5", [True, False])
def test_content_must_match_an_etag_unless_it_is_declared_not_to_be_a_checksum(
    is_md5: bool, store: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("ranges/kms", CONTENT)
    remote = RemoteObject(f"s3://{BUCKET}/ranges/kms", len(CONTENT), "0" * 32, tmp_path / "copies")
    monkeypatch.setattr(access, "_version", lambda *_: remote.version)
    if is_md5:
        with pytest.raises(DataError, match="do not match its ETag"):
            fetched(remote)
    else:
        monkeypatch.setenv(module.NO_MD5, "1")
        assert fetched(remote) == CONTENT
