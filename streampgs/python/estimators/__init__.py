"""Estimators for scikit-learn, which is imported only with this package."""

from __future__ import annotations

from streampgs.base.errors import MissingPackage

try:
    import sklearn.utils.validation as _validation
except ModuleNotFoundError as fault:
    raise MissingPackage(
        "StreamClassifier and StreamRegressor need scikit-learn, which is not installed",
        "pip install 'scikit-learn>=1.6'",
    ) from fault
if not hasattr(_validation, "validate_data"):
    raise MissingPackage(
        "StreamClassifier and StreamRegressor need scikit-learn 1.6 or newer", "pip install 'scikit-learn>=1.6'"
    )

from streampgs.python.estimators.classifier import StreamClassifier
from streampgs.python.estimators.regressor import StreamRegressor

__all__ = ["StreamClassifier", "StreamRegressor"]
