"""A change of the product leaves every bit of the model as it was, unless it is meant not to."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from tests.bits.record import CASES

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


def test_the_record_has_every_case() -> None:
    assert list(RECORDED) == list(CASES)


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the bits were recorded for x86-64 instructions"
)
@pytest.mark.parametrize("name", CASES)
def test_bits_are_as_recorded(name: str, tmp_path: Path) -> None:
    """Each case runs in processes of its own, whose loops are compiled for one fixed instruction set."""
    assert CASES[name](tmp_path) == RECORDED[name]
