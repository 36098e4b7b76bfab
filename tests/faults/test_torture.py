"""The short form of scripts/torture.py: a disturbed run ends with the bits of the undisturbed run, or with an error that
names the damaged file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.torture_parts.cases import CASES, Subject
from scripts.torture_parts.damage import Damager
from scripts.torture_parts.forgery import Forger
from scripts.torture_parts.kills import Killer, kill_processes
from scripts.torture_parts.tally import LOST, REFUSED, SURVIVED, Tally
from scripts.torture_parts.trials import Trials

Subjects = Callable[[str], Subject]
NAMES = [case.name for case in CASES]
every_kind_of_run = pytest.mark.parametrize("name", NAMES)


@every_kind_of_run
def test_a_killed_trainer_resumes_with_the_same_bits(subject: Subjects, name: str) -> None:
    tally = Tally()
    Killer(subject(name), tally, seed=7).kill(8)
    assert tally.losses == []
    assert tally.count(SURVIVED) >= 8
    assert tally.worst()


@pytest.mark.parametrize("name", ["sparse-parquet", "encoded"])
def test_a_killed_command_line_resumes_with_the_same_bits(subject: Subjects, name: str) -> None:
    tally = Tally()
    kill_processes(subject(name), tally, kills=3, seed=7)
    assert tally.losses == []
    assert tally.count(SURVIVED) >= 3


@every_kind_of_run
def test_a_damaged_file_costs_no_bit_or_is_named(subject: Subjects, name: str) -> None:
    tally = Tally()
    Damager(subject(name), tally, seed=7).damage(20)
    assert tally.losses == []
    assert tally.count(SURVIVED) > 0
    assert tally.count(REFUSED) > 0


@every_kind_of_run
def test_an_untrusted_run_does_no_harm(subject: Subjects, name: str) -> None:
    tally = Tally()
    Forger(subject(name), tally, seed=7).forge(16)
    assert tally.losses == []
    assert tally.count(REFUSED) > 8


@pytest.mark.parametrize("name", ["sparse-arrow", "sparse-parquet", "encoded", "growing"])
@pytest.mark.parametrize(
    "trial", ["disks", "reads", "sizes", "small_disk", "memory", "clocks", "shrinking", "two_trainers"]
)
def test_a_run_survives(subject: Subjects, name: str, trial: str) -> None:
    tally = Tally()
    getattr(Trials(subject(name), tally, seed=7), trial)(1)
    assert tally.losses == []
    if trial == "small_disk" and not tally.tried():
        pytest.skip("no file system can be mounted here")
    assert tally.tried() == 1


def test_the_script_counts_its_attempts(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "torture.py"
    words = ["--kills", "8", "--corruptions", "8", "--forgeries", "8", "--trials", "0", "--folder", tmp_path]
    done = subprocess.run([sys.executable, str(script), *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | 24 |" in done.stdout
    assert "The most expensive kills:" in done.stdout
    assert "24 tried" in done.stdout.splitlines()[-1]
    assert "0 lost" in done.stdout.splitlines()[-1]


def test_a_tally_counts_lost_runs() -> None:
    tally = Tally()
    tally.note("kill", SURVIVED)
    tally.note("kill", LOST, "other bits")
    assert (tally.tried(), tally.count(LOST), tally.losses) == (2, 1, ["kill: other bits"])
    assert "| kill | 2 | 1 | 0 | 1 |" in tally.table()
