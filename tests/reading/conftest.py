"""What the tests of reading share."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _words_may_wrap() -> Iterator[None]:
    """Uncompiled loops warn of what their words are meant to do; compiled ones must not warn of anything."""
    with np.errstate(over="ignore" if numba.config.DISABLE_JIT else "warn"):
        yield
