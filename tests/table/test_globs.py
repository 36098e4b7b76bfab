"""Patterns match what glob.glob matches, but nothing is left out because of a fault."""

from __future__ import annotations

import errno
import glob
import os
from pathlib import Path

import pytest

from streampgs.base import faults
from streampgs.base.errors import Unreadable
from streampgs.base.globs import matches

FILES = (
    "a.parquet", "b.arrow", ".hidden.parquet", "day=1/a.parquet", "day=1/b.parquet", "day=2/a.parquet", "day=2/.h/a.parquet",
    "day=2/deep/er/a.parquet", "[x]/a.parquet", ".out/a.parquet",
)  # fmt: skip
PATTERNS = (
    "*", "*.parquet", "day=*/*.parquet", "day=[12]/a*", "day=?/a.parquet", "**", "**/*.parquet", "day=*/**/a.parquet", "**/",
    "day=2/**", "*/", "*/*/", ".*", ".*/*", "[[]x]/*", "nothing/*", "a.parquet/*", "*/nothing", "day=1", "none", "day=*/b.parquet",
    "./day=*/a.parquet", "../*/day=1/*", "day=1/", "**/deep/**", "*/../a.parquet",
)  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("day=1")
    (tmp_path / "day=1" / "circle").symlink_to(tmp_path / "day=1")
    (tmp_path / "nowhere").symlink_to("not-there")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_as_in_the_standard_library(files: Path, pattern: str) -> None:
    assert matches(pattern) == sorted(set(glob.glob(pattern, recursive=True)))
    whole = f"{files}/{pattern}"
    assert matches(whole) == sorted(set(glob.glob(whole, recursive=True)))


def test_a_folder_that_cannot_be_listed_is_an_error(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listdir = os.listdir

    def failing(path: str) -> list[str]:
        if os.fspath(path).endswith("day=2"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", failing)
    monkeypatch.setattr(faults, "PAUSES", ())
    with pytest.raises(Unreadable, match="day=2' cannot be read: Input/output error"):
        matches("day=*/*.parquet")
    assert matches("day=1/*.parquet") == ["day=1/a.parquet", "day=1/b.parquet"]
