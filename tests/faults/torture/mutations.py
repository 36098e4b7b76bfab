"""Real files with random damage: each is read completely, or refused with an error for users. `scripts/checks/fuzz.py` reads
thousands of them."""

from __future__ import annotations

import gzip
import io
import os
import resource
import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streampgs
from streampgs.base.errors import StreampgsError
from streampgs.run.memory import peak_rss_bytes
from tests.faults.torture.forks import address_space, in_child

ROWS = 300
MEMORY = 2_000_000_000
"""Bytes of address space that a child may take, beyond what it has: more is an allocation that follows a damaged number."""
_LARGEST_PEAK = 700_000_000
_SECONDS_A_FILE = 30.0
_NUMBERS = [
    *(bound.to_bytes(4, "little") for bound in (0, 1, 0x7F, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000)),
    *(bound.to_bytes(8, "little") for bound in (1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)),
    b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x80\x80\x80\x7f", b"\x00", b"\xff", b"\x19\xfc", b"\x1c" * 40, b"[" * 99,
]  # fmt: skip


def table() -> pa.Table:
    random = np.random.default_rng(3)
    x = random.normal(size=ROWS)
    columns: dict[str, Any] = {
        "label": pa.array((x > 0).astype(np.int8)),
        "x": pa.array(x, mask=random.random(ROWS) < 0.1),
        "city": pa.array(random.choice(["Graz", "Wien", "Linz", ""], ROWS)).dictionary_encode(),
        "text": pa.array([f"some words {n} of row {n % 7}" for n in range(ROWS)]),
        "when": pa.array(random.integers(0, 2_000_000_000, ROWS), pa.timestamp("s")),
        "tags": pa.array([["a", "b"][: n % 3] for n in range(ROWS)]),
        "sizes": pa.array([{"h": n / 7, "w": None if n % 5 else n} for n in range(ROWS)]),
        "v": pa.array([[float(n), 1.0] for n in range(ROWS)], pa.list_(pa.float32(), 2)),
    }
    return pa.table(columns)


def _parquet(**options: Any) -> Callable[[], bytes]:
    def write() -> bytes:
        sink = io.BytesIO()
        pq.write_table(table(), sink, row_group_size=100, **options)
        return sink.getvalue()

    return write


def _arrow(compression: str | None, stream: bool = False) -> Callable[[], bytes]:
    def write() -> bytes:
        sink = io.BytesIO()
        new = pa.ipc.new_stream if stream else pa.ipc.new_file
        with new(sink, table().schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table(), 100)
        return sink.getvalue()

    return write


def _by_duckdb() -> bytes:
    import duckdb

    rows = table().drop_columns(["v"])
    path = Path(f"/tmp/streampgs-fuzz-{os.getpid()}.parquet")
    try:
        duckdb.from_arrow(rows).to_parquet(str(path))
        return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def _by_polars() -> bytes:
    import polars as pl

    sink = io.BytesIO()
    pl.from_arrow(table()).write_parquet(sink, row_group_size=100)  # type: ignore[union-attr]
    return sink.getvalue()


def _npz() -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, X=np.ones((ROWS, 3)), y=np.arange(ROWS) % 2)
    return sink.getvalue()


def _sparse() -> bytes:
    import scipy.sparse

    sink = io.BytesIO()
    scipy.sparse.save_npz(sink, scipy.sparse.random(ROWS, 40, 0.1, "csr", random_state=1))
    return sink.getvalue()


def _npy() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.ones((ROWS, 3)))
    return sink.getvalue()


def _csv() -> bytes:
    return b"label,x,t\n" + b"".join(b'%d,%d.5,"a ""b"" %d"\n' % (n % 2, n, n) for n in range(ROWS))


def _json() -> bytes:
    return b"".join(b'{"label": %d, "x": [%d, 2], "s": {"a": "\\u00e9"}}\n' % (n % 2, n) for n in range(ROWS))


