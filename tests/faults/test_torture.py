"""The short form of scripts/torture.py: whatever happens to a run, it ends with the bits of the undisturbed one, or says
what is damaged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.torture_parts.cases import CASES, Ground
from scripts.torture_parts.damage import Damager
from scripts.torture_parts.hostile import Stranger
from scripts.torture_parts.kills import Killer, kill_processes
from scripts.torture_parts.tally import LOST, REFUSED, SURVIVED, Tally
from scripts.torture_parts.trials import Trials

Grounds = Callable[[str], Ground]
NAMES = [case.name for case in CASES]
every_kind_of_run = pytest.mark.parametrize("name", NAMES)


@every_kind_of_run
def test_a_killed_trainer_goes_on_as_if_nothing_had_been(ground: Grounds, name: str) -> None:
    tally = Tally()
    Killer(ground(name), tally, seed=7).kill(8)
    assert tally.losses == []
    assert tally.count(SURVIVED) >= 8
    assert tally.worst()


@pytest.mark.parametrize("name", ["sparse-parquet", "encoded"])
def test_a_killed_process_of_the_command_line_goes_on_as_if_nothing_had_been(ground: Grounds, name: str) -> None:
    tally = Tally()
    kill_processes(ground(name), tally, kills=3, seed=7)
    assert tally.losses == []
    assert tally.count(SURVIVED) >= 3


@every_kind_of_run
def test_a_damaged_file_costs_no_bit_or_is_named(ground: Grounds, name: str) -> None:
    tally = Tally()
    Damager(ground(name), tally, seed=7).damage(20)
    assert tally.losses == []
    assert tally.count(SURVIVED) > 0
    assert tally.count(REFUSED) > 0


@every_kind_of_run
def test_a_run_from_a_stranger_harms_nobody(ground: Grounds, name: str) -> None:
    tally = Tally()
    Stranger(ground(name), tally, seed=7).offer(16)
    assert tally.losses == []
    assert tally.count(REFUSED) > 8


@pytest.mark.parametrize("name", ["sparse-arrow", "sparse-parquet", "encoded", "growing"])
@pytest.mark.parametrize(
    "trial", ["disks", "reads", "sizes", "small_disk", "memory", "clocks", "shrinking", "two_trainers"]
)
def test_a_run_survives(ground: Grounds, name: str, trial: str) -> None:
    tally = Tally()
    getattr(Trials(ground(name), tally, seed=7), trial)(1)
    assert tally.losses == []
    if trial == "small_disk" and not tally.tried():
        pytest.skip("no file system can be mounted here")
    assert tally.tried() == 1


def test_the_script_counts_what_it_tried(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "torture.py"
    words = ["--kills", "8", "--corruptions", "8", "--strangers", "8", "--trials", "0", "--folder", tmp_path]
    done = subprocess.run([sys.executable, str(script), *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | 24 |" in done.stdout
    assert "The worst moments to be killed in:" in done.stdout
    assert "24 tried" in done.stdout.splitlines()[-1]
    assert "0 lost" in done.stdout.splitlines()[-1]


def test_a_tally_counts_what_is_lost() -> None:
    tally = Tally()
    tally.note("kill", SURVIVED)
    tally.note("kill", LOST, "other bits")
    assert (tally.tried(), tally.count(LOST), tally.losses) == (2, 1, ["kill: other bits"])
    assert "| kill | 2 | 1 | 0 | 1 |" in tally.table()
