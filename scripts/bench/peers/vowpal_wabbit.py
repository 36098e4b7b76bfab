"""Vowpal Wabbit reads its own text format in the first pass and its cache file in later ones.

Each point of the curve is a separate run. This module does not import numpy, so that the peak memory is Vowpal Wabbit's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from scripts.bench.peers.trial import Stopwatch, Task, Trial

_PASSES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_LEAST_HASH_BITS = 18


def vowpal_wabbit(task: Task, trial: Trial) -> None:
    with trial.importing:
        from vowpalwabbit import Workspace
    # Numeric names are not hashed, so with enough bits none collide.
    bits = max(_LEAST_HASH_BITS, task.features.bit_length())
    settings = " ".join(f"--{name} {value}" for name, value in task.settings.items())
    with tempfile.TemporaryDirectory() as folder:
        model, cache, predictions = (Path(folder) / name for name in ("model", "cache", "predictions"))
        for passes in _PASSES:
            caching = f"--cache_file {cache} -k --passes {passes} --holdout_off" if passes > 1 else ""
            with Stopwatch() as spent:
                Workspace(f"--quiet -d {task.text} -f {model} -b {bits} {settings} {caching}").finish()
            Workspace(f"--quiet -t -i {model} -d {task.test_text} -p {predictions}").finish()
            trial.add(spent, 0.0, passes * task.rows, _accuracy(predictions, Path(task.test_text)))
            if trial.is_over:
                break


def _accuracy(predictions: Path, text: Path) -> float:
    with predictions.open() as scores, text.open() as rows:
        right = [(float(score) > 0) == (row[0] != "-") for score, row in zip(scores, rows, strict=True)]
    return sum(right) / len(right)
