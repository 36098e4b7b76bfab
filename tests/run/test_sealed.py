"""Damage to a sealed file is always detected, and a crash keeps the previous file."""

from __future__ import annotations

import hashlib
import io
import os
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import streampgs
from streampgs.base.errors import Unreadable
from streampgs.run.seal import FORMAT, SealBroken, read_sealed, write_sealed

SCHEMA = pa.schema({"x": pa.float64(), "name": pa.string()})
RECORD = {"format": FORMAT, "words": ["λ", "σ"], "numbers": {"a": 0.1, "b": 2**60, "c": None}}


def batches(seed: int = 0) -> Iterator[pa.RecordBatch]:
    generator = np.random.default_rng(seed)
    for rows in (5, 0, 3):
        yield pa.record_batch([generator.normal(size=rows), [f"row {r}" for r in range(rows)]], schema=SCHEMA)


def sealed(path: Path, seed: int = 0) -> bytes:
    write_sealed(path, batches(seed), SCHEMA, RECORD)
    return path.read_bytes()


def same(path: Path, seed: int) -> bool:
    table, record = read_sealed(path)
    return record == RECORD and table.replace_schema_metadata().equals(pa.Table.from_batches(batches(seed)))


def test_a_sealed_file_is_read_back_as_written(tmp_path):
    sealed(tmp_path / "a.arrows")
    assert same(tmp_path / "a.arrows", seed=0)
    assert os.listdir(tmp_path) == ["a.arrows"]


# Damage.


def test_any_flipped_bit_is_detected(tmp_path):
    path = tmp_path / "a.arrows"
    whole = sealed(path)
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << (place % 8)
        path.write_bytes(data)
        with pytest.raises(SealBroken):
            read_sealed(path)


def test_any_truncation_is_detected(tmp_path):
    path = tmp_path / "a.arrows"
    whole = sealed(path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SealBroken):
            read_sealed(path)


# Anybody can compute a seal: it detects accidents, not attacks.


def resealed(path: Path, content: bytes) -> Path:
    path.write_bytes(content + b"spgseal1" + hashlib.sha256(content).digest())
    return path


def stream(batch: pa.RecordBatch, record: bytes | None = b'{"format": %d}' % FORMAT, **options: object) -> bytes:
    schema = batch.schema if record is None else batch.schema.with_metadata({b"streampgs": record})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(pa.record_batch(batch.columns, schema=schema))
    return sink.getvalue().to_pybytes()


NUMBERS = pa.record_batch({"x": pa.array(np.zeros(1000))})


@pytest.mark.parametrize(
    "record",
    [None, b"", b"[]", b"7", b"{", b"\xff", b"[" * 100_000, b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}'],
)
def test_a_sealed_file_with_an_invalid_record_is_refused(tmp_path, record):
    with pytest.raises(SealBroken, match="its seal is intact, but"):
        read_sealed(resealed(tmp_path / "a.arrows", stream(NUMBERS, record)))


# Crashes: at every step of a write, the old file is unchanged.


class Killed(BaseException):
    """Simulates a kill: handlers of `Exception` do not catch it."""


def crash(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("step", ["os.replace", "os.fsync"])
def test_a_crash_before_the_rename_keeps_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "a.arrows"
    before = sealed(path, seed=1)
    with monkeypatch.context() as crashing:
        crashing.setattr(step, crash)
        with pytest.raises(Killed):
            sealed(path, seed=2)
    assert path.read_bytes() == before
    sealed(path, seed=3)  # the leftovers of the crash do not prevent another write
    assert same(path, seed=3)
    assert os.listdir(tmp_path) == ["a.arrows"]


def test_data_is_synced_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    """So a power failure leaves either the old file or the complete new one."""
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{fd}"))
        steps.append("sync the folder" if name == tmp_path else f"sync {name.name}")
        fsync(fd)

    def noted_replace(old: Path, new: Path) -> None:
        steps.append(f"rename {old.name} {new.name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    sealed(tmp_path / "a.arrows")
    assert steps == ["sync .a.arrows.writing", "rename .a.arrows.writing a.arrows", "sync the folder"]


# Reading a file of a run cannot run code.


def test_no_source_uses_pickle():
    forbidden = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "allow_pickle"}
    sources = list(Path(streampgs.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    for source in sources:
        tokens = tokenize.tokenize(io.BytesIO(source.read_bytes()).readline)
        names = {token.string for token in tokens if token.type == tokenize.NAME}
        assert not names & forbidden, source


def test_a_file_that_ends_before_its_size_is_not_called_damaged(tmp_path, monkeypatch):
    """It is shortened in this moment, or the system failed: an older checkpoint must not be used in its place."""
    path = tmp_path / "run.arrows"
    write_sealed(path, iter(()), pa.schema({}), {"answer": 42})
    fstat = os.fstat

    def larger(fd: int) -> SimpleNamespace:
        real = fstat(fd)
        return SimpleNamespace(st_size=real.st_size + 1, st_mode=real.st_mode)

    monkeypatch.setattr(os, "fstat", larger)
    with pytest.raises(Unreadable, match=r"run\.arrows' cannot be read"):
        read_sealed(path)
