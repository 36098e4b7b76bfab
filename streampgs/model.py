"""A trained model, read from a run: weights, and what they say about rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.arithmetic.losses import LOSSES
from streampgs.errors import OptionError, RunError
from streampgs.options import ModelOptions
from streampgs.run.folder import Checkpoint, RunFolder
from streampgs.solver.pgs import Pgs, PgsSettings

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    coef_: Vector
    intercept_: float
    options: ModelOptions
    shape: float
    """The quantile or Huber's width, for losses that have one."""
    steps: int
    rows: int
    checkpoint: Path
    layout: str
    damaged: tuple[str, ...]
    """Newer checkpoints that could not be used, and why."""

    @staticmethod
    def load(run: str | Path) -> Model:
        """The model of a run's newest sound checkpoint."""
        checkpoint = newest_checkpoint(Path(run))
        solver = solver_of(checkpoint)
        weights = solver.weights()
        assert checkpoint.path is not None
        return Model(
            weights[1:],
            float(weights[0]) * solver.settings.intercept,
            ModelOptions.from_json(checkpoint.record["options"]),
            solver.settings.shape,
            solver.steps,
            checkpoint.record["totals"]["rows"],
            checkpoint.path,
            solver.settings.layout,
            tuple(f"{path.name} ({why})" for path, why in checkpoint.damaged),
        )

    @property
    def classifies(self) -> bool:
        return LOSSES[self.options.loss].classifies

    def decision_function(self, rows: Any) -> Vector:
        """<w, x> + b for each row of an array or of a scipy sparse matrix; features never seen count as nothing."""
        if hasattr(rows, "tocsr"):
            matrix = rows.tocsr()
            known = min(matrix.shape[1], self.coef_.size)
            return np.asarray(matrix[:, :known] @ self.coef_[:known] + self.intercept_)
        array = np.atleast_2d(np.asarray(rows))
        if array.shape[1] != self.coef_.size:
            raise OptionError(
                f"rows of {array.shape[1]} features for a model of {self.coef_.size}",
                "give the features it was trained on",
            )
        return np.asarray(array @ self.coef_ + self.intercept_)

    def predict(self, rows: Any) -> Vector:
        """Classes -1 and +1, or the values of a regression."""
        return self.predictions(self.decision_function(rows))

    def predict_proba(self, rows: Any) -> Vector:
        """Columns: the probability of -1 and of +1."""
        positive = self.probabilities(self.decision_function(rows))
        if positive is None:
            raise OptionError(
                f"a model of loss {self.options.loss} has no probabilities",
                "train with --loss logistic or modified-huber",
            )
        return np.stack([1.0 - positive, positive], axis=1)

    def predictions(self, scores: Vector) -> Vector:
        return np.where(scores > 0.0, 1.0, -1.0) if self.classifies else scores

    def probabilities(self, scores: Vector) -> Vector | None:
        """Of the positive class; None where the loss estimates none."""
        if self.options.loss == "logistic":
            shrunk = np.exp(-np.abs(scores))
            return np.where(scores >= 0.0, 1.0, shrunk) / (1.0 + shrunk)
        if self.options.loss == "modified-huber":
            return np.clip((scores + 1.0) / 2.0, 0.0, 1.0)
        return None


def newest_checkpoint(run: Path) -> Checkpoint:
    folder = RunFolder(run)
    folder.record()
    checkpoint = folder.newest_checkpoint()
    if checkpoint is None:
        raise RunError(f"run '{run}' has no checkpoint yet", f"let it train on: streampgs resume {run}")
    return checkpoint


def solver_of(checkpoint: Checkpoint) -> Pgs:
    settings = PgsSettings.from_json(checkpoint.record["settings"])
    return Pgs.from_record(settings, checkpoint.vectors, checkpoint.record["solver"])
