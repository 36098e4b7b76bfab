"""The history of a run: what is read of files that are long, damaged, or from somebody else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.errors import RunError
from streampgs.run.folder import RunFolder
from streampgs.run.history import is_cut, read_events


def line(event: str, rows: int, **facts: Any) -> bytes:
    return json.dumps({"time": "now", "event": event, "rows": rows, "t": rows, **facts}).encode() + b"\n"


def read_forwards(path: Path) -> list[dict[str, Any]]:
    """The plain twin of `read_events`: a start undoes the events before it that are beyond it, unless a later one has."""
    events: list[dict[str, Any]] = [json.loads(each) for each in path.read_bytes().splitlines()]
    for number, back in reversed(list(enumerate(events))):
        if back["event"] not in ("resumed", "undone") or {"lost", "undone"} & back.keys():
            continue
        for event in reversed(events[:number]):
            if event["event"] == "failed":
                continue
            if event["rows"] <= back["rows"] or {"lost", "undone"} & event.keys():
                break
            event["undone" if back["event"] == "undone" else "lost"] = True
    return events


EVENTS = st.lists(
    st.tuples(st.sampled_from(["started", "resumed", "stopped", "failed", "undone", "chosen"]), st.integers(0, 5)),
    max_size=20,
)


@given(events=EVENTS, last=st.integers(1, 25))
def test_reading_from_the_end_gives_the_same_events(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int]], last: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "history.jsonl"
    path.write_bytes(b"".join(line(*event) for event in events))
    assert read_events(path) == read_forwards(path)
    assert read_events(path, last) == read_forwards(path)[-last:]


def test_of_a_huge_file_only_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    RunFolder(tmp_path).append_event("started", 0, 0)
    assert [event["event"] for event in read_events(path)] == ["started"]
    assert is_cut(path)


def test_other_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    others = [
        b"[" * 200_000,
        b'"' + b"x" * (2 << 20) + b'"',
        b"null",
        b"3",
        b'{"event": 1}',
        b"\xff",
        b'{"rows": 1e400}',
    ]
    others.append(b'{"time": "now", "event": "stopped", "rows": 1, "t": 1, "shards": "many"}')
    path.write_bytes(line("started", 0) + b"\n".join(others) + b"\n" + line("stopped", 7))
    assert [event["rows"] for event in read_events(path)] == [0, 7]
    assert not is_cut(path)


@pytest.mark.parametrize("kind", ["pipe", "device", "link", "folder"])
def test_only_a_regular_file_is_read(kind: str, tmp_path: Path) -> None:
    path, other = tmp_path / "history.jsonl", tmp_path / "other"
    other.write_bytes(line("started", 0))
    make = {"pipe": os.mkfifo, "device": lambda p: p.symlink_to("/dev/zero"), "link": lambda p: p.symlink_to(other)}
    make.get(kind, Path.mkdir)(path)
    with pytest.raises(RunError, match=r"history\.jsonl' cannot be read: .*\n  → .*remove it"):
        read_events(path)
