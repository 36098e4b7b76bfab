from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.torture_parts.cases import CASES, Ground


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ground]:
    """A kind of run by name, its data and what its undisturbed run comes to; made once, with all its loops compiled."""
    made: dict[str, Ground] = {}

    def of(name: str) -> Ground:
        if name not in made:
            case = next(case for case in CASES if case.name == name)
            folder: Path = tmp_path_factory.mktemp(name)
            made[name] = Ground(case, folder)
        return made[name]

    return of
