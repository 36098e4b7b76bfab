"""Small runs of every kind, with enough windows, checkpoints and decoded groups for a kill to interrupt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streampgs.packing.synth import write_dataset
from tests.end_to_end.mixed_tables import mixed, write_shards

DISK, BUCKET, FOLLOWED, FOLLOWED_BUCKET = "disk", "bucket", "followed", "followed bucket"
_SMALL = {"memory": "60MB", "window": "60kB"}
EPOCHS = 3


@dataclass(frozen=True)
class Case:
    """A table, the place of its rows, and the options of runs on it."""

    name: str
    make: Callable[[Path], None]
    """Writes the shards into a folder, in the order of their names."""
    options: dict[str, Any] = field(default_factory=dict)
    rows: int = 1500
    rows_before_more: int = 0
    """The last shard arrives after this many rows; 0: it is there from the start. After whole epochs an update follows."""
    place: str = DISK

    @property
    def needs_store(self) -> bool:
        return self.place in (BUCKET, FOLLOWED_BUCKET)

    @property
    def all_options(self) -> dict[str, Any]:
        return {**_SMALL, **self.options}

    def words(self) -> list[str]:
        """The options of `train` on the command line."""
        words = []
        for name, value in self.all_options.items():
            words += [
                f"--{name.replace('_', '-')}",
                ",".join(map(str, value)) if isinstance(value, tuple) else str(value),
            ]
        return words


def _synthetic(kind: str, file_format: str, rows: int = 1500, features: int = 60) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write_dataset(folder, rows=rows, kind=kind, shards=5, format=file_format, features=features)

    return make


def _mixed(folder: Path) -> None:
    write_shards(mixed(1500), folder, shards=5, group_rows=100)


def _no_shards(folder: Path) -> None:
    """Each attempt makes its own."""


_SIGMA = {"sigma": 1e-3}
CASES = (
    Case("sparse-arrow", _synthetic("sparse", "arrow"), _SIGMA),
    Case("sparse-parquet", _synthetic("sparse", "parquet"), _SIGMA),
    Case("dense-parquet-p", _synthetic("dense", "parquet", features=20), {**_SIGMA, "p": 1.5, "batch": 3}),
    Case("encoded", _mixed, {**_SIGMA, "hash_bits": 8}),
    Case("contest", _synthetic("sparse", "arrow"), {"sigma": (1e-4, 1e-2)}),
    Case("threads", _synthetic("sparse", "arrow", rows=3000), {**_SIGMA, "threads": 2}, rows=3000),
    Case("growing", _synthetic("sparse", "parquet"), _SIGMA, rows_before_more=1000),
    Case("growing-arrow", _synthetic("dense", "arrow", features=20), _SIGMA, rows_before_more=1700),
    Case("nightly", _mixed, {**_SIGMA, "hash_bits": 8}, rows_before_more=2 * 1200),
    Case("bucket-arrow", _synthetic("sparse", "arrow"), _SIGMA, place=BUCKET),
    Case("bucket-encoded", _mixed, {**_SIGMA, "hash_bits": 8}, rows_before_more=1300, place=BUCKET),
    Case("followed", _no_shards, place=FOLLOWED),
    Case("followed-bucket", _no_shards, place=FOLLOWED_BUCKET),
)
