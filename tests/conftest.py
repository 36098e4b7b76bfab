"""Shared by all tests: the Hypothesis profile, a check that draws are uniform, and the order of the tests."""

from __future__ import annotations

import signal
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import ArrayLike
from scipy.stats import chi2

# No deadline, because the first call of a compiled loop takes a second. The same examples on every machine and in every
# run, so that a failing test keeps failing until it is fixed.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")

# A shell starts jobs in the background with SIGINT ignored, and nohup with SIGHUP; tests and their processes need the defaults.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The seeds are fixed, so correct code never fails now and then; this is the certainty with which wrong code fails.
_CHANCE_OF_A_FALSE_ALARM = 1e-4


@pytest.fixture(scope="session")
def assert_uniform() -> Callable[[ArrayLike], None]:
    """assert_uniform(counts): counts of equally likely outcomes, by Pearson's chi-square."""

    def check(counts: ArrayLike) -> None:
        counts = np.asarray(counts, dtype=float).ravel()
        expected = counts.sum() / counts.size
        assert expected >= 5.0, "too few draws for the chi-square approximation"
        statistic = float(((counts - expected) ** 2).sum() / expected)
        bound = float(chi2.ppf(1.0 - _CHANCE_OF_A_FALSE_ALARM, counts.size - 1))
        assert statistic <= bound, f"chi-square {statistic:.1f} > {bound:.1f} over {counts.size} outcomes"

    return check


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First the tests that fork this process: a forked child of a process with threads can deadlock. Then the slow ones,
    so that with several workers the last test to finish is a short one."""
    items.sort(key=lambda item: ("faults" not in item.path.parts, item.get_closest_marker("slow") is None))
