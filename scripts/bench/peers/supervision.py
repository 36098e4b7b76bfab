"""Runs the peers one after the other, each in its own process; searches their settings; repeats."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scripts.bench.peers.data import Dataset, files_in, text
from scripts.bench.peers.peers import CONVERGED, PEERS, Peer
from scripts.bench.peers.trial import Task

_GRACE_SECONDS = 240.0
_SEARCH_SECONDS = 7200.0
_BELOW_CONVERGED = 0.005
_READ_BYTES = 1 << 22

Outcome = dict[str, Any]
"""The result of a trial, or `failed` with the reason."""


class Supervisor:
    def __init__(self, dataset: Dataset, folder: Path, target: float | None, seconds_limit: float) -> None:
        self.dataset = dataset
        self.folder = folder
        self.seconds_limit = seconds_limit
        self.target = target if target is not None else self._converged() - _BELOW_CONVERGED

    def settings(self, name: str) -> dict[str, Any]:
        """The setting of the peer's grid that reaches the target first; searched once."""
        peer, facts = PEERS[name], self.dataset.notebook.facts
        key = f"{name} to {self.target:.4f}"
        if len(peer.grid) == 1:
            return peer.grid[0]
        if key not in facts:
            trials: list[dict[str, Any]] = []
            for settings in peer.grid:
                _say(f"{name}: trying {_words(settings)}")
                fastest = min((trial["seconds"] for trial in trials if trial["reached"]), default=math.inf)
                outcome = self.run(name, settings, self.seconds_limit / 2, fastest)
                trials.append({"settings": settings, **summary(outcome, self.target, self.dataset.rows)})
            trials.sort(key=_goodness)
            if "failed" in trials[0]:
                return peer.grid[0]
            self.dataset.notebook.note(key, trials)
        chosen: dict[str, Any] = facts[key][0]["settings"]
        return chosen

    def run(
        self,
        name: str,
        settings: dict[str, Any],
        seconds_limit: float | None = None,
        seconds_of_use: float = math.inf,
    ) -> Outcome:
        task = self._task(name, PEERS[name], settings, self.target)
        task = replace(task, seconds_limit=seconds_limit or task.seconds_limit, seconds_of_use=seconds_of_use)
        _read_all(Path(place) for place in (task.parquet, task.arrow, task.test, task.text) if place)
        load = os.getloadavg()[0]
        return {"load_average": load, **_in_own_process(task, task.seconds_limit + _GRACE_SECONDS)}

    def _converged(self) -> float:
        facts = self.dataset.notebook.facts
        if "converged" not in facts:
            _say("converged models: LIBLINEAR over a few C, which takes minutes and is done once")
            outcome = _in_own_process(self._task("converged", CONVERGED, {}, target=1.0), _SEARCH_SECONDS)
            if "failed" in outcome:
                raise SystemExit(f"no target, as converged models were not found: {outcome['failed']}; give --target")
            self.dataset.notebook.note("converged", outcome["notes"])
        return max(float(accuracy) for by_c in facts["converged"].values() for accuracy in by_c.values())

    def _task(self, name: str, peer: Peer, settings: dict[str, Any], target: float) -> Task:
        task = Task(
            peer=name,
            parquet=str(self.dataset.train["parquet"]),
            arrow=str(self.dataset.train["arrow"]),
            text="",
            test=str(self.dataset.test["arrow"]),
            test_text="",
            rows=self.dataset.rows,
            features=self.dataset.features,
            target=target,
            settings=settings,
            seconds_limit=self.seconds_limit,
            seconds_of_use=math.inf,
            threads=os.cpu_count() or 1 if peer.all_cores else 1,
        )
        if peer.reads_text:
            train, test = text(self.folder, self.dataset)
            task = replace(task, text=str(train), test_text=str(test))
        return task


def missing_package(name: str) -> str | None:
    peer = PEERS[name]
    return peer.package if peer.module is not None and find_spec(peer.module) is None else None


def median(name: str, outcomes: list[Outcome], target: float, rows: int) -> dict[str, Any]:
    """The row of a peer: its median outcome; failures count as slowest."""

    def goodness(outcome: Outcome) -> tuple[bool, float]:
        if "failed" not in outcome and not outcome["curve"]:
            return (False, outcome["seconds_loading"])
        return _goodness(summary(outcome, target, rows))

    middle = sorted(outcomes, key=goodness)[len(outcomes) // 2]
    if "failed" in middle:
        return {"peer": name, "failed": middle["failed"]}
    return {"peer": name, "outcome": middle, "summary": summary(middle, target, rows)}


def summary(outcome: Outcome, target: float, rows: int) -> dict[str, Any]:
    """The first point of the curve that reaches the target, otherwise the last point."""
    if "failed" in outcome:
        return {"reached": False, "failed": outcome["failed"]}
    if not outcome["curve"]:
        return {"reached": False}
    curve = outcome["curve"]
    at_target = next((point for point in curve if point["accuracy"] >= target), None)
    point = at_target or curve[-1]
    return {
        **point,
        "reached": at_target is not None,
        "passes": point["rows"] / rows if point["rows"] is not None else None,
        "best_accuracy": max(point["accuracy"] for point in curve),
        "final_accuracy": curve[-1]["accuracy"],
    }


def _goodness(found: dict[str, Any]) -> tuple[bool, float]:
    """Sort key: the fastest to the target first, then those that came closest to it."""
    return (not found["reached"], found["seconds"] if found["reached"] else -found.get("best_accuracy", 0.0))


def _in_own_process(task: Task, timeout: float) -> Outcome:
    command = [sys.executable, "-m", "scripts.bench.peers", "--peer", task.peer, "--task", json.dumps(asdict(task))]
    # A separate session, so that processes that the peer has started end with it.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, complaints = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"failed": f"no end after {timeout:.0f} s"}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        return {"failed": (complaints.strip().splitlines() or [f"exit code {process.returncode}"])[-1]}
    outcome: Outcome = json.loads(printed)
    return outcome


def _read_all(places: Iterable[Path]) -> None:
    """Reads the files into the page cache, as for all peers."""
    for place in places:
        for path in files_in(place):
            with path.open("rb", buffering=0) as file:
                while file.read(_READ_BYTES):
                    pass


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
