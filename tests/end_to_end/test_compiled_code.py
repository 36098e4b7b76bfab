"""The folders of compiled code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streampgs.kernels import compile_cache, compiling
from streampgs.kernels.compile_cache import _described, _NamedCodeFile
from tests.end_to_end.commands import Finished
from tests.end_to_end.conftest import Tables

NOTICE = "compiling the loops"


def streampgs(cache: Path, *words: object) -> Finished:
    done = subprocess.run(
        [sys.executable, "-m", "streampgs", *map(str, words)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_second_start_compiles_nothing(tables: Tables, tmp_path: Path) -> None:
    cache, regression = tmp_path / "cache", tables.path("regression", "parquet")
    words = ["train", regression, "--loss", "squared", "--run"]
    first = streampgs(cache, *words, tmp_path / "first")
    assert (first.code, NOTICE in first.err) == (0, True), first.err
    kept = sorted(cache.rglob("*"))
    second = streampgs(cache, *words, tmp_path / "second")
    assert (second.code, NOTICE in second.err) == (0, False), second.err
    assert sorted(cache.rglob("*")) == kept


def test_without_a_folder_to_write_to_code_is_compiled_in_memory(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ["train", tables.path("dense", "arrow"), "--run", tmp_path / "run", "--epochs", 1, "--sigma", 1e-3]
    done = streampgs(tmp_path / "file" / "cache", *words)
    assert done.code == 0, done.err
    assert done.err.count(NOTICE) == 1
    assert json.loads(streampgs(tmp_path / "file", "inspect", tmp_path / "run", "--json").out)["rows"] == 6_000


def test_code_is_read_from_every_folder_and_written_to_the_first_that_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    missed: list[str] = []
    monkeypatch.setattr(compiling, "listeners", [missed.append])
    folders = [tmp_path / "file" / "never", tmp_path / "second", tmp_path / "third"]
    monkeypatch.setattr(compile_cache, "folders", lambda: folders)
    file = _NamedCodeFile("loop")
    assert (file.load("key"), len(missed)) == (None, 1)
    file.save("key", "code")
    assert [len(list(folder.glob("*.nbc"))) for folder in folders] == [0, 1, 0]
    folders.reverse()
    assert (_NamedCodeFile("loop").load("key"), len(missed)) == ("code", 1)
    next(folders[1].iterdir()).write_bytes(b"\x80\x04")  # damaged
    compiling.listeners.append(missed.append)
    assert (_NamedCodeFile("loop").load("key"), len(missed)) == (None, 2)


def test_a_small_parquet_file_is_opened_without_compiling(tables: Tables, tmp_path: Path) -> None:
    path = next(tables.path("regression", "parquet").glob("*.parquet"))
    opened = "import sys; from streampgs.formats.registry import open_shard; print(len(open_shard(sys.argv[1]).group_rows([])))"
    done = subprocess.run(
        [sys.executable, "-c", opened, path],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) > 0
    assert not [*tmp_path.rglob("*.nbc")]


def _loop_that_closes_over(factor: float) -> Callable[[], Callable[[float], float]]:
    def inner(number: float) -> float:
        return factor * number

    def loop() -> Callable[[float], float]:
        return inner

    return loop


def test_a_loop_is_described_by_all_that_it_closes_over() -> None:
    one, same, other = (_described(_loop_that_closes_over(factor)) for factor in (0.5, 0.5, 0.25))
    assert repr(one) == repr(same) != repr(other)
