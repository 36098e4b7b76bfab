"""The shuffle is a uniform permutation that depends only on the seed, and its memory is bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import spearmanr

from streampgs.packing import packer, shuffle
from streampgs.packing.packer import pack
from tests.packing.conftest import contents_of, table_of


@pytest.fixture
def sorted_rows(tmp_path) -> Path:
    path = tmp_path / "rows.arrow"
    rows = np.arange(5000)
    words = pa.array([f"w{i}" * (i % 5) for i in rows.tolist()])
    table = pa.table({"i": rows, "word": words, "tags": pa.array([[i] * (i % 3) for i in rows.tolist()])})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return path


def order_of(out: Path) -> np.ndarray:
    return table_of(out)["i"].to_numpy()


def test_a_shuffle_is_a_well_mixed_permutation_of_whole_rows(tmp_path, sorted_rows, monkeypatch):
    monkeypatch.setattr(packer, "share_of", lambda memory: 20_000)  # about ten sorted runs
    report = pack(sorted_rows, tmp_path / "out", shuffle=True, rows_per_shard=700)
    table = table_of(tmp_path / "out")
    order = order_of(tmp_path / "out")
    assert report.rows == 5000
    assert np.array_equal(np.sort(order), np.arange(5000))
    assert table["word"].to_pylist() == [f"w{i}" * (i % 5) for i in order.tolist()]
    assert table["tags"].to_pylist() == [[i] * (i % 3) for i in order.tolist()]
    assert abs(spearmanr(order, np.arange(5000)).statistic) < 0.04
    assert (np.abs(np.diff(order)) == 1).sum() < 15


def test_the_order_depends_on_the_seed_but_not_on_the_memory(tmp_path, sorted_rows, monkeypatch):
    orders = []
    for share in (8_000, 50_000, 1 << 30):
        monkeypatch.setattr(packer, "share_of", lambda memory, share=share: share)
        pack(sorted_rows, tmp_path / f"out{share}", shuffle=True, seed=3)
        orders.append(order_of(tmp_path / f"out{share}"))
    assert np.array_equal(orders[0], orders[1])
    assert np.array_equal(orders[0], orders[2])
    pack(sorted_rows, tmp_path / "other", shuffle=True, seed=4)
    assert abs(spearmanr(orders[0], order_of(tmp_path / "other")).statistic) < 0.04
    pack(sorted_rows, tmp_path / "again", shuffle=True, seed=3)
    assert contents_of(tmp_path / "again") == contents_of(tmp_path / f"out{1 << 30}")


def order_of_keys(seed: int, rows: int, cut: int, folder: Path) -> tuple[int, ...]:
    numbers = pa.record_batch({"i": np.arange(rows)})
    parts = (part for part in (numbers.slice(0, cut), numbers.slice(cut)) if part.num_rows)
    return tuple(row for batch in shuffle.shuffled(parts, folder, seed, 1 << 20) for row in batch["i"].to_pylist())


def test_every_order_is_equally_likely(assert_uniform, tmp_path):
    orders = [order_of_keys(seed, 4, 0, tmp_path) for seed in range(2400)]
    counts = np.unique(np.array(orders), axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert_uniform(counts)


def test_the_order_does_not_depend_on_batches(tmp_path):
    assert order_of_keys(1, 30, 0, tmp_path) == order_of_keys(1, 30, 10, tmp_path)


MEASURED = """
import sys
import numpy as np
import pyarrow as pa
from streampgs.packing import packer, shuffle
from streampgs.run.memory import peak_rss_bytes

def rows():
    for i in range(300):
        yield pa.record_batch({"i": np.arange(i * 1000, (i + 1) * 1000), "x": pa.FixedSizeListArray.from_arrays(pa.array(np.full(100_000, i, np.float64)), 100)})

out, shuffle = sys.argv[1:]
batches = rows()
first = next(batches)
with pa.ipc.new_file(out + ".arrow", first.schema) as writer:
    writer.write_batch(first)
    for batch in batches:
        writer.write_batch(batch)
before = peak_rss_bytes()
report = packer.pack(out + ".arrow", out, shuffle=bool(shuffle), memory="64MB")
print(peak_rss_bytes() - before, report.rows)
"""


@pytest.mark.parametrize("shuffled", ["", "shuffle"])
def test_memory_is_bounded(tmp_path, shuffled):
    """240 MB of rows are packed within 64 MB, plus memory that Arrow does not return to the system."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "out"), shuffled]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    grown, rows = map(int, done.stdout.split())
    assert rows == 300_000
    assert grown < 100e6
