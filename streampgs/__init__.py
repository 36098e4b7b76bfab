"""streampgs: linear models on tables far larger than memory, with training that pauses and resumes bit for bit.

import streampgs

streampgs.train("shards/", run="my-run", epochs=3)
model = streampgs.Model.load("my-run")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streampgs.api import evaluate as evaluate
    from streampgs.api import history as history
    from streampgs.api import inspect as inspect
    from streampgs.api import pack as pack
    from streampgs.api import predict as predict
    from streampgs.api import resume as resume
    from streampgs.api import train as train
    from streampgs.errors import StreampgsError as StreampgsError
    from streampgs.errors import StreamWarning as StreamWarning
    from streampgs.estimators import StreamClassifier as StreamClassifier
    from streampgs.estimators import StreamRegressor as StreamRegressor
    from streampgs.model import Model as Model

__all__ = [
    "Model",
    "StreamClassifier",
    "StreamRegressor",
    "StreamWarning",
    "StreampgsError",
    "evaluate",
    "history",
    "inspect",
    "pack",
    "predict",
    "resume",
    "train",
]

__version__ = "0.1.0"

# Imported on first use: the command line must not import pyarrow and numba to print its help.
_HOMES = {
    "Model": "streampgs.model",
    "StreamClassifier": "streampgs.estimators",
    "StreamRegressor": "streampgs.estimators",
    "StreamWarning": "streampgs.errors",
    "StreampgsError": "streampgs.errors",
    **dict.fromkeys(("evaluate", "history", "inspect", "pack", "predict", "resume", "train"), "streampgs.api"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streampgs' has no attribute '{name}'")
