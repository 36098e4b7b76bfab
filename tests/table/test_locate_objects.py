"""A source finds the same names in the same order in a bucket as on a disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streampgs.base.errors import DataError
from streampgs.table import locate as locating
from streampgs.table.locate import locate

NAMES = [
    "a.arrow", "b.parquet", "B.PARQUET", "notes.txt", "_SUCCESS", ".tmp.arrow", "sub/c.arrow", "sub-x/d.arrow",
    "sub/deep/e.arrow", "sub/_temporary/f.arrow", "_hidden/g.arrow", ".dot/h.arrow", "day=1/i.arrow", "day=10/j.arrow",
    "day=2/k.arrow", "day=2/readme", "sub.x/l.arrow", "z[1].arrow", "day=2/_m.arrow",
]  # fmt: skip
PATTERNS = [
    "", "sub", "sub/", "*.arrow", "*", "*/*", "**", "**/*.arrow", "sub*", "sub*/", "day=*", "day=?", "day=[12]/*",
    "sub/**", "*/**", "sub*/**/*.arrow", "_*", ".*", "**/_*", "_hidden", "_hidden/*", "*/_temporary", "z[1].arrow",
    "z[[]1].arrow", "sub/*/e.arrow", "[!d]*", "notes.txt", "day=2/read*", "**/",
]  # fmt: skip


class Bucket:
    """An object store in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, keys: list[str]) -> None:
        self.keys = keys
        monkeypatch.setattr(locating, "is_object", self.is_object)
        monkeypatch.setattr(locating, "keys_below", self.keys_below)

    def is_object(self, address: locating.Address) -> bool | None:
        if address.key in self.keys:
            return True
        return False if self.keys_below(address) else None

    def keys_below(self, address: locating.Address) -> list[str]:
        folder = address.key.rstrip("/")
        return [key for key in self.keys if not folder or key.startswith(folder + "/")]


def found_on_disk(base: Path, pattern: str) -> list[str] | None:
    try:
        return [str(Path(str(path)).relative_to(base)) for path in locate([f"{base}/{pattern}"]).paths]
    except DataError:
        return None


def found_in_bucket(pattern: str) -> list[str] | None:
    try:
        return [str(path).removeprefix("s3://bucket/base/") for path in locate([f"s3://bucket/base/{pattern}"]).paths]
    except DataError:
        return None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_finds_the_same_in_a_bucket_and_on_disk(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    Bucket(monkeypatch, [f"base/{name}" for name in reversed(NAMES)])
    assert found_in_bucket(pattern) == found_on_disk(tmp_path, pattern)


part = st.sampled_from(["a", "b", "a-b", "a.b", "_c", ".d", "x.arrow", "y.parquet", "_z.arrow"])
patterned = st.sampled_from(["a", "b", "*", "a*", "?", "**", "_*", "*.arrow", "[ab]*", "x.arrow"])


@settings(max_examples=200)
@given(
    st.lists(st.lists(part, min_size=1, max_size=4).map("/".join), min_size=1, max_size=8, unique=True),
    st.lists(patterned, min_size=1, max_size=4).map("/".join),
)
def test_random_patterns_find_the_same_in_random_trees(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], pattern: str
) -> None:
    base = tmp_path_factory.mktemp("tree")
    kept = []
    for name in names:
        if not any(other.startswith(f"{name}/") or name.startswith(f"{other}/") for other in kept):
            kept.append(name)  # on disk, a name cannot be both a file and a folder
    # The glob module does not check that the part before the first wildcard is a folder.
    written_out = re.sub(r"(/\*\*)+$", "", pattern)
    assume(written_out not in kept)
    for name in kept:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).touch()
    with pytest.MonkeyPatch.context() as monkeypatch:
        Bucket(monkeypatch, [f"base/{name}" for name in kept])
        assert found_in_bucket(pattern) == found_on_disk(base, pattern)
