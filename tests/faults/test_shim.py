"""The shim disturbs the chosen calls, and commands keep the law of scripts/checks/faults.py."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from tests.faults.single_calls import shim, trying
from tests.faults.single_calls.law import KILLED, REFUSED
from tests.faults.single_calls.points import Point, chosen_points, faults_of
from tests.faults.single_calls.shim import Shim, Strike
from tests.faults.torture.forks import in_child

pytestmark = pytest.mark.skipif(shim.missing() is not None, reason=str(shim.missing()))


def _read_by_arrow(path: Path) -> bytes:
    with pa.OSFile(str(path)) as file:
        return bytes(file.read())


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


def _sync_twice(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"0123456789", 10)
    try:
        os.fsync(fd)
    except OSError:
        os.fsync(fd)
        raise


ACTS: dict[str, tuple[Strike, Callable[[Path], object], object]] = {
    "open": (Strike("open", 1, "fail", errno.EIO), Path.read_bytes, errno.EIO),
    "open, by Arrow": (Strike("open", 1, "fail", errno.ESTALE), _read_by_arrow, errno.ESTALE),
    "read, by Arrow": (Strike("read", 1, "fail", errno.EIO), _read_by_arrow, errno.EIO),
    "the second read": (Strike("read", 2, "fail", errno.EIO), Path.read_bytes, errno.EIO),
    "a third read, which does not happen": (Strike("read", 3, "fail", errno.EIO), Path.read_bytes, "0123456789"),
    "a short read": (Strike("read", 1, "short"), lambda path: os.read(os.open(path, os.O_RDONLY), 10), "01234"),
    "the end of the file": (Strike("read", 1, "end"), Path.read_bytes, ""),
    "stat": (Strike("stat", 1, "fail", errno.EACCES), Path.stat, errno.EACCES),
    "close": (Strike("close", 1, "fail", errno.EDQUOT), Path.read_bytes, errno.EDQUOT),
    "unlink": (Strike("unlink", 1, "fail-always", errno.EIO), Path.unlink, errno.EIO),
    "list": (Strike("list", 1, "fail", errno.EMFILE), lambda path: os.listdir(path.parent), errno.EMFILE),
    "write": (Strike("write", 1, "fail", errno.ENOSPC), lambda path: _write(path, b"x"), errno.ENOSPC),
    "sync": (Strike("sync", 1, "fail", errno.EIO), lambda path: _write(path, b"x"), errno.EIO),
    "lost": (Strike("sync", 1, "lose"), _sync_twice, errno.EIO),
    "before": (Strike("unlink", 1, "kill-before"), Path.unlink, -signal.SIGKILL),
    "amid": (Strike("write", 1, "kill-amid"), lambda path: _write(path, b"abcdef"), -signal.SIGKILL),
    "after": (Strike("unlink", 1, "kill-after"), Path.unlink, -signal.SIGKILL),
}
LEFT = {
    "unlink": b"0123456789", "before": b"0123456789", "amid": b"abc3456789", "after": None, "lost": b"0123456789" + bytes(10),
}  # fmt: skip


def _outcome(act: Callable[[Path], object], path: Path) -> object:
    try:
        result = act(path)
        return result.decode() if isinstance(result, bytes) else None
    except OSError as error:
        return error.errno


def _acts(library: Path, folder: Path) -> dict[str, tuple[object, bytes | None, str | None]]:
    """In a process with the shim: the outcome of each act, what it left, and the file that was struck."""
    armed, found = Shim(library), {}
    path = folder / "folder" / "file"
    path.parent.mkdir()
    for name, (strike, act, _) in ACTS.items():
        path.write_bytes(b"0123456789")

        def work(strike: Strike = strike, act: Callable[[Path], object] = act) -> object:
            armed.arm(path.parent, strike)
            outcome = _outcome(act, path)
            armed.disarm()
            return outcome

        armed.forget()
        ended = in_child(work)
        outcome = ended.code if ended.killed else ended.result
        found[name] = (outcome, path.read_bytes() if path.exists() else None, armed.where)
    return found


def test_each_call_is_disturbed_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = shim.build(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = pool.submit(_acts, library, tmp_path).result()
    for name, (strike, _, expected) in ACTS.items():
        outcome, left, where = found[name]
        assert outcome == expected, name
        assert where == (None if "not happen" in name else "." if strike.operation == "list" else "file"), name
        if name in LEFT:
            assert left == LEFT[name], name


def test_a_sample_has_each_kind_of_fault_for_each_kind_of_file() -> None:
    trace = [("read", f"part-{number}") for number in range(50)] + [("open", "run.arrows")]
    kinds = [*faults_of("read"), *faults_of("open")]
    points = chosen_points("a", trace, len(kinds), seed=3)
    assert sorted((p.strike.action, p.strike.error) for p in points) == sorted(kinds)
    everything = chosen_points("a", trace, 10**6, seed=3)
    assert len(set(everything)) == len(everything) == 50 * len(list(faults_of("read"))) + len(list(faults_of("open")))
    assert [Point.of(str(point)) for point in everything] == everything


def test_commands_keep_the_law_under_any_fault() -> None:
    """The short form of scripts/checks/faults.py."""
    points: dict[str, int | list[Point]] = {
        "train-encoded": 25, "growth-encoded": 25, "pack-csv": 25, "pack-shuffle": 25, "predict-csv": 20, "evaluate": 20,
    }  # fmt: skip
    with trying.scratch() as folder:
        tried = list(trying.try_commands(points, folder, seed=7, workers=1))
    assert list(trying.failures(tried)) == []
    assert all(each.count(REFUSED) and each.count(KILLED) for each in tried)
    assert "| all |" in trying.table(tried)
