"""Faults of the network or the store cost time or end with an error, but never change a bit."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import streampgs
from streampgs.base.errors import DataError
from streampgs.run.folder import RunFolder
from streampgs.stores.access import looked_up, opened
from tests.stores.conftest import MARKER, SMALL, delete_cache
from tests.stores.moto import BUCKET, Moto, Proxy, Request

_FOOTER_BYTES = 1 << 16


def is_download(request: Request) -> bool:
    """Whether a request is for the rows of a shard. Requests for footers have fixed sizes."""
    method, path, asked = request
    return method == "GET" and "/part-" in path and asked > _FOOTER_BYTES


class EveryOtherTime:
    """Each request fails the first time, succeeds the second time, fails the third time, and so on. Of a reply with a wrong
    bit nothing shows this alone: three right ones follow, which agree."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.times: Counter[Request] = Counter()
        self.lock = threading.Lock()

    def __call__(self, request: Request) -> str | None:
        if self.fault == "shorten" and request[0] == "HEAD":
            return None  # its length is that of the object
        if self.fault == "portal" and "list-type" in request[1]:
            return None  # pyarrow takes the page for an empty listing
        with self.lock:
            self.times[request] += 1
            return self.fault if self.times[request] % (4 if self.fault == "flip" else 2) == 1 else None


@pytest.mark.parametrize("fault", ["500", "503", "truncate", "close", "flip", "shorten", "cut head", "portal"])
@pytest.mark.parametrize("file_format", ["arrow", "parquet"])
def test_temporary_faults_do_not_change_a_bit(
    fault: str,
    file_format: str,
    folders: Path,
    proxied: Proxy,
    moto: Moto,
    tmp_path: Path,
    undisturbed: Callable[[str], str],
) -> None:
    address = moto.upload(folders / f"sparse-{file_format}", f"faults/{file_format}")
    proxied.fault = EveryOtherTime(fault)
    report = streampgs.train(address, run=tmp_path / "run", epochs=2, **SMALL)
    assert report.dual_sha256 == undisturbed(file_format)
    assert proxied.faults >= 6


@pytest.mark.parametrize("fault", ["shorten", "cut head", "portal", "truncate"])
def test_an_incomplete_range_is_never_returned(fault: str, proxied: Proxy, moto: Moto) -> None:
    """pyarrow returns the earlier content of its memory. Nothing else would notice it where ETags are not checksums."""
    data = np.random.default_rng(7).bytes(50_000)
    moto.put("ranges/object", data)
    remote = looked_up(f"s3://{BUCKET}/ranges/object")
    times: Counter[Request] = Counter()

    def every_other(request: Request) -> str | None:
        times[request] += request[0] == "GET"
        return fault if times[request] % 2 else None

    with opened(remote) as file, ThreadPoolExecutor(4) as pool:
        proxied.fault = every_other
        ranges = [(size, offset) for size in (100, 1_000, 20_000) for offset in range(0, 30_000, 3_001)]
        found = list(pool.map(lambda one: file.read(*one), ranges))
        assert found == [data[offset : offset + size] for size, offset in ranges]
        assert proxied.faults >= len(ranges)
        proxied.fault = lambda request: fault
        with pytest.raises(DataError, match=r"object' cannot be read: .* tries in"):
            file.read(1_000, 0)


def test_a_range_with_a_wrong_bit_is_never_returned(proxied: Proxy, moto: Moto) -> None:
    data = np.random.default_rng(8).bytes(50_000)
    moto.put("flips/object", data)
    with opened(looked_up(f"s3://{BUCKET}/flips/object")) as file:
        proxied.fault = EveryOtherTime("flip")
        for size, offset in [(1, 7), (4_000, 0), (4_000, 2_000), (50_000, 0)]:
            assert file.read(size, offset) == data[offset : offset + size]
        assert proxied.faults >= 4
        proxied.fault = lambda request: "flip"
        with pytest.raises(DataError, match="each of 6 requests for the same 4,000 bytes got other ones"):
            file.read(4_000, 0)


def test_a_reply_that_breaks_off_in_its_head_is_not_taken_for_a_fact(
    folders: Path, proxied: Proxy, moto: Moto, tmp_path: Path, undisturbed: Callable[[str], str]
) -> None:
    """It looks like an object without bytes."""
    address = moto.upload(folders / "sparse-arrow", "heads")
    run = tmp_path / "run"
    streampgs.train(address, run=run, rows=500, **SMALL)
    proxied.fault = lambda request: "cut head" if request[0] == "HEAD" else None
    for command in (
        lambda: streampgs.resume(run, epochs=2),
        lambda: streampgs.train(address, run=tmp_path / "another", **SMALL),
        lambda: streampgs.evaluate(run, f"{address}/part-00000.arrow"),
    ):
        with pytest.raises(DataError, match="cannot be read: a reply without an ETag") as ended:
            command()
        assert not re.search("replaced|removed|does not exist|missing", str(ended.value))
    proxied.fault = lambda request: None
    assert streampgs.resume(run, epochs=2).dual_sha256 == undisturbed("arrow")


def test_a_stalled_request_is_retried(
    folders: Path, proxied: Proxy, moto: Moto, tmp_path: Path, undisturbed: Callable[[str], str]
) -> None:
    address = moto.upload(folders / "sparse-arrow", "stalls")
    stalled: list[str] = []

    def fault(request: Request) -> str | None:
        if is_download(request) and len(stalled) < 2:
            stalled.append(request[1])
            return "stall"
        return None

    proxied.fault = fault
    report = streampgs.train(address, run=tmp_path / "run", epochs=2, **SMALL)
    assert (report.dual_sha256, len(stalled)) == (undisturbed("arrow"), 2)


@pytest.mark.parametrize("fault", ["500", "stall", "truncate", "close"])
def test_a_store_that_keeps_failing_ends_training_with_a_message(
    fault: str, folders: Path, proxied: Proxy, moto: Moto, tmp_path: Path, undisturbed: Callable[[str], str]
) -> None:
    """Training ends in the middle of an epoch with a checkpoint, and resuming later gives the same bits."""
    address = moto.upload(folders / "sparse-parquet", "fails")
    run = tmp_path / "run"
    streampgs.train(address, run=run, rows=500, **SMALL)
    delete_cache(run)
    good = 0

    def later(request: Request) -> str | None:
        nonlocal good
        good += is_download(request)
        return fault if good > 3 else None

    proxied.fault = later
    with pytest.raises(streampgs.StreampgsError) as ended:
        streampgs.resume(run, epochs=2)
    assert re.search(rf"'{address}/part-0000\d.parquet' cannot be read: .* tries in", str(ended.value))
    assert "streampgs.resume(" in str(ended.value)
    newest = RunFolder(run).newest_checkpoint()
    assert newest is not None
    assert newest.damaged == []
    proxied.fault = lambda request: None
    assert streampgs.resume(run, epochs=2).dual_sha256 == undisturbed("parquet")


def test_refused_credentials_are_reported_without_retries_and_not_shown(
    folders: Path, proxied: Proxy, moto: Moto, tmp_path: Path
) -> None:
    moto.upload(folders / "sparse-arrow", "refused")
    proxied.fault = lambda request: "403"
    with pytest.raises(streampgs.StreampgsError, match="the store refused access to") as refused:
        streampgs.train("s3://tables/refused", run=tmp_path / "run", **SMALL)
    assert MARKER not in str(refused.value)
    assert len(proxied.requests) <= 2
