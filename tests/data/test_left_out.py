"""The name of a shard stands for this shard alone, also if it is a glob as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from streampgs.data.left_out import matches, pattern_of

NAMES = ["x[1].arrow", "x1.arrow", "x*.arrow", "x?.arrow", "x[[]1].arrow", "xy.arrow"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_known", [False, True], ids=["on the disk", "of the run"])
def test_a_name_leaves_out_only_the_shard_of_this_name(name: str, is_known: bool, tmp_path: Path) -> None:
    paths = [tmp_path / one for one in NAMES]
    if not is_known:
        (tmp_path / name).touch()
    pattern = pattern_of(str(tmp_path / name), paths if is_known else [])
    assert [path.name for path in paths if matches(path, [pattern])] == [name]


def test_a_glob_and_a_folder_leave_out_all_that_they_match(tmp_path: Path) -> None:
    (tmp_path / "x[1]").mkdir()
    inside = tmp_path / "x[1]" / "a.arrow"
    assert matches(inside, [pattern_of(str(tmp_path / "x[1]"), [inside])])
    assert matches(tmp_path / "x1.arrow", [pattern_of(str(tmp_path / "x[12].arrow"), [tmp_path / "x1.arrow"])])
