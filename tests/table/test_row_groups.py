"""Memory does not grow with the number of row groups, and a footer is read once by a command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.formats.parquet import ParquetFormat

COLUMNS, LONG_AGO = 80, 1_000_000_000
CHILD = """
import re, sys
from pathlib import Path
from streampgs.formats import parquet_footer
from streampgs.formats.registry import open_shard

parquet_footer._plain_bytes_left = 0  # compiling takes memory, too

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) / 1024

with open_shard(Path(sys.argv[1])) as few:
    for batch in few.decode(0, 100, few.schema.names):
        before = peak()
for group in range(int(sys.argv[3])):
    with open_shard(Path(sys.argv[2])) as many:
        for batch in many.decode(group, 100, many.schema.names):
            assert batch.num_rows == 2
print(peak() - before)
"""


def write(path: Path, groups: int, rows: int, columns: int) -> Path:
    values = np.random.default_rng(groups).normal(size=(columns, groups * rows)).astype(np.float32)
    values[0] = values[1] > 0
    table = pa.table({"label" if column == 0 else f"x{column}": row for column, row in enumerate(values)})
    pq.write_table(table, path, row_group_size=rows, use_dictionary=False)
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is in /proc")
def test_memory_does_not_grow_with_the_number_of_row_groups(tmp_path: Path) -> None:
    """Parsed, the footer of the larger file takes about 50 MB."""
    few, many = (write(tmp_path / f"{groups}.parquet", groups, 2, COLUMNS) for groups in (2, 500))
    done = subprocess.run([sys.executable, "-c", CHILD, few, many, "500"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 20


def test_train_evaluate_and_predict_read_each_footer_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share what is kept. pyarrow parses no footer of several row groups."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        path = write(data / f"{number}.parquet", 10 + number, 20, 4)
        os.utime(path, (LONG_AGO, LONG_AGO))
    read: list[str] = []
    parsed: list[int] = []
    read_footer, read_metadata = ParquetFormat.read_footer, pq.read_metadata

    def counted_read(self: ParquetFormat, file: Any, *more: Any) -> Any:
        read.append(file.path.name)
        return read_footer(self, file, *more)

    def counted_metadata(*more: Any, **options: Any) -> Any:
        found = read_metadata(*more, **options)
        parsed.append(found.num_row_groups)
        return found

    monkeypatch.setattr(ParquetFormat, "read_footer", counted_read)
    monkeypatch.setattr(pq, "read_metadata", counted_metadata)
    run = tmp_path / "run"
    streampgs.train(data, run=run, sigma=0.1, epochs=2)
    streampgs.evaluate(run, data)
    streampgs.predict(run, data, out=tmp_path / "out.parquet")
    assert sorted(read) == ["0.parquet", "1.parquet", "2.parquet"]
    assert set(parsed) == {1}
    assert len(parsed) <= 10 * 33
