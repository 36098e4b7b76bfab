"""The regressor."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from streampgs.base.errors import InvalidInput
from streampgs.data.distinct import Floats
from streampgs.encoding.labels import LARGEST_LABEL
from streampgs.losses import LOSSES
from streampgs.python.estimators.base import Parameters, StreamEstimator, numbers_in, sklearn_errors


@dataclass(repr=False, eq=False)
class StreamRegressor(RegressorMixin, StreamEstimator):  # type: ignore[misc]
    """A linear regression, as `streampgs.train` trains it.

    Rows are NumPy arrays, scipy sparse matrices, lists, or tables of pandas, polars or pyarrow. Tables may have columns
    of strings, text, dates and lists. Columns of numbers are standardized, sparse matrices are used as they are.

    Parameters
    ----------
    loss : 'squared', 'huber', 'absolute', 'quantile' or 'poisson'
    quantile : for the loss 'quantile'
    huber_width : for the loss 'huber'
    """

    loss: Any = "squared"
    _: KW_ONLY
    quantile: float | None = None
    huber_width: float | None = None

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> Self:
        """Train on more rows, once."""
        with sklearn_errors():
            first = not self.__sklearn_is_fitted__()
            given = self._checked(X, y, sample_weight, offset, reset=first)
            self._train_more(replace(given, labels=self._numbers_of(given.labels, given.weights)))
        return self

    def _numbers_of(self, labels: NDArray[Any], weights: Floats | None) -> Floats:
        found = numbers_in(labels, "y")
        if not np.isfinite(found).all():
            raise InvalidInput("Input y contains NaN or infinity", "give a finite number for each row")
        if (np.abs(found) > LARGEST_LABEL).any():
            raise InvalidInput(f"y holds a number beyond {LARGEST_LABEL:g}", "scale y down")
        lowest = LOSSES[self.loss].lowest_label if self.loss in LOSSES else -np.inf
        if (found < lowest).any():
            raise InvalidInput(
                f"y holds {found.min():g}, and loss '{self.loss}' is for {lowest:g} or more", "use another loss"
            )
        return found

    @property
    def coef_(self) -> Floats:
        return np.asarray(self._fitted.in_units()[0][0])

    @property
    def intercept_(self) -> float:
        return float(self._fitted.in_units()[1][0])

    def predict(self, X: Any, offset: Any = None) -> Floats:
        """A number for each row. A model that was fitted with offsets needs `offset`."""
        scores = self._scores(X, offset)
        return LOSSES[self._fitted.leader.loss].prediction(scores[:, 0])


StreamRegressor.__doc__ = f"{str(StreamRegressor.__doc__).rstrip()}\n    {Parameters.__doc__}"
