from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from streampgs.packing.synth import write_dataset

ROWS = 6_000


@dataclass(frozen=True)
class Tables:
    """Small datasets of every kind and format, made once; tests copy what they change."""

    base: Path

    def path(self, kind: str, file_format: str) -> Path:
        return self.base / f"{kind}-{file_format}"

    def test_path(self, kind: str) -> Path:
        return self.base / f"{kind}-arrow-test"


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    base = tmp_path_factory.mktemp("tables")
    for kind in ("sparse", "dense", "regression"):
        for file_format in ("arrow", "parquet"):
            write_dataset(
                base / f"{kind}-{file_format}", rows=ROWS, kind=kind, shards=6, format=file_format, test_rows=1_000
            )
    return Tables(base)
