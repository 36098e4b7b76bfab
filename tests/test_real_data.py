"""scripts/real_data.py writes the published rows, and its hashed grams are those of a plain loop."""

from __future__ import annotations

import gzip
import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "real_data.py"
SOURCE = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def real_data() -> Any:
    spec = importlib.util.spec_from_file_location("real_data", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain_grams(name: bytes) -> list[int]:
    """FNV-1a of each gram of ^name$, with the upper bits folded onto the lower 20."""
    padded = b"^" + name + b"$"
    found = set()
    for length in (3, 4, 5):
        for first in range(len(padded) - length + 1):
            hashed = 0xCBF29CE484222325
            for byte in padded[first : first + length]:
                hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
            found.add((hashed ^ (hashed >> 20)) % 2**20)
    return sorted(found)


def test_names_become_their_grams(real_data: Any) -> None:
    names = [b"a", b"ab", b"streampgs", "größer".encode(), b"aaaaaaaaaaaa", b"left-pad"]
    (batch,) = real_data.name_batches(pa.array([b"before", *names])[1:], np.ones(len(names), np.int8))
    assert batch["indices"].to_pylist() == [plain_grams(name) for name in names]
    for values in batch["values"].to_pylist():
        assert values == pytest.approx([1 / math.sqrt(len(values))] * len(values))


def test_names_have_no_scopes_and_are_unique(real_data: Any, tmp_path: Path) -> None:
    path = tmp_path / "names.txt.gz"
    path.write_bytes(gzip.compress(b'@scope/left-pad\nleft_pad\n@scope/\nzope.interface\n"quoted,\n'))
    assert real_data.read_names(path).to_pylist() == [b"left-pad", b"zope-interface", b'"quoted,']


def test_small_sets_have_the_published_rows(tmp_path: Path) -> None:
    if not SOURCE.exists():
        pytest.skip(f"needs the data sets in {SOURCE}, which are too large for the project")
    subprocess.run([sys.executable, SCRIPT, tmp_path, "a9a", "reuters", "--source", SOURCE], check=True)
    found = {}
    for folder in tmp_path.iterdir():
        tables = [pa.ipc.open_file(path).read_all() for path in sorted(folder.glob("*.arrow"))]
        labels = pa.concat_tables(tables)["label"].to_numpy()
        found[folder.name] = len(labels), round(float(np.mean(labels > 0)), 3)
    assert found == {
        "a9a": (32_561, 0.241),
        "a9a-test": (16_281, 0.236),
        "reuters": (7_907, 0.577),
        "reuters-test": (3_460, 0.536),
    }
