"""The classifier."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from streampgs.base.errors import InvalidInput
from streampgs.data.distinct import Floats
from streampgs.losses import LOSSES
from streampgs.model.metrics import Task
from streampgs.python.estimators.base import Parameters, StreamEstimator, sklearn_errors
from streampgs.python.estimators.fitting import Fitted, Given


def _estimates_probabilities(estimator: Any) -> bool:
    loss = LOSSES.get(estimator.loss) if isinstance(estimator.loss, str) else None
    if loss is not None and loss.probability is None:
        raise AttributeError(f"loss '{estimator.loss}' estimates no probabilities: use 'logistic' or 'modified-huber'")
    return True


@dataclass(repr=False, eq=False)
class StreamClassifier(ClassifierMixin, StreamEstimator):  # type: ignore[misc]
    """A linear classifier of two or more classes (one against the rest), as `streampgs.train` trains it.

    Rows are NumPy arrays, scipy sparse matrices, lists, or tables of pandas, polars or pyarrow. Tables may have columns
    of strings, text, dates and lists. Columns of numbers are standardized, sparse matrices are used as they are.

    Parameters
    ----------
    loss : 'logistic', 'hinge', 'squared-hinge' or 'modified-huber'; several in a tuple are compared
    class_weight : None, 'balanced', or a dictionary from class to weight
    """

    _: KW_ONLY
    class_weight: Any = None

    # Training.

    @property
    def _classes(self) -> int:  # type: ignore[override]
        return len(self.classes_)

    def _numbers_of(self, labels: NDArray[Any], weights: Floats | None) -> Floats:
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        present = codes if weights is None else codes[weights > 0.0]
        if (present == present[0]).all():
            raise InvalidInput(
                f"the rows have only one class: {labels.tolist()[0]!r}",
                "a classifier needs rows of two classes or more",
            )
        return codes.astype(np.float64)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, offset: Any = None
    ) -> Self:
        """Train on more rows, once. `classes`: all classes, for the first call; later calls may repeat them."""
        with sklearn_errors():
            first = not self.__sklearn_is_fitted__()
            given = self._checked(X, y, sample_weight, offset, reset=first)
            check_classification_targets(given.labels)
            self._take_classes(classes, first)
            codes = np.minimum(np.searchsorted(self.classes_, given.labels), len(self.classes_) - 1)
            unknown = given.labels[self.classes_[codes] != given.labels].tolist()
            if unknown:
                raise InvalidInput(
                    f"label {unknown[0]!r} is not one of the classes {self.classes_.tolist()}", "name all of them"
                )
            self._train_more(replace(given, labels=codes.astype(np.float64)))
        return self

    def _take_classes(self, classes: Any, first: bool) -> None:
        if first and classes is None:
            raise InvalidInput("the first call of partial_fit without classes", "give all of them: classes=[…]")
        if classes is None:
            return
        found = np.unique(np.asarray(classes))
        if first:
            if len(found) < 2:
                raise InvalidInput("classes holds only one class", "a classifier needs two classes or more")
            self.classes_ = found
        elif not np.array_equal(found, self.classes_):
            raise InvalidInput(
                f"classes={found.tolist()}, but the first call had {self.classes_.tolist()}", "leave classes out"
            )

    def _factors(self, given: Given) -> Floats | None:
        if self.class_weight is None:
            return None
        codes, own = given.labels.astype(np.intp), given.weights
        if self.class_weight == "balanced":
            sums = np.bincount(codes, own, len(self.classes_))
            factors = sums.sum() / (np.count_nonzero(sums) * np.where(sums > 0.0, sums, 1.0))
        elif isinstance(self.class_weight, dict):
            unknown = [label for label in self.class_weight if label not in self.classes_]
            if unknown:
                raise InvalidInput(f"class_weight names {unknown[0]!r}, which is not a class", "name classes of y")
            factors = np.array([self.class_weight.get(label, 1.0) for label in self.classes_.tolist()], np.float64)
        else:
            raise InvalidInput(f"class_weight={self.class_weight!r}", "give None, 'balanced' or a dictionary")
        if not (np.isfinite(factors) & (factors >= 0.0)).all():
            raise InvalidInput(f"class_weight={self.class_weight!r}", "give finite numbers of 0 or more")
        return np.asarray(factors, np.float64)

    def _label_options(self) -> dict[str, Any]:
        return {"classes": tuple(float(number) for number in range(len(self.classes_)))}

    def _take(self, fitted: Fitted) -> None:
        assert fitted.model is not None
        self._fitted, self.classes_ = fitted, np.asarray(fitted.model.classes_)

    def _options_of_shards(self) -> dict[str, Any]:
        if self.class_weight is None:
            return {"classes": "auto"}
        if isinstance(self.class_weight, dict):
            classes = sorted(self.class_weight)
            return {"classes": tuple(classes), "class_weight": tuple(self.class_weight[label] for label in classes)}
        return {"classes": "auto", "class_weight": self.class_weight}

    # Results.

    @property
    def _task(self) -> Task:
        return Task(LOSSES[self._fitted.leader.loss], self._fitted.leader.shape, len(self.classes_))

    @property
    def coef_(self) -> Floats:
        """A row for each class; one row for two classes."""
        return self._fitted.in_units()[0]

    @property
    def intercept_(self) -> Floats:
        return self._fitted.in_units()[1]

    def decision_function(self, X: Any, offset: Any = None) -> Floats:
        """A score for each row, with more than two classes one for each class. A model that was fitted with offsets needs
        `offset`."""
        scores = self._scores(X, offset)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any, offset: Any = None) -> NDArray[Any]:
        scores = self.decision_function(X, offset)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0.0).astype(np.intp)
        return np.asarray(self.classes_[chosen])

    @available_if(_estimates_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, offset: Any = None) -> Floats:
        """A column for each class, in the order of `classes_`."""
        scores = self.decision_function(X, offset)
        found = self._task.probabilities(scores)
        assert found is not None
        return np.stack([1.0 - found, found], axis=1) if found.ndim == 1 else found

    @available_if(_estimates_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any, offset: Any = None) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X, offset)))


StreamClassifier.__doc__ = f"{str(StreamClassifier.__doc__).rstrip()}\n    {Parameters.__doc__}"
