"""scikit-learn and twelve lines of pyarrow: the simplest streaming trainer."""

from __future__ import annotations

import numpy as np

from scripts.bench.peers.rows import accuracy, parquet_batches, rows_of, shard_paths
from scripts.bench.peers.trial import Stopwatch, Task, Trial

_MOST_PASSES = 40


def sklearn_sgd(task: Task, trial: Trial) -> None:
    with trial.importing:
        from sklearn.linear_model import SGDClassifier
    model = SGDClassifier(average=True, **task.settings)
    paths = np.array([str(path) for path in shard_paths(task.parquet, "parquet")])
    chance, spent, reading, rows = np.random.default_rng(0), Stopwatch(), Stopwatch(), 0
    while not trial.is_over and rows < _MOST_PASSES * task.rows:
        for half_of_pass in np.array_split(chance.permutation(paths), min(2, len(paths))):
            with spent:
                for batch in reading.each(parquet_batches(half_of_pass)):
                    labels, features = rows_of(batch, task.features)
                    model.partial_fit(features, labels, classes=[-1.0, 1.0])
                    rows += len(labels)
            trial.add(spent, reading.seconds, rows, accuracy(model.decision_function, task.test, task.features))
