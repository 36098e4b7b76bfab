"""The parts of a run that have state, and how their state is handed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass
class Bundle:
    """The state of one stage: one section of a checkpoint. Arrays may be views: write them before the next step."""

    values: dict[str, Any] = field(default_factory=dict)
    """What JSON can hold."""
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    vectors: Mapping[str, tuple[int, Callable[[], NDArray[np.float64]]]] = field(default_factory=dict)
    """Vectors that are computed one after the other while they are written, by their lengths: there may be no memory for all
    of them. They are read back in `arrays`."""


class Stage(Protocol):
    """Only the stage itself reads and writes its section of a checkpoint."""

    name: str

    def state(self) -> Bundle: ...

    def restore(self, bundle: Bundle) -> None:
        """Continue from this state; raises ValueError for state that no run can have."""
