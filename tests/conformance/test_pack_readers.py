"""Laws of every reader of `streampgs pack`.

A new kind of input needs a sample, tests/packing/samples/KIND.json. It has the text (or base64) of a file with a few
rows, the rows, and, for text, a bad line and the words that name it in the error.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from streampgs.base.errors import DataError
from streampgs.options.fields import options_of
from streampgs.packing import packer, source
from streampgs.packing.kinds import KINDS
from streampgs.packing.options import PackOptions
from streampgs.packing.packer import pack
from streampgs.reading import array_slices
from tests.packing.conftest import contents_of, shards_of, table_of

SAMPLES = Path(__file__).parents[1] / "packing" / "samples"
FILES = 5


@pytest.fixture(params=[*KINDS])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sample(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLES / f"{kind}.json").read_text())
    found["data"] = base64.b64decode(found["base64"]) if "base64" in found else found["text"].encode()
    found["bad_line"] = base64.b64decode(found.get("bad_base64", "")) or found.get("bad", "").encode()
    return found


def write(folder: Path, data: bytes, files: int = 1) -> list[Path]:
    paths = [folder / f"file-{number}" for number in range(files)]
    for path in paths:
        path.write_bytes(data)
    return paths


def test_a_sample_packs_to_its_rows(kind, sample, tmp_path):
    pack(write(tmp_path, sample["data"]), tmp_path / "out", kind=kind)
    assert table_of(tmp_path / "out").to_pylist() == sample["rows"]


@pytest.mark.parametrize("size", [8, 40])
def test_rows_do_not_depend_on_the_size_of_a_read(kind, sample, tmp_path, monkeypatch, size):
    if kind in ("csv", "tsv"):
        size *= 4  # a block holds a row and the header
    for module, name in ((source, "CHUNK_BYTES"), (array_slices, "SLICE_BYTES")):
        monkeypatch.setattr(module, name, size)
    pack(write(tmp_path, sample["data"]), tmp_path / "out", kind=kind)
    assert table_of(tmp_path / "out").to_pylist() == sample["rows"]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_pack_that_fails_anywhere_leaves_no_shards_and_begins_again(kind, sample, tmp_path, monkeypatch, shuffle):
    monkeypatch.setattr(packer, "share_of", lambda memory: 100)
    monkeypatch.setattr(array_slices, "SLICE_BYTES", 20)
    paths = write(tmp_path, sample["data"], FILES)
    options: dict[str, Any] = {"kind": kind, "rows_per_shard": 2, "shuffle": shuffle}
    assert pack(paths, tmp_path / "whole", **options).rows == FILES * len(sample["rows"])
    for moment in (1, FILES // 2, FILES + 1):
        seen: list[object] = []

        def fail(status, seen=seen, moment=moment):
            seen.append(status)
            if len(seen) == moment:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pack(paths, tmp_path / "out", **options, on_progress=fail)
        assert os.listdir(tmp_path / "out") == []
    pack(paths, tmp_path / "out", **options)
    assert contents_of(tmp_path / "out") == contents_of(tmp_path / "whole")


def test_a_bad_row_is_named_or_skipped_and_counted_once(kind, sample, tmp_path):
    if not sample["bad_line"]:
        pytest.skip("single rows of this kind cannot be bad")
    paths = write(tmp_path, sample["data"] + sample["bad_line"] + b"\n")
    with pytest.raises(DataError, match="file-0'.*" + sample["named"]) as error:
        pack(paths, tmp_path / "refused", kind=kind)
    assert error.value.remedy
    report = pack(paths, tmp_path / "out", kind=kind, on_bad_row="skip", rows_per_shard=1)
    assert table_of(tmp_path / "out").to_pylist() == sample["rows"]
    assert sum(report.skipped_rows.values()) == 1


def test_a_truncated_file_raises_an_error_or_has_fewer_rows(kind, sample, tmp_path):
    paths = write(tmp_path, sample["data"][: len(sample["data"]) // 2])
    try:
        pack(paths, tmp_path / "out", kind=kind)
        assert table_of(tmp_path / "out").to_pylist() != sample["rows"]
        assert KINDS[kind].is_text
    except DataError as error:
        assert "file-0" in error.found or "no rows" in error.found
        assert not shards_of(tmp_path / "out")


def test_help_names_every_kind_of_file(kind):
    assert kind in options_of(PackOptions)["kind"].text
