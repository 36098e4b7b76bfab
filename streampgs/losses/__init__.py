"""Which function of score and label does training minimize? A loss is one block in a module here and one line below.

Nothing here imports Numba: the command line lists the losses, and loops compile their formulas when they need them.
"""

from __future__ import annotations

from streampgs.losses import classification, poisson, regression
from streampgs.losses.loss import Formula, Loss, Parameter, Vector

__all__ = ["CLASSIFYING", "ELSEWHERE", "LOSSES", "Formula", "Loss", "Parameter", "Vector"]

LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        classification.LOGISTIC,
        classification.HINGE,
        regression.SQUARED,
        classification.SQUARED_HINGE,
        classification.MODIFIED_HUBER,
        regression.HUBER,
        regression.ABSOLUTE,
        regression.QUANTILE,
        poisson.POISSON,
    )
}

CLASSIFYING = tuple(name for name, loss in LOSSES.items() if loss.classifies)

ELSEWHERE = {
    "logistic": "log-loss log cross-entropy binary-crossentropy",
    "squared": "squared-error squared-loss mse l2",
    "absolute": "absolute-error mae l1 epsilon-insensitive",
    "hinge": "svm",
}
"""The names that other libraries have for losses."""
