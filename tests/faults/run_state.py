"""The state of a run as a digest, without the times that were measured."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from streampgs.run.folder import RunFolder

_MEASURED = ("seconds_training", "seconds_waiting")
_NOT_STATE = ("run",)
"""The record of the run: its limits are those of the last command."""


def sections_of(folder: RunFolder) -> dict[str, tuple[Any, dict[str, np.ndarray]]]:
    """Values and arrays of the newest checkpoint."""
    checkpoint = folder.newest_checkpoint()
    assert checkpoint is not None
    return {
        name: ({key: value for key, value in bundle.values.items() if key not in _MEASURED}, bundle.arrays)
        for name, bundle in checkpoint.sections.items()
        if name not in _NOT_STATE
    }


def state_digest(folder: RunFolder) -> str:
    """Of everything that decides how the run goes on."""
    found = hashlib.sha256()
    for name, (values, arrays) in sorted(sections_of(folder).items()):
        found.update(json.dumps([name, values], sort_keys=True).encode())
        for key, array in sorted(arrays.items()):
            found.update(f"{key} {array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
