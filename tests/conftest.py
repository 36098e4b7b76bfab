"""What all tests share: how Hypothesis searches, and one way to say that draws are uniform."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import ArrayLike
from scipy.stats import chi2

# The first call of a compiled loop takes a second, hence no deadline; the same examples on every machine and in every
# run, so that a red test stays red until it is mended.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")

# The seeds are fixed, so this is not how often a right program fails but how sure one is that a wrong one is wrong.
_CHANCE_OF_A_FALSE_ALARM = 1e-4


@pytest.fixture(scope="session")
def assert_uniform() -> Callable[[ArrayLike], None]:
    """assert_uniform(counts): counts of equally likely outcomes, by Pearson's chi-square."""

    def check(counts: ArrayLike) -> None:
        counts = np.asarray(counts, dtype=float).ravel()
        expected = counts.sum() / counts.size
        assert expected >= 5.0, "too few draws for the chi-square distribution to be a fair yardstick"
        statistic = float(((counts - expected) ** 2).sum() / expected)
        bound = float(chi2.ppf(1.0 - _CHANCE_OF_A_FALSE_ALARM, counts.size - 1))
        assert statistic <= bound, f"chi-square {statistic:.1f} > {bound:.1f} over {counts.size} outcomes"

    return check


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that fork this process come first: a child of one that has threads may wait for a lock that nobody holds."""
    items.sort(key=lambda item: "faults" not in item.path.parts)
