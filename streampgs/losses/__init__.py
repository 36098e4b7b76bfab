"""Which function of score and label does training minimize? A loss is one block in a module here and one line below.

Nothing here imports Numba: the command line lists the losses, and loops compile their formulas when they need them.
"""

from __future__ import annotations

from streampgs.losses import classification, poisson, regression
from streampgs.losses.loss import Formula, Loss, Parameter, Vector

__all__ = ["CLASSIFYING", "LOSSES", "Formula", "Loss", "Parameter", "Vector"]

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