SHARDS: dict[str, Callable[[], bytes]] = {
    "plain.parquet": _parquet(),
    "version2.parquet": _parquet(data_page_version="2.0", compression="zstd", write_page_index=True),
    "checked.parquet": _parquet(compression="none", use_dictionary=False, write_page_checksum=True),
    "duckdb.parquet": _by_duckdb,
    "polars.parquet": _by_polars,
    "plain.arrow": _arrow(None),
    "zstd.arrow": _arrow("zstd"),
    "lz4.arrow": _arrow("lz4"),
}
PACKED: dict[str, Callable[[], bytes]] = {
    "rows.parquet": _parquet(),
    "rows.arrow": _arrow("lz4"),
    "rows.arrows": _arrow(None, stream=True),
    "rows.npy": _npy,
    "rows.npz": _npz,
    "sparse.npz": _sparse,
    "rows.csv.gz": lambda: gzip.compress(_csv(), mtime=0),
    "rows.jsonl.gz": lambda: gzip.compress(_json(), mtime=0),
    "rows.csv.zst": lambda: pa.compress(_csv(), "zstd", asbytes=True),  # type: ignore[no-any-return]
}


def mutated(data: bytes, random: Random) -> bytes:
    """With one to five changes, half of them in the last or the first part: there are the numbers that others follow."""
    for _ in range(random.randint(1, 5)):
        part = random.choice([(0, len(data)), (max(0, len(data) - 1500), len(data)), (0, min(len(data), 300))])
        place = random.randint(*part)
        kind = random.randrange(6)
        if kind == 0:
            new, length = bytes([random.randrange(256)]), 1
        elif kind == 1:
            new = random.choice(_NUMBERS)
            length = len(new)
        elif kind == 2:
            new, length = b"", random.choice([1, 4, 8, 100])
        elif kind == 3:
            new, length = random.choice(_NUMBERS), 0
        elif kind == 4:
            other = random.randint(0, len(data))
            new = data[other : other + random.choice([4, 8, 64])]
            length = len(new)
        else:
            new, length = (data[place : place + 1] or b"\0")[:1], 1
            new = bytes([new[0] ^ 1 << random.randrange(8)])
        data = data[:place] + new + data[place + length :]
    return data[: random.randint(0, len(data))] if random.random() < 0.03 else data


def _use(path: Path, packed: bool) -> None:
    out = path.with_name("out")
    shutil.rmtree(out, ignore_errors=True)
    if packed:
        streampgs.pack(path, out)
    else:
        streampgs.train(path, run=out, epochs=1, sigma=1e-3, memory="60MB", progress=False, p=2, loss="logistic")


def read_mutations(name: str, make: Callable[[], bytes], packed: bool, numbers: range, folder: Path) -> Counter[str]:
    """Read files with these numbers in one child. Counts of outcomes; anything but 'read' and 'refused' is a fault, and its
    key has the number and the end of the traceback."""
    place, note = folder / name, folder / "number"

    def work() -> dict[str, int]:
        original = make()
        limit = address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        found: Counter[str] = Counter()
        for number in numbers:
            note.write_text(str(number))
            place.write_bytes(mutated(original, Random(f"{name} {number}")))
            try:
                _use(place, packed)
                found["read"] += 1
            except StreampgsError as error:
                found["refused" if error.remedy else f"{number}: no remedy: {error.found}"] += 1
            except Exception:
                found[f"{number}: {traceback.format_exc()[-900:]}"] += 1
            if peak_rss_bytes() > _LARGEST_PEAK:
                found[f"{number}: peak memory of {peak_rss_bytes():,} bytes"] += 1
                break
        return dict(found)

    ended = in_child(work, _SECONDS_A_FILE * max(4, len(numbers) / 20))
    if ended.finished:
        return Counter(ended.result)
    return Counter({f"{note.read_text()}: {ended.message[-900:]}": 1})
