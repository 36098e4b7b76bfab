from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.torture_parts.cases import CASES, Subject


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    """The subject of a case by name. Each is made once, which also compiles its loops."""
    made: dict[str, Subject] = {}

    def of(name: str) -> Subject:
        if name not in made:
            case = next(case for case in CASES if case.name == name)
            folder: Path = tmp_path_factory.mktemp(name)
            made[name] = Subject(case, folder)
        return made[name]

    return of
