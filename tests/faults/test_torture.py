"""The short form of scripts/checks/torture.py: a disturbed run ends with the bits of the undisturbed run, or with an error that
names the damaged file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.torture.cases import CASES
from tests.faults.torture.kinds import KINDS, Torturer, kinds_of, named
from tests.faults.torture.tally import LOST, REFUSED, SURVIVED, Tally

Torturers = Callable[[str], Torturer]
NAMES = [case.name for case in CASES if "kills" in {kind.name for kind in kinds_of(case)}]
TRIALS = [
    (case.name, kind.name)
    for case in CASES
    for kind in kinds_of(case)
    if (kind.option == "trials" and case.name in ("encoded", "growing"))
    or (kind.option == "trials" and case.name in ("bucket-encoded",) and len(kind.places) == 1)
    or kind.option == "follows"
]


def tried(torturer: Torturer, kind: str, times: int) -> Tally:
    torturer.tally = tally = Tally()
    torturer.try_times(named(kind, KINDS), times)
    assert tally.losses == []
    return tally


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_trainer_resumes_with_the_same_bits(torturer: Torturers, name: str) -> None:
    tally = tried(torturer(name), "kills", 4)
    assert tally.count(SURVIVED) >= 4
    assert tally.worst()


@pytest.mark.parametrize("name", ["encoded", "bucket-encoded"])
def test_a_killed_command_line_resumes_with_the_same_bits(torturer: Torturers, name: str) -> None:
    assert tried(torturer(name), "processes", 3).count(SURVIVED) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_costs_no_bit_or_is_named(torturer: Torturers, name: str) -> None:
    tally = tried(torturer(name), "damage", 9)
    assert tally.count(SURVIVED) > 0
    assert tally.count(REFUSED) > 0


@pytest.mark.parametrize(("name", "trial"), TRIALS)
def test_a_run_survives(torturer: Torturers, name: str, trial: str) -> None:
    tally = tried(torturer(name), trial, 1)
    assert tally.tried() == 1


def test_the_script_counts_its_attempts(tmp_path: Path) -> None:
    words = ["--kills", "2", "--corruptions", "2", "--trials", "0", "--cases", "encoded,growing"]
    done = run_script(*words, "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The most expensive kills:" in done.stdout
    last = re.fullmatch(r"(\d+) tried in \d+ s, 0 lost", done.stdout.splitlines()[-1])
    assert last is not None
    assert int(last[1]) >= 4
    assert f"| all | {last[1]} |" in done.stdout


def test_the_script_repeats_one_attempt(tmp_path: Path) -> None:
    done = run_script("--replay", "growing/damage/3", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | 1 |" in done.stdout


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.checks.torture", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])


def test_a_tally_counts_lost_runs() -> None:
    tally = Tally(replay="python -m scripts.checks.torture --replay encoded/kills/0")
    tally.note("kill", SURVIVED)
    tally.note("kill", LOST, "other bits")
    assert (tally.tried(), tally.count(LOST)) == (2, 1)
    assert tally.losses == ["kill: other bits\n    python -m scripts.checks.torture --replay encoded/kills/0"]
    assert "| kill | 2 | 1 | 0 | 1 |" in tally.table()
