from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.torture.cases import CASES
from tests.faults.torture.kinds import Torturer, named
from tests.faults.torture.subjects import Subject
from tests.faults.torture.tally import Tally


@pytest.fixture(scope="session")
def torturer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Torturer]:
    """The torturer of a case by name. Each is made once, which also compiles its loops."""
    made: dict[str, Torturer] = {}

    def of(name: str) -> Torturer:
        if name not in made:
            folder: Path = tmp_path_factory.mktemp(name)
            made[name] = Torturer(named(name, CASES), folder, Tally(), seed=7)
        return made[name]

    return of


@pytest.fixture(scope="session")
def subject(torturer: Callable[[str], Torturer]) -> Callable[[str], Subject]:
    return lambda name: torturer(name).subject
