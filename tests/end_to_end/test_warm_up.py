"""`streampgs warm-up`, and the folders of compiled code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from streampgs.kernels import compile_cache, compiling
from streampgs.kernels.compile_cache import _NamedCodeFile
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
@pytest.mark.timeout(600)
def test_a_start_after_warm_up_compiles_nothing(tables: Tables, tmp_path: Path) -> None:
    cache, people = tmp_path / "cache", tmp_path / "people.parquet"
    done = streampgs(cache, "warm-up", "--loss", "squared", "--json")
    assert done.code == 0, done.err
    assert NOTICE not in done.err
    assert done.json["compiled"] > 10
    assert done.json["folders"] == [str(cache / "streampgs")]
    kept = sorted(cache.rglob("*"))
    names = [name for name in ("ann", "bob", "eve") for _ in range(200)]
    pd.DataFrame({"who": names, "age": range(600), "pay": [1.5 * row for row in range(600)]}).to_parquet(people)
    regression, run = tables.path("regression", "parquet"), tmp_path / "run"
    for words in (
        ["train", regression, "--run", run, "--loss", "squared"],
        ["resume", run, "--epochs", "4"],
        ["evaluate", run, tables.test_path("regression")],
        ["train", people, "--run", tmp_path / "pay", "--label", "pay", "--loss", "squared"],
    ):
        done = streampgs(cache, *words)
        assert (done.code, NOTICE in done.err) == (0, False), done.err
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
    missed: list[None] = []
    monkeypatch.setattr(compiling, "listeners", [lambda: missed.append(None)])
    folders = [tmp_path / "file" / "never", tmp_path / "second", tmp_path / "third"]
    monkeypatch.setattr(compile_cache, "folders", lambda: folders)
    file = _NamedCodeFile("loop")
    assert (file.load("key"), len(missed)) == (None, 1)
    file.save("key", "code")
    assert [len(list(folder.glob("*.nbc"))) for folder in folders] == [0, 1, 0]
    folders.reverse()
    assert (_NamedCodeFile("loop").load("key"), len(missed)) == ("code", 1)
    next(folders[1].iterdir()).write_bytes(b"\x80\x04")  # damaged
    assert (_NamedCodeFile("loop").load("key"), len(missed)) == (None, 2)
