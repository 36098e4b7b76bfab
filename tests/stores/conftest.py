from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import streampgs
from streampgs.packing.synth import write_dataset
from streampgs.stores import access, patience
from tests.stores.moto import Moto, Proxy

ROWS, SHARDS = 3_000, 6
# Small windows, so that a run has many and shards are downloaded while it trains.
SMALL: dict[str, Any] = {"memory": "60MB", "window": "500kB", "sigma": 1e-4}
MARKER = "secret-marker-of-the-tests"


def delete_cache(run: Path) -> None:
    """Delete the cache, after the downloads of earlier sessions have ended."""
    for thread in threading.enumerate():
        if thread.name.startswith(("streampgs-copies", "streampgs-download")):
            thread.join(30)
    shutil.rmtree(run / "cache")


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    server = Moto()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Credentials in the environment, without other settings of the machine."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"AK{MARKER}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"SK{MARKER}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield
    access._s3.cache_clear()  # closes its connections


@pytest.fixture
def store(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Moto:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.endpoint)
    return moto


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 1.5)
    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(access, "STALL_SECONDS", 1.0)


@pytest.fixture
def proxied(impatient: None, moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy to the store that injects faults."""
    proxy = Proxy(moto.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    yield proxy
    proxy.close()


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sparse-arrow and sparse-parquet, and their test rows in folders that end in -test."""
    base = tmp_path_factory.mktemp("tables")
    for file_format in ("arrow", "parquet"):
        write_dataset(
            base / f"sparse-{file_format}", rows=ROWS, kind="sparse", shards=SHARDS, format=file_format, test_rows=500
        )
    return base


@pytest.fixture(scope="session")
def undisturbed(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The digest after two epochs of training on the shards on disk."""
    known: dict[str, str] = {}

    def bits(file_format: str) -> str:
        if file_format not in known:
            run = tmp_path_factory.mktemp("undisturbed") / file_format
            report = streampgs.train(folders / f"sparse-{file_format}", run=run, epochs=2, **SMALL)
            known[file_format] = str(report.dual_sha256)
        return known[file_format]

    return bits
