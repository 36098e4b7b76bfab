"""The contract of the command line: options, JSON keys, streams and exit codes."""

from __future__ import annotations

import json
import re
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
from streampgs.options.fields import HEADINGS, Duration, Flag, Number, options_for
from streampgs.run import commands
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


def test_choices_are_printed_before_the_first_step(tables: Tables, tmp_path: Path) -> None:
    done = streampgs("train", tables.path("sparse", "parquet"), "--run", tmp_path / "run", "--epochs", 1)
    for word in ("window", "blocks", "cache", "memory", "sigma", "t0", "seed"):
        assert word in done.err
    took = re.search(r"; this call took (.*) s, (.*) s of it training at .* rows/s", done.err)
    assert took is not None
    assert 0.0 <= float(took[2]) <= float(took[1])
    assert done.out == ""


def test_resume_prints_the_same_keys_as_train(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    done = streampgs("resume", tmp_path / "copy", "--rows", 2 * ROWS + 10, "--json")
    assert done.json.keys() >= TRAIN_KEYS
    assert done.json["rows"] == 2 * ROWS + 10


def test_evaluate_and_inspect(run: Path, tables: Tables) -> None:
    done = streampgs("evaluate", run, tables.test_path("sparse"), "--json")
    assert done.json.keys() >= {"rows", "loss", "accuracy", "auc"}
    done = streampgs("inspect", run, "--json")
    assert done.json.keys() >= {"options", "t", "dual_sha256", "nonzeros", "catalog"}
    assert done.json["catalog"]["rows"] == ROWS
    done = streampgs("inspect", tables.path("sparse", "parquet"), "--json")
    assert done.json["clustering"] < 0.2


def test_inspect_shows_the_parameter_of_the_loss_that_was_found(tables: Tables, tmp_path: Path) -> None:
    words = ["--run", tmp_path / "r", "--loss", "huber", "--sigma", 0.01, "--epochs", 1]
    started = streampgs("train", tables.path("regression", "arrow"), *words)
    assert ", return suffix" in started.err
    assert streampgs("inspect", tmp_path / "r", "--json").json["settings"]["huber_width"] > 0.0


def test_predict(run: Path, tables: Tables, tmp_path: Path) -> None:
    done = streampgs("predict", run, tables.test_path("sparse"), "--out", tmp_path / "p.parquet")
    assert (done.code, done.out) == (0, "")
    assert pq.read_table(tmp_path / "p.parquet").num_rows == 1_000


def test_inspect_warns_of_sorted_shards(tmp_path: Path) -> None:
    streampgs("synth", tmp_path / "table", "--rows", 40_000, "--sorted", "--format", "parquet")
    done = streampgs("inspect", tmp_path / "table", "--memory", "48MB", "--json")
    assert done.json["clustering"] > 0.9
    assert done.json["warnings"]
    assert "warning" in done.err


def test_metrics_are_json_lines(run: Path) -> None:
    events = [json.loads(line)["event"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert events[0] == "started"
    assert events[-1] == "stopped"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["train", "nowhere/", "--run", "r"], 1, "does not exist"),
        (["train", "{table}", "--run", "r", "--p", "3"], 2, "--p"),
        (["train", "{table}", "--run", "r", "--sigma", "-1"], 2, "--sigma"),
        (["train", "{table}", "--run", "r", "--memory", "10MB"], 2, "--memory"),
        (["train", "{table}", "--run", "r", "--epochs", "0"], 2, "--epochs"),
        (["train", "{table}", "--run", "r", "--memory", "much"], 2, "512MB"),
        (["train", "{table}", "--run", "r", "--label", "y"], 1, "--label"),
        (["train", "{table}", "--run", "r", "--losss", "hinge"], 2, "--loss"),
        (["train", "{table}"], 2, "--run"),
        (["resume", "nowhere"], 1, "no run"),
        (["evaluate", "nowhere", "{table}"], 1, "no run"),
        (["predict", "{run}", "{table}", "--out", "p.xlsx"], 2, ".parquet"),
        (["synth", "{table}", "--rows", "10"], 2, "empty"),
    ],
)
def test_errors_say_what_to_do(words: list[str], code: int, said: str, run: Path, tables: Tables) -> None:
    places = {"{table}": str(tables.path("sparse", "arrow")), "{run}": str(run)}
    done = streampgs(*(places.get(word, word) for word in words))
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    if words[0] != "predict":
        failed = streampgs(*(places.get(word, word) for word in words), "--json")
        assert (failed.code, failed.json["exit_code"]) == (code, code)
        assert said in failed.json["error"] + failed.json["remedy"]
        assert (failed.json["kind"] == "option") == (code == 2)


