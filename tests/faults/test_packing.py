"""A journal of `pack` may be damaged or untrusted: its contents are validated, and no other files are changed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streampgs.base.errors import DataError, StreampgsError
from streampgs.packing.journal import NAME, RUNS, load
from streampgs.packing.labels import Labels
from streampgs.packing.packer import pack


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "rows.svm").write_text("1 2:3\n-1 4:5\n" * 50)
    pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=30)
    return tmp_path / "out"


def again(out: Path) -> None:
    pack(out.parent / "rows.svm", out, rows_per_shard=30)


def reseal(out: Path, **changed: Any) -> None:
    record = {**json.loads((out / NAME).read_text()), **changed}
    del record["sha256"]
    total = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    (out / NAME).write_text(json.dumps({"sha256": total, **record}))


def test_any_changed_byte_of_a_journal_is_detected(out: Path) -> None:
    """Its numbers say where to resume: a wrong digit would lose or repeat rows."""
    whole = (out / NAME).read_bytes()
    record = load(out)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        (out / NAME).write_bytes(changed)
        try:
            assert load(out) == record  # only white space changed
        except DataError as refused:
            assert NAME in refused.found


@pytest.mark.parametrize("name", ["../treasure", "/etc/passwd", "a/b", "..", ""])
def test_a_journal_may_only_name_files_in_its_folder(out: Path, name: str) -> None:
    reseal(out, shards=[{"name": name, "rows": 1, "file_bytes": 4}])
    with pytest.raises(DataError, match=r"is damaged|is missing"):
        again(out)


@pytest.mark.parametrize(
    "changed",
    [
        {"memory": "much"}, {"shards": {}}, {"shards": [7]}, {"shards": [{}]}, {"read": [{}]}, {"runs": None},
        {"version": 10**400}, {"done": "yes"}, {"schema": 5}, {"read": [{"rows": 1, "skipped": 3}]}, {"inputs": "all"},
    ],
    ids=str,
)  # fmt: skip
def test_a_journal_with_values_of_other_types_is_refused(out: Path, changed: dict[str, Any]) -> None:
    reseal(out, **changed)
    with pytest.raises(StreampgsError, match=rf"'.*{NAME}' is (damaged|of format)"):
        again(out)


def test_files_behind_a_link_are_not_deleted(out: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "run-00000.arrow").write_text("held")
    (home / "thesis.tex").write_text("years")
    (out / RUNS).symlink_to(home)
    reseal(out, runs=[{"name": "run-00000.arrow", "rows": 1, "bytes": 4, "file_bytes": 4}], done=False)
    with pytest.raises(DataError, match="is a link to another place"):
        again(out)
    assert sorted(os.listdir(home)) == ["run-00000.arrow", "thesis.tex"]


def test_a_shard_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "rows.svm").write_text("1 2:3\n")
    (tmp_path / "treasure").write_text("gold")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".part-00000.arrow.writing").symlink_to(tmp_path / "treasure")
    pack(tmp_path / "rows.svm", tmp_path / "out", overwrite=True)
    assert (tmp_path / "treasure").read_text() == "gold"


def test_labels_that_shrink_while_in_use_are_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.arange(100_000.0))
    labels = Labels(tmp_path / "labels.npy", 10**8)
    assert labels.column(99_990, 10).to_pylist() == list(range(99_990, 100_000))
    os.truncate(tmp_path / "labels.npy", 5000)
    with pytest.raises(DataError, match=r"labels\.npy' ends before label 2,010"):
        labels.column(2_000, 10)
