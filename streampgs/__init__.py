"""streampgs: linear models on tables far larger than memory, with training that pauses and resumes bit for bit.

import streampgs

streampgs.train("shards/", run="my-run", epochs=3)
model = streampgs.Model.load("my-run")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streampgs.base.errors import StreampgsError as StreampgsError
    from streampgs.base.errors import StreamWarning as StreamWarning
    from streampgs.model.model import Model as Model
    from streampgs.python.api import evaluate as evaluate
    from streampgs.python.api import history as history
    from streampgs.python.api import inspect as inspect
    from streampgs.python.api import pack as pack
    from streampgs.python.api import predict as predict
    from streampgs.python.api import resume as resume
    from streampgs.python.api import train as train
    from streampgs.python.estimators import StreamClassifier as StreamClassifier
    from streampgs.python.estimators import StreamRegressor as StreamRegressor

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
    "Model": "streampgs.model.model",
    "StreamClassifier": "streampgs.python.estimators",
    "StreamRegressor": "streampgs.python.estimators",
    "StreamWarning": "streampgs.base.errors",
    "StreampgsError": "streampgs.base.errors",
    **dict.fromkeys(("evaluate", "history", "inspect", "pack", "predict", "resume", "train"), "streampgs.python.api"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streampgs' has no attribute '{name}'")
