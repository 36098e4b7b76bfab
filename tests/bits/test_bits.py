"""A change of the product leaves every bit of the model as it was, unless it is meant not to."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bits.record import CASES

RECORD = Path(__file__).with_name("record.py")
RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """The bits of today, from processes whose loops are compiled for one fixed instruction set."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the bits were recorded for x86-64 instructions")
    names = list(CASES)

    def bits_of(some: list[str]) -> dict[str, str]:
        done = subprocess.run([sys.executable, str(RECORD), *some], capture_output=True, text=True, check=True)
        return dict(json.loads(done.stdout))

    with ThreadPoolExecutor() as pool:
        first, second = pool.map(bits_of, (names[::2], names[1::2]))
    return first | second


def test_the_record_has_every_case() -> None:
    assert list(RECORDED) == list(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_bits_are_as_recorded(name: str, found: dict[str, str]) -> None:
    assert found[name] == RECORDED[name]
