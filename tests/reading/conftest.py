"""What the tests of reading share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numba
import pytest


@pytest.fixture(autouse=True)
def _words_may_wrap() -> Iterator[None]:
    """Uncompiled loops warn of what their words are meant to do, in threads too, where np.errstate does not reach."""
    with warnings.catch_warnings():
        if numba.config.DISABLE_JIT:
            warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)
        yield
