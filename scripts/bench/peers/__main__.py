"""Seconds to a target accuracy: streampgs and its peers on the same rows, in one run. With --quick: speed ratios only.

    python -m scripts.bench.peers [--rows 800000 | --train DIR --test DIR] [--peers a,b,c] [--repeats 3]
    python -m scripts.bench.peers --quick

The target is the best test accuracy of converged linear models (LIBLINEAR: L1-SVM, L2-SVM and logistic regression for
several C) minus 0.005. Each peer runs in its own process, with its files in the page cache and with the best setting of a
small grid (searched in advance and not counted); streampgs runs with its default options. Seconds count loading and
training from the files; imports, compiling and measuring the accuracy are reported separately. A peer that is not
installed (`pip install '.[bench]'` installs all), fails or takes too long gets a row that says so.

Writes bench.json (everything) and bench.png (accuracy over seconds) to --out, and prints a Markdown table. Run it on an
idle machine, and compare rows of one run only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts import machine
from scripts.bench.peers.peers import CONVERGED, PEERS
from scripts.bench.peers.trial import Task, Trial


def main() -> None:
    arguments = _arguments()
    if arguments.peer:
        _be_peer(Task(**json.loads(arguments.task)))
    elif arguments.quick:
        _quick(arguments)
    else:
        _bench(arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ratios that show regressions, in a minute")
    parser.add_argument("--rows", type=int, help="synthetic rows (default: 800,000; 200,000 with --quick)")
    parser.add_argument("--train", type=Path, help="folder of sparse shards, instead of synthetic rows")
    parser.add_argument("--test", type=Path, help="folder of test rows for --train")
    parser.add_argument("--target", type=float, help="target accuracy (default: that of converged models, minus 0.005)")
    parser.add_argument("--peers", help=f"some of {','.join(PEERS)}")
    parser.add_argument(
        "--repeats", type=int, help="runs of each peer (default: 1), or turns of each ratio (7); the median counts"
    )
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a peer stops")
    parser.add_argument(
        "--data", type=Path, default=Path("bench-data"), help="folder of generated data, which is reused"
    )
    parser.add_argument("--out", type=Path, help="folder of the results (default: bench-out; none with --quick)")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if (arguments.train is None) != (arguments.test is None):
        parser.error("--train and --test need each other")
    if arguments.train is not None and (arguments.rows is not None or arguments.quick):
        parser.error("--train and --test exclude --rows and --quick")
    arguments.peers = arguments.peers.split(",") if arguments.peers else list(PEERS)
    for name in arguments.peers:
        if name not in PEERS:
            parser.error(f"unknown peer '{name}'; choose from {', '.join(PEERS)}")
    return arguments


def _be_peer(task: Task) -> None:
    """Runs in the process of the peer. Prints one JSON object; other output of the peer's library goes to standard error."""
    result = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    trial = Trial(task)
    module, function = (CONVERGED if task.peer == "converged" else PEERS[task.peer]).function.split(":")
    with trial.importing:
        run = getattr(importlib.import_module(f"scripts.bench.peers.{module}"), function)
    run(task, trial)
    with result:
        json.dump(trial.to_json(), result)


def _quick(arguments: argparse.Namespace) -> None:
    from scripts.bench.peers import quick

    with tempfile.TemporaryDirectory() as folder:
        figures = quick.measure(Path(folder), arguments.rows or 200_000, arguments.repeats or quick.TURNS)
    result = {
        "machine": machine.machine(),
        "versions": machine.versions([*machine.PACKAGES, "scikit-learn"]),
        **figures,
    }
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "quick.json").write_text(json.dumps(result, indent=1))


def _bench(arguments: argparse.Namespace) -> None:
    from scripts.bench.peers import data, report
    from scripts.bench.peers.supervision import Supervisor, median, missing_package

    began = time.perf_counter()
    arguments.data.mkdir(parents=True, exist_ok=True)
    out = arguments.out or Path("bench-out")
    out.mkdir(parents=True, exist_ok=True)
    if arguments.train is not None:
        dataset = data.given(arguments.data, arguments.train, arguments.test)
    else:
        dataset = data.synthetic(arguments.data, arguments.rows or 800_000)
    supervisor = Supervisor(dataset, arguments.data, arguments.target, arguments.limit)
    absent = {name: package for name in arguments.peers if (package := missing_package(name)) is not None}
    present = [name for name in arguments.peers if name not in absent]
    settings = {name: supervisor.settings(name) for name in present}
    seconds_preparing = time.perf_counter() - began

    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in present}
    repeats = arguments.repeats or 1
    for repeat in range(repeats):
        for name in present:
            print(f"{name}, {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
            outcomes[name].append(supervisor.run(name, settings[name]))
    rows = [median(name, outcomes[name], supervisor.target, dataset.rows) for name in present]
    rows += [{"peer": name, "failed": f"{package} is not installed"} for name, package in absent.items()]
    packages = {peer.package for peer in PEERS.values() if peer.package is not None}
    result = {
        "machine": machine.machine(),
        "versions": machine.versions([*machine.PACKAGES, *packages]),
        "data": {"train": dataset.train["parquet"].name, "rows": dataset.rows, "features": dataset.features},
        "target": supervisor.target,
        "found_beforehand": dataset.notebook.facts,
        "seconds_preparing": seconds_preparing,
        "seconds": time.perf_counter() - began,
        "peers": rows,
        "repeats": outcomes,
    }
    (out / "bench.json").write_text(json.dumps(result, indent=1))
    print(report.markdown(result))
    try:
        report.plot(rows, outcomes, supervisor.target, out / "bench.png")
    except ImportError:
        print("no plot: matplotlib is not installed", file=sys.stderr)


if __name__ == "__main__":
    main()
