"""Fixtures of the tests of reading."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numba
import pytest


@pytest.fixture(autouse=True)
def _words_may_wrap() -> Iterator[None]:
    """Ignore overflow warnings of uncompiled loops: their integers are meant to wrap. np.errstate does not reach threads."""
    with warnings.catch_warnings():
        if numba.config.DISABLE_JIT:
            warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)
        yield
