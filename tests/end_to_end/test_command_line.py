"""The contract of the command line: options, JSON keys, streams and exit codes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import streampgs.python.api as api
from streampgs.base.errors import OptionError
from streampgs.cli.main import cli
from streampgs.cli.options import DeclaredOption
from streampgs.options.commands import RESUME_OPTIONS, TRAIN_OPTIONS
from streampgs.options.fields import HEADINGS, Flag, options_for
from tests.end_to_end.commands import streampgs
from tests.end_to_end.conftest import ROWS, Tables

TRAIN_KEYS = {
    "t", "rows", "epochs", "seconds_training", "seconds_reading_wait", "rows_per_second", "progressive_loss",
    "progressive_accuracy", "gap", "dual_sha256", "checkpoint", "stopped_by", "peak_rss_mb",
    "seconds_this_call",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    done = streampgs("train", tables.path("sparse", "arrow"), "--run", run, "--epochs", 2, "--json")
    assert done.code == 0, done.err
    assert done.json.keys() >= TRAIN_KEYS
    assert done.json["rows"] == 2 * ROWS
    assert done.json["stopped_by"] == "epochs"
    return run


def test_a_run_that_stopped_at_a_bad_row_can_resume_and_skip_it(tables: Tables, tmp_path: Path) -> None:
    data = tmp_path / "table"
    shutil.copytree(tables.path("dense", "parquet"), data)
    table = pq.read_table(data / "part-00002.parquet")
    labels = table["label"].to_pylist()
    labels[3] = None
    pq.write_table(table.set_column(0, "label", [labels]), data / "part-00002.parquet")
    assert streampgs("train", data, "--run", tmp_path / "run", "--epochs", 1).code == 1
    done = streampgs("resume", tmp_path / "run", "--on-bad-row", "skip", "--json")
    assert done.json["rows"] == ROWS - 1


def test_the_help_of_each_command_explains_and_gives_an_example() -> None:
    for command in cli.commands:
        done = streampgs(command, "--help")
        assert done.code == 0
        assert len(done.out.splitlines()) > 8
        assert f"streampgs {command}" in (cli.commands[command].help or ""), command


def test_help_imports_no_heavy_package() -> None:
    code = (
        "import sys, streampgs.cli.main; "
        "print([name for name in ('numba', 'pyarrow', 'scipy', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_command_imports_pandas(tables: Tables, tmp_path: Path) -> None:
    program = (
        "import atexit, sys; atexit.register(lambda: print('pandas' in sys.modules)); "
        "from streampgs.cli import main; main()"
    )
    words = ["train", tables.path("dense", "parquet"), "--run", tmp_path / "run", "--epochs", "1", "--sigma", "1e-3"]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False"), done.stderr


def test_memory_stays_within_budget_and_forecast(tmp_path: Path) -> None:
    """The table has ten times the memory of the windows. The peak is the budget, the model and the process."""
    streampgs("synth", tmp_path / "table", "--rows", 800_000)
    budget = 48
    done = streampgs(
        "train", tmp_path / "table", "--run", tmp_path / "run", "--epochs", 1, "--memory", f"{budget}MB", "--json"
    )
    model = 47_237 * 40 / 1e6
    assert sum(path.stat().st_size for path in (tmp_path / "table").iterdir()) > 10 * budget * 1e6
    assert done.json["peak_rss_mb"] <= budget + model + 300
    assert done.json["peak_rss_mb"] == pytest.approx(done.json["forecast_rss_mb"], rel=0.2)


PYTHON = {"train": TRAIN_OPTIONS, "resume": RESUME_OPTIONS}
ONLY_FOR_COMMANDS = {"run", "json", "quiet", "no_intercept"}


def declared(command: str) -> dict[str, DeclaredOption]:
    return {str(each.name): each for each in cli.commands[command].params if isinstance(each, DeclaredOption)}


@pytest.mark.parametrize("command", PYTHON)
def test_the_python_api_has_the_options_of_the_command_line(command: str) -> None:
    assert set(declared(command)) - ONLY_FOR_COMMANDS == set(options_for(command, PYTHON[command]))
    with pytest.raises(OptionError, match="unknown option 'epoch'"):
        getattr(api, command)("data", run="run", epoch=3) if command == "train" else api.resume("run", epoch=3)


def test_every_option_has_a_heading_a_help_text_and_a_name_for_its_value() -> None:
    for name, command in cli.commands.items():
        for option in declared(name).values():
            facts = option.declared
            assert facts.heading in HEADINGS
            assert facts.text.endswith("."), f"{name} {facts.flag}"
            assert bool(facts.value.metavar) != isinstance(facts.value, Flag), f"{name} {facts.flag}"
        assert len(declared(name)) == sum(
            each.param_type_name == "option" and each.opts != ["--help-all"] for each in command.params
        )
