"""The regressor."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from streampgs.data.distinct import Floats
from streampgs.encoding.labels import LARGEST_LABEL
from streampgs.errors import InvalidInput
from streampgs.estimators.base import StreamEstimator, sklearn_errors
from streampgs.estimators.training import Given
from streampgs.losses import LOSSES


class StreamRegressor(RegressorMixin, StreamEstimator):  # type: ignore[misc]
    """A linear regression, as `streampgs.train` trains it.

    Rows are NumPy arrays, scipy sparse matrices, lists, or tables of pandas, polars or pyarrow. Tables may have columns
    of strings, text, dates and lists. Columns of numbers are standardized, sparse matrices are used as they are.

    Parameters
    ----------
    loss : 'squared', 'huber', 'absolute', 'quantile' or 'poisson'
    sigma : weight of the regularizer, or 'auto' to find it
    p : exponent of the regularizer's norm, in (1, 2], or 'auto'
    solver : how the model is trained, as for `streampgs.train`; l1, ball, step are options of some solvers
    epochs : passes over the rows; None chooses by the number of rows
    quantile : for the loss 'quantile'
    huber_width : for the loss 'huber'
    standardize : 'auto', 'on' or 'off', for columns of numbers
    kernel : None, 'rbf' or 'polynomial': a model that is not linear; gamma, degree, kernel_features and (with
        solver='kernel') supports as for `streampgs.train`
    text, category, cross, ignore : columns of a table, as for `streampgs.train`
    random_state : seed of the order of rows; None counts as 0
    threads : threads that train at the same time
    memory : rows that take more are trained on from temporary files; None: 512MB, or less on a small machine
    """

    _own_keywords: ClassVar[tuple[str, ...]] = ("quantile", "huber_width")

    def __init__(
        self,
        loss: Any = "squared",
        *,
        sigma: Any = "auto",
        p: Any = 2.0,
        solver: str = "pgs",
        l1: Any = None,
        ball: Any = None,
        step: Any = "auto",
        epochs: int | None = None,
        quantile: float | None = None,
        huber_width: float | None = None,
        standardize: str = "auto",
        kernel: str | None = None,
        gamma: Any = "auto",
        degree: int = 2,
        kernel_features: int = 1024,
        supports: int = 4096,
        text: Any = (),
        category: Any = (),
        cross: Any = (),
        ignore: Any = (),
        random_state: Any = None,
        threads: int = 1,
        memory: Any = None,
    ) -> None:
        self.loss = loss
        self.sigma = sigma
        self.p = p
        self.solver = solver
        self.l1 = l1
        self.ball = ball
        self.step = step
        self.epochs = epochs
        self.quantile = quantile
        self.huber_width = huber_width
        self.standardize = standardize
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.kernel_features = kernel_features
        self.supports = supports
        self.text = text
        self.category = category
        self.cross = cross
        self.ignore = ignore
        self.random_state = random_state
        self.threads = threads
        self.memory = memory

    def fit(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        shards: Any = None,
        label: str | None = None,
        run: Any = None,
    ) -> Self:
        """Train a new model. A weight of 2 counts like a row that comes twice, a weight of 0 like a missing row.

        Or train on files: `shards` are files, folders or addresses, `label` is the column to predict, and `run` the folder
        of a run, which `resume` continues.
        """
        with sklearn_errors():
            if shards is not None:
                self._train_on_shards(shards, label, run, (X, y, sample_weight))
                return self
            self._train(self._checked(X, y, sample_weight, reset=True), 0, {})
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on more rows, once."""
        with sklearn_errors():
            self._train_more(self._checked(X, y, sample_weight, reset=not self.__sklearn_is_fitted__()), 0, {})
        return self

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> Given:
        if y is None:
            raise InvalidInput("This estimator requires y to be passed, but the target y is None", "give the labels")
        rows = self._taken(X, reset)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(rows, labels)
        try:
            labels = labels.astype(np.float64)
        except (TypeError, ValueError) as fault:
            raise InvalidInput(f"y does not hold numbers: {fault}", "give a number for each row") from fault
        if not np.isfinite(labels).all():
            raise InvalidInput("Input y contains NaN or infinity", "give a finite number for each row")
        if (np.abs(labels) > LARGEST_LABEL).any():
            raise InvalidInput(f"y holds a number beyond {LARGEST_LABEL:g}", "scale y down")
        lowest = LOSSES[self.loss].lowest_label if self.loss in LOSSES else -np.inf
        if (labels < lowest).any():
            raise InvalidInput(
                f"y holds {labels.min():g}, and loss '{self.loss}' is for {lowest:g} or more", "use another loss"
            )
        return Given(rows, labels, self._weights(sample_weight, len(labels)))

    @property
    def coef_(self) -> Floats:
        return np.asarray(self._fitted.in_units()[0][0])

    @property
    def intercept_(self) -> float:
        return float(self._fitted.in_units()[1][0])

    def predict(self, X: Any) -> Floats:
        check_is_fitted(self)
        return LOSSES[self._fitted.leader.loss].prediction(self._scores(X)[:, 0])
