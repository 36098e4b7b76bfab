"""Training on shards in a bucket gives the same bits as on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import streampgs
from streampgs.model.evaluation import evaluate
from streampgs.model.prediction import predict
from streampgs.packing.synth import write_dataset
from streampgs.run.report import Observer, StopRequest
from tests.end_to_end.commands import streampgs as command
from tests.stores.conftest import MARKER, ROWS, SMALL
from tests.stores.moto import Moto

FORMATS = ["arrow", "parquet"]


@pytest.mark.parametrize("file_format", FORMATS)
def test_training_from_a_bucket_gives_the_same_bits_as_from_disk(
    file_format: str, folders: Path, store: Moto, tmp_path: Path, undisturbed: Callable[[str], str]
) -> None:
    address = store.upload(folders / f"sparse-{file_format}", f"bits/{file_format}")
    report = streampgs.train(address, run=tmp_path / "run", epochs=2, **SMALL)
    assert report.rows == 2 * ROWS
    assert report.dual_sha256 == undisturbed(file_format)


def test_following_a_bucket_trains_on_new_objects(folders: Path, store: Moto, tmp_path: Path) -> None:
    source = tmp_path / "table"
    shutil.copytree(folders / "sparse-arrow", source)
    held_back = sorted(source.iterdir())[-1]
    held_back.rename(tmp_path / held_back.name)
    address = store.upload(source, "followed")
    stop = StopRequest()
    rows_before = []

    class Writer(Observer):
        def saved(self, checkpoint: str) -> None:
            rows = int(Path(checkpoint).stem.split("-")[1])
            if not rows_before and rows > 0:
                rows_before.append(rows)
                later = tmp_path / "later"
                later.mkdir()
                shutil.copy(tmp_path / held_back.name, later)
                store.upload(later, "followed")
            elif rows > ROWS:  # after the update
                stop.ask("SIGTERM")

    report = streampgs.train(
        address, run=tmp_path / "run", epochs=1, follow=True, poll_seconds=0.1, observer=Writer(), stop=stop, **SMALL
    )
    assert report.stopped_by == "SIGTERM"
    assert report.update is not None
    assert not report.update["going_on"]
    assert rows_before[0] < ROWS


def test_changed_and_missing_objects_are_refused_and_named(folders: Path, store: Moto, tmp_path: Path) -> None:
    address = store.upload(folders / "sparse-arrow", "changing")
    run = tmp_path / "run"
    streampgs.train(address, run=run, rows=500, **SMALL)
    changed = bytearray((folders / "sparse-arrow" / "part-00002.arrow").read_bytes())
    changed[len(changed) // 2] ^= 1
    store.put("changing/part-00002.arrow", bytes(changed))
    store.delete("changing/part-00004.arrow")
    with pytest.raises(streampgs.StreampgsError) as refused:
        streampgs.resume(run, rows=1_000)
    assert "2 of 6 shards have changed" in str(refused.value)
    assert f"'{address}/part-00002.arrow' was replaced" in str(refused.value)
    assert f"'{address}/part-00004.arrow' is missing" in str(refused.value)


class WatchCache(Observer):
    """Records the largest size of the cache."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.largest = 0

    def saved(self, checkpoint: str) -> None:
        size = 0
        for file in self.cache.rglob("*.shard"):
            with suppress(FileNotFoundError):  # deleted after it was listed
                size += file.stat().st_size
        self.largest = max(self.largest, size)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_small_cache_changes_no_bit_and_is_never_exceeded(file_format: str, store: Moto, tmp_path: Path) -> None:
    """The cache holds five of 30 shards, so each is downloaded repeatedly."""
    folder = tmp_path / "table"
    write_dataset(folder, rows=2_400, kind="sparse", shards=30, format=file_format)
    address = store.upload(folder, f"limited/{file_format}")
    sizes = [file.stat().st_size for file in folder.iterdir()]
    small = {**SMALL, "window": "100kB", "epochs": 2, "checkpoint_seconds": 0.0}
    # In both runs, the cache is too small for decoded blocks.
    here = streampgs.train(folder, run=tmp_path / "here", no_cache=True, **small)
    run, limit = tmp_path / "there", 5 * max(sizes)
    observer = WatchCache(run / "cache")
    there = streampgs.train(address, run=run, cache_limit=limit, observer=observer, **small)
    assert there.dual_sha256 == here.dual_sha256
    assert max(sizes) < observer.largest <= limit


def test_commands_accept_addresses_and_remove_their_temporary_files(
    folders: Path, store: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands are separate processes, which must end without output of the store's library."""
    address = store.upload(folders / "sparse-parquet", "commands")
    test = store.upload(folders / "sparse-parquet-test", "commands-test")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    run = tmp_path / "run"
    words = ("--epochs", 1, "--validation", test, "--memory", "60MB", "--window", "500kB")
    trained = command("train", f"{address}/part-*", "--run", run, *words)
    assert trained.code == 0, trained.err
    model = streampgs.Model.load(run)
    evaluated = command("evaluate", run, test, "--by", "label", "--json")
    assert evaluated.code == 0, evaluated.err
    assert evaluated.json == evaluate(model, [str(folders / "sparse-parquet-test")], by="label")
    predicted = command("predict", run, test, "--out", tmp_path / "remote.csv", "--keep", "label")
    assert predicted.code == 0, predicted.err
    predict(model, [str(folders / "sparse-parquet-test")], tmp_path / "local.csv", keep=("label",))
    assert (tmp_path / "remote.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
    assert list((tmp_path / "temporary").iterdir()) == []
    for finished in (trained, evaluated, predicted):
        assert MARKER not in finished.out + finished.err
        assert "Traceback" not in finished.err
        assert "warning" not in finished.err.lower()
    for file in run.rglob("*"):
        assert not file.is_file() or MARKER.encode() not in file.read_bytes(), file
    assert streampgs.train(f"{address}/part-*", run=tmp_path / "again", rows=100, **SMALL).rows == 100
