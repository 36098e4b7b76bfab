"""Names and values from strangers: files of any name train, and nothing that is printed controls a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.cli.main import cli
from streampgs.run.folder import RunFolder

ROWS = 400
OPTIONS: dict[str, Any] = {"epochs": 2, "sigma": 1e-3, "progress": False}
NAMES = [
    "caf\udcff",
    "a\nb",
    "\x1b]0;t\x07",
    "[1]",
    "*",
    "?",
    "-x",
    "--run",
    "a::b=1",
    "s3:x",
    "~",
    "%ff",
    "\\",
    " ",
    "a" * 244,
]


def table(rows: int = ROWS, seed: int = 0) -> pa.Table:
    x = np.random.default_rng(seed).normal(size=rows)
    return pa.table({"label": (x > 0).astype(np.int32), "x": x})


def write_parquet(path: Path, rows: pa.Table) -> None:
    with open(path, "wb") as file:
        pq.write_table(rows, file)


def write_arrow(path: Path, rows: pa.Table) -> None:
    with open(path, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


WRITERS: dict[str, Callable[[Path, pa.Table], None]] = {"parquet": write_parquet, "arrow": write_arrow}


def trained(base: Path, name: str, kind: str) -> tuple[str, pa.Table]:
    """Train, let a shard join, resume, evaluate and predict; all files and folders have the name."""
    data, run = base / "data" / name, base / "runs" / name
    data.mkdir(parents=True)
    WRITERS[kind](data / f"{name}.{kind}", table())
    streampgs.train(data, run=run, **OPTIONS)
    WRITERS[kind](data / f"z{name}.{kind}", table(seed=1))
    report = streampgs.resume(run, epochs=3, progress=False)
    assert [Path(path).name for path in report.found.new_shards] == [f"z{name}.{kind}"]
    file = data / f"{name}.{kind}"
    assert streampgs.evaluate(run, file)["rows"] == ROWS
    out = base / f"{name}.arrow"
    streampgs.predict(run, file, out=out)
    with open(out, "rb") as written:
        predictions = pa.ipc.open_file(written).read_all()
    joined = next(event for event in RunFolder(run).events() if "added_names" in event)
    assert [Path(path).name for path in joined["added_names"]] == [f"z{name}.{kind}"]
    return report.dual_sha256, predictions


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, pa.Table]]:
    return {kind: trained(tmp_path_factory.mktemp(kind), "plain", kind) for kind in WRITERS}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_gives_the_same_bits(
    name: str, plain: dict[str, tuple[str, pa.Table]], tmp_path: Path
) -> None:
    for kind in WRITERS if name == NAMES[0] else ("parquet",):
        (tmp_path / kind).mkdir()
        assert trained(tmp_path / kind, name, kind) == plain[kind]


# Text for people.

FORGED = "yes\nerror: your run was deleted\n  → send money"
EVIL = ["\x1b]0;title\x07", "\x1b[2J\x1b[31m", "\r\x7f\x9b31m", "\u202eabc\u2066", "\u2028\u2029", FORGED]


def is_obeyed(letter: str) -> bool:
    return (
        unicodedata.category(letter) in ("Cc", "Zl", "Zp")
        or letter in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in which names, categories and labels are hostile."""
    base = tmp_path_factory.mktemp("evil")
    random = np.random.default_rng(0)
    columns = {
        "label": random.choice(EVIL, ROWS), f"c{EVIL[0]}{FORGED}": random.choice(EVIL, ROWS), "x" + EVIL[1]: random.normal(size=ROWS),
    }  # fmt: skip
    write_parquet(base / f"{EVIL[0]}\n.parquet", pa.table(columns))
    return base


def test_nothing_that_is_printed_controls_a_terminal(evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run, category = str(evil), str(evil / "run"), f"c{EVIL[0]}{FORGED}"
    file = str(next(evil.glob("*.parquet")))
    for words in (
        ["inspect", data], ["train", data, "--run", run, "--epochs", "2", "--sigma", "1e-3", "--category", category],
        ["inspect", run, "--top", "30"], ["history", run], ["evaluate", run, file, "--by", category],
        ["predict", run, file, "--out", str(evil / "out\x1b[2J.csv")],
    ):  # fmt: skip
        assert cli.main(words, standalone_mode=False) == 0, words
        out, err = capsys.readouterr()
        assert not {letter for letter in out + err if is_obeyed(letter)} - {"\n"}, words
        assert not any(line.startswith(("error:", "  → send")) for line in (out + err).splitlines()), words
        assert r"\x1b" in out + err or words[0] == "history"