def test_a_bad_row_is_named_or_skipped_and_counted(tables: Tables, tmp_path: Path) -> None:
    data = tmp_path / "table"
    shutil.copytree(tables.path("sparse", "parquet"), data)
    table = pq.read_table(data / "part-00002.parquet")
    labels = table["label"].to_pylist()
    labels[17] = 5
    pq.write_table(table.set_column(0, "label", [labels]), data / "part-00002.parquet")
    done = streampgs("train", data, "--run", tmp_path / "strict", "--epochs", 1)
    assert done.code == 1
    for word in ("part-00002.parquet", "row 17", "5.0", "--positive", "--on-bad-row skip"):
        assert word in done.err
    done = streampgs("train", data, "--run", tmp_path / "run", "--epochs", 2, "--on-bad-row", "skip", "--json")
    assert done.json["rows"] == 2 * (ROWS - 1)
    assert done.json["skipped_rows"] == {"label no class": 1}


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


def test_targets_end_training(tables: Tables, tmp_path: Path) -> None:
    done = streampgs(
        "train", tables.path("dense", "arrow"), "--run", tmp_path / "a", "--target-accuracy", 0.7, "--json"
    )
    assert done.json["stopped_by"] == "target-accuracy"
    assert done.json["progressive_accuracy"] >= 0.7
    done = streampgs(
        "train", tables.path("dense", "arrow"), "--run", tmp_path / "g", "--target-gap", 0.05, "--sigma", 0.01, "--json"
    )
    assert done.json["stopped_by"] == "target-gap"
    assert done.json["gap"] <= 0.05


def test_seconds_end_training(tables: Tables, tmp_path: Path) -> None:
    done = streampgs("train", tables.path("dense", "arrow"), "--run", tmp_path / "run", "--seconds", "0.3s", "--json")
    assert done.json["stopped_by"] == "seconds"


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


def test_an_index_beyond_all_memory_is_refused_with_a_remedy(tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.table({"label": [1, -1, 1], "indices": [[1, 2], [3, 2**31 - 3], [4]]})
    pq.write_table(table, tmp_path / "stray.parquet")
    done = streampgs("train", tmp_path / "stray.parquet", "--run", tmp_path / "a")
    assert done.code == 1
    assert "2,147,483,645" in done.err
    assert "--feature-count" in done.err
    done = streampgs("train", tmp_path / "stray.parquet", "--run", tmp_path / "b", "--feature-count", 10)
    assert "row 1 " in done.err
    assert "2147483645" in done.err


PYTHON = {"train": TRAIN_OPTIONS, "resume": RESUME_OPTIONS}
ONLY_FOR_COMMANDS = {"run", "json", "quiet", "no_intercept"}


def declared(command: str) -> dict[str, DeclaredOption]:
    return {str(each.name): each for each in cli.commands[command].params if isinstance(each, DeclaredOption)}


@pytest.mark.parametrize("command", PYTHON)
def test_the_python_api_has_the_options_of_the_command_line(command: str) -> None:
    assert set(declared(command)) - ONLY_FOR_COMMANDS == set(options_for(command, PYTHON[command]))
    with pytest.raises(OptionError, match="unknown option 'epoch'"):
        getattr(api, command)("data", run="run", epoch=3) if command == "train" else api.resume("run", epoch=3)


def given_to_train(words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The options that a run would be started with."""
    given: dict[str, object] = {}

    def train(data: object, run: Path, options: dict[str, object], *others: object) -> None:
        given.update(options)
        raise OptionError("stop here")

    monkeypatch.setattr(commands, "train", train)
    with pytest.raises(OptionError, match="stop here"):
        cli.main(words, standalone_mode=False)
    return given


def test_options_reach_a_run_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "train a b --run r --loss hinge,logistic --p auto --label x --label y --sigma -1 --memory 2GB --no-cache --poll 2m"
    assert given_to_train(words.split(), monkeypatch) == {
        "loss": ("hinge", "logistic"),
        "p": ("auto",),
        "label": ("x", "y"),
        "sigma": (-1.0,),
        "memory": 2 * 10**9,
        "no_cache": True,
        "poll_seconds": 120.0,
    }


def test_a_zero_reaches_a_run_like_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {
        name: option.opts[0]
        for name, option in declared("train").items()
        if type(option.declared.value) in (Number, Duration)
    }
    assert {"intercept", "replay", "epochs"} <= numbers.keys()
    words = [word for flag in numbers.values() for word in (flag, "0")]
    given = given_to_train(["train", "a", "--run", "r", *words], monkeypatch)
    assert {name: given.get(name) for name in numbers} == dict.fromkeys(numbers, 0)


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
