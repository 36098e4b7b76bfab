"""The peers, their input formats, and the small grid of settings for each peer other than streampgs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    title: str
    reads: str
    function: str
    """module:name; the module is imported in the peer's own process only."""
    package: str | None = None
    """Name for pip; None: the dependencies of streampgs are enough."""
    module: str | None = None
    grid: tuple[Settings, ...] = ({},)
    all_cores: bool = False
    reads_text: bool = False
    learns: bool = True


def _grid(**choices: list[Any]) -> tuple[Settings, ...]:
    return tuple(dict(zip(choices, values, strict=True)) for values in product(*choices.values()))


# The middle of the grid comes first: after one setting has reached the target, worse ones are stopped earlier.
_ALPHAS = [1e-6, 3e-7, 3e-6, 1e-7, 1e-5, 3e-5]
_C = [1, 3, 0.3, 10, 0.1]
_LIBLINEAR = _grid(loss=["hinge", "squared_hinge", "logistic"], C=_C)
_SNAP_ML = _grid(loss=["hinge", "logistic"], C=_C)
_CYANURE = _grid(loss=["logistic", "sqhinge"], solver=["miso", "auto"], C=_C)
_VOWPAL_WABBIT = _grid(loss_function=["hinge", "logistic"], learning_rate=[1, 0.5, 2], l2=[0, 1e-7])
_XGBOOST = _grid(updater=["coord_descent", "shotgun"], eta=[1, 0.5], reg_lambda=[0])

PEERS = {
    "streampgs-parquet": Peer("streampgs", "Parquet", "streampgs_runs:from_parquet", all_cores=True),
    "streampgs-arrow": Peer("streampgs", "Arrow", "streampgs_runs:from_arrow", all_cores=True),
    "sklearn-parquet-hinge": Peer(
        "scikit-learn SGD, averaged, hinge, fed by pyarrow", "Parquet", "streaming:sklearn_sgd",
        "scikit-learn", "sklearn", _grid(loss=["hinge"], alpha=_ALPHAS),
    ),
    "sklearn-parquet-logistic": Peer(
        "scikit-learn SGD, averaged, logistic, fed by pyarrow", "Parquet", "streaming:sklearn_sgd",
        "scikit-learn", "sklearn", _grid(loss=["log_loss"], alpha=_ALPHAS),
    ),
    "sklearn-liblinear": Peer(
        "scikit-learn's LIBLINEAR", "Parquet, all in memory", "in_memory:sklearn_liblinear",
        "scikit-learn", "sklearn", _LIBLINEAR,
    ),
    "liblinear": Peer(
        "LIBLINEAR", "Parquet, all in memory", "in_memory:liblinear_official",
        "liblinear-official", "liblinear", _LIBLINEAR,
    ),
    "vowpal-wabbit": Peer(
        "Vowpal Wabbit", "its text", "vowpal_wabbit:vowpal_wabbit",
        "vowpalwabbit", "vowpalwabbit", _VOWPAL_WABBIT, reads_text=True,
    ),
    "snapml": Peer(
        "Snap ML", "Parquet, all in memory", "in_memory:snap_ml", "snapml", "snapml", _SNAP_ML, all_cores=True
    ),
    "cyanure": Peer(
        "cyanure", "Parquet, all in memory", "in_memory:cyanure", "cyanure", "cyanure", _CYANURE, all_cores=True
    ),
    "xgboost-linear": Peer(
        "xgboost, linear booster", "Parquet, all in memory", "in_memory:xgboost_linear",
        "xgboost", "xgboost", _XGBOOST, all_cores=True,
    ),
    "parquet-into-memory": Peer(
        "no learning: pyarrow reads the table", "Parquet", "loading:parquet_into_memory", all_cores=True, learns=False
    ),
    "parquet-decoded": Peer(
        "no learning: pyarrow decodes batches", "Parquet", "loading:parquet_decoded", all_cores=True, learns=False
    ),
    "parquet-bytes": Peer("no learning: bytes read", "Parquet", "loading:parquet_bytes", learns=False),
    "arrow-copied": Peer("no learning: batches copied", "Arrow", "loading:arrow_copied", learns=False),
}  # fmt: skip

CONVERGED = Peer("", "", "converged:search", "scikit-learn", "sklearn")
"""Not a peer: finds the accuracy from which the target is derived."""
