"""Addresses are validated, and secrets in them are never written."""

from __future__ import annotations

from pathlib import Path

import pytest

import streampgs
from streampgs.base.errors import DataError, OptionError
from streampgs.stores import patience
from streampgs.stores.access import looked_up
from streampgs.stores.addresses import absolute, is_address, parse
from tests.end_to_end.commands import streampgs as command
from tests.stores.conftest import MARKER, SMALL
from tests.stores.moto import Moto


@pytest.mark.parametrize(
    "source",
    [
        "s3://bucket",
        "s3://bucket/folder/part-?.arrow",
        "s3://bucket/day=1/user@host.arrow",
        "gs://bucket/a:b",
        "gcs://bucket/x",
        "abfs://container@account.dfs.core.windows.net/folder",
        "abfss://container/folder",
        "s3://bucket/hour=?/x[1]*.parquet",
    ],
)
def test_addresses_are_not_changed(source: str) -> None:
    assert is_address(source)
    assert absolute(source) == source


def test_paths_are_made_absolute() -> None:
    assert not is_address("data/s3/x.arrow")
    assert absolute("data/x.arrow") == str(Path.cwd() / "data" / "x.arrow")


@pytest.mark.parametrize(
    "source",
    [
        f"s3://user:{MARKER}@bucket/folder",
        f"s3://{MARKER}@bucket/folder",
        f"s3://bucket/folder?access_key=x&secret_key={MARKER}",
        f"s3://bucket/x.arrow?X-Amz-Signature={MARKER}",
        f"abfs://container:{MARKER}@account.dfs.core.windows.net/x",
        f"https://user:{MARKER}@host/x.arrow",
    ],
)
def test_addresses_with_secrets_are_refused_without_showing_them(source: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="must not hold secrets") as refused:
        parse(source)
    assert MARKER not in str(refused.value)
    (tmp_path / "x.txt").touch()
    for data, options in (((source,), ()), ((str(tmp_path),), ("--validation", source))):
        done = command("train", *data, "--run", tmp_path / "run", *options)
        assert done.code == 2, done.err
        assert MARKER not in done.out + done.err
        assert not (tmp_path / "run").exists()


def test_credentials_in_messages_of_libraries_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", f"AZ{MARKER}")
    words = f"refused:\n AZ{MARKER} of AK{MARKER}"
    assert patience.without_secrets(words) == "refused: *** of ***"


def test_unknown_schemes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"addresses of nowhere:// cannot be read"):
        streampgs.train("nowhere://bucket/x", run=tmp_path / "run", **SMALL)


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [(f"http://user:{MARKER}@127.0.0.1", "has a user or a password"), ("ftp://127.0.0.1", "does not give access")],
)
def test_an_invalid_endpoint_is_an_error(endpoint: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(OptionError, match=words) as refused:
        looked_up("s3://bucket/x")
    assert MARKER not in str(refused.value)


def test_absent_objects_are_reported_without_retries(store: Moto, tmp_path: Path) -> None:
    for source, words in (
        ("s3://tables/no-such-folder", "does not exist"),
        ("s3://no-such-bucket/folder", "does not exist"),
        ("s3://tables/no-such-*", "nothing matches"),
    ):
        with pytest.raises(DataError, match=words):
            streampgs.train(source, run=tmp_path / "run", **SMALL)


@pytest.mark.parametrize("option", ["run", "cache"])
def test_runs_and_caches_must_be_on_disk(option: str, folders: Path, tmp_path: Path) -> None:
    places = {"run": tmp_path / "run", option: Path("s3://bucket/folder")}
    with pytest.raises(OptionError, match=f"{option}='s3:/bucket/folder' is not a folder on this disk"):
        streampgs.train(folders / "sparse-arrow", **places, **SMALL)
