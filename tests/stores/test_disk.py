"""New files are written under temporary names. Links, pipes and devices are not opened."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streampgs.base.files import new_file, open_regular, remove_leftovers
from streampgs.run.lock import RunLock


def test_a_link_with_the_temporary_name_is_replaced_and_not_followed(tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.write_text("gold")
    (tmp_path / ".a.writing").symlink_to(treasure)
    with open(new_file(tmp_path / ".a.writing"), "wb") as file:
        file.write(b"lead")
    assert treasure.read_text() == "gold"
    assert (tmp_path / ".a.writing").read_text() == "lead"


def test_only_files_without_a_writer_are_removed_as_leftovers(tmp_path: Path) -> None:
    (tmp_path / ".dead.writing").write_bytes(b"half")
    with open(new_file(tmp_path / ".alive.writing"), "wb"):
        remove_leftovers(tmp_path, ".*.writing")
        assert os.listdir(tmp_path) == [".alive.writing"]
    remove_leftovers(tmp_path, ".*.writing")
    assert os.listdir(tmp_path) == []


def test_leftovers_that_are_links_are_not_removed(tmp_path: Path) -> None:
    (tmp_path / "treasure").write_text("gold")
    (tmp_path / ".link.writing").symlink_to(tmp_path / "treasure")
    remove_leftovers(tmp_path, ".*.writing")
    remove_leftovers(tmp_path / "absent", ".*.writing")
    assert sorted(os.listdir(tmp_path)) == [".link.writing", "treasure"]


def test_pipes_devices_and_folders_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="it is not a regular file"):
            open_regular(path)


def test_leftovers_that_cannot_be_listed_now_do_not_stop_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error would leave the run locked by this process."""

    def exhausted(*words: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(tmp_path))

    (tmp_path / ".1.arrows.writing").write_bytes(b"half")
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", exhausted)
        with RunLock(tmp_path):
            pass
    with RunLock(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]
