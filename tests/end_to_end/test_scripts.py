"""The command line as a part of shell scripts: what goes to which stream, and what its JSON and exit codes say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Tables, streampgs


@pytest.fixture(scope="module")
def run(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    assert streampgs("train", tables.path("sparse", "arrow"), "--run", run, "--epochs", 1, "--quiet").code == 0
    return run


def test_results_go_to_standard_output_alone(run: Path, tables: Tables) -> None:
    for words in (["inspect", run], ["inspect", tables.path("sparse", "arrow")], ["history", run]):
        text, record = streampgs(*words), streampgs(*words, "--json")
        assert (text.code, text.err, record.code, record.err) == (0, "", 0, "")
        assert text.out.count("\n") >= 3
        json.loads(record.out)


def test_a_reader_that_stops_reading_is_not_a_traceback(run: Path) -> None:
    command = [sys.executable, "-m", "streampgs", "inspect", str(run), "--top", "500"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything is written
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141
