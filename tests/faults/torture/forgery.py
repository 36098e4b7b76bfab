"""Untrusted runs: files with a valid seal and contents that streampgs would never write.

The resume must end with an error that names the file, or continue with the forged value. It must not crash, loop forever,
use unlimited memory, or write to or delete anything outside the run folder.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from streampgs.run.seal import read_sealed
from tests.faults.torture.damage import Damager, kind_of
from tests.faults.torture.forks import Ended, address_space, in_child
from tests.faults.torture.tally import LOST, REFUSED, SURVIVED

SECONDS = 20.0
_MORE_MEMORY = 3 << 30
_KEY = b"streampgs"
_SEALED = ("checkpoint", "catalog", "run", "encoding")


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 255, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64, -(2**63), 10**30, 0.0, 0.5, 1e-320, 1e308,
    -1e308, float("inf"), float("-inf"), float("nan"), "", "x", "../../etc/passwd", "/", "/dev/zero", "\0", "x" * 10_000, [], {},
    [0], [[]], [None] * 1000, {"a": 1}, "auto", "dense", "sparse", "none", deep(50),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a record."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def changed(record: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = record.copy()
    copy[path[0]] = changed(record[path[0]], path[1:], value)
    return copy


def without(record: Any, path: tuple[Any, ...]) -> Any:
    if len(path) == 1:
        copy = record.copy()
        del copy[path[0]]
        return copy
    return changed(record, path[:1], without(record[path[0]], path[1:]))


def seal(path: Path, table: pa.Table, record: Any) -> None:
    schema = table.schema.with_metadata({_KEY: json.dumps(record).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    content = sink.getvalue().to_pybytes()
    path.write_bytes(content + b"spgseal1" + hashlib.sha256(content).digest())


class Forger(Damager):
    """Changes the contents of sealed files and seals them again."""

    def forge(self, number: int, chance: random.Random) -> None:
        self.chance = chance
        # Of the checkpoints only the newest is read.
        by_kind = {kind_of(path): path for path in self.paused.files if kind_of(path) in _SEALED}
        kind = sorted(by_kind)[number % len(by_kind)]
        run, before = self.paused.copied(), self._outside()
        path = run / by_kind[kind].name
        claim = self._change(path)
        ended = self._resume_with_limits(run)
        outcome, message = self._outcome(ended, path)
        if self._outside() != before:
            outcome, message = LOST, "files outside the run were changed"
        self.tally.note(f"forged {kind}", outcome, f"{self.subject.case.name}: {claim}: {message}")

    def _change(self, path: Path) -> str:
        table, record = read_sealed(path)
        wheres = [place for place in places(record) if place and place != ("format",)]
        if not wheres or (table.num_columns and self.chance.random() < 0.3):
            table, claim = self._other_column(table)
        else:
            where = self.chance.choice(wheres)
            value = self.chance.choice(VALUES)
            missing = self.chance.random() < 0.1 and isinstance(where[-1], str)
            record = without(record, where) if missing else changed(record, where, value)
            claim = f"{'.'.join(map(str, where))} = {'absent' if missing else repr(value)[:60]}"
        seal(path, table, record)
        return claim

    def _other_column(self, table: pa.Table) -> tuple[pa.Table, str]:
        place = self.chance.randrange(table.num_columns)
        name, values = table.column_names[place], table.column(place).to_pylist()
        if not values or self.chance.random() < 0.15:
            return table.drop_columns([name]), f"no column {name}"
        row = self.chance.randrange(len(values))
        value = self.chance.choice(VALUES)
        if isinstance(values[row], list) and values[row] and self.chance.random() < 0.7:
            value = changed(values[row], (self.chance.randrange(len(values[row])),), value)
        values[row] = value
        try:
            column = pa.array(values, table.schema.field(place).type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            column = pa.nulls(len(values), table.schema.field(place).type)
            value = "nulls"
        return table.set_column(place, name, column), f"column {name}, row {row}: {value!r:.60}"

    def _resume_with_limits(self, run: Path) -> Ended:
        def work() -> str:
            most = address_space() + _MORE_MEMORY  # the forking process may have reserved much already
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            return str(self.subject.start_or_resume(run, rows=self.subject.case.rows * 2).dual_sha256)

        return in_child(work, SECONDS)

    def _outcome(self, ended: Ended, path: Path) -> tuple[str, str]:
        if ended.finished:
            return SURVIVED, ""
        return (REFUSED, ended.message) if ended.refused else (LOST, ended.message)

    def _outside(self) -> dict[str, tuple[int, int]]:
        """Size and time stamp of each file outside the forged run."""
        kept = [
            path
            for path in self.subject.folder.rglob("*")
            if self.subject.folder / "damaged" not in (path, *path.parents)
        ]
        return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in kept}
