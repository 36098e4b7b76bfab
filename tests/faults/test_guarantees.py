"""docs/guarantees.md names a test for each guarantee, and these tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_each_named_test_exists() -> None:
    assert len(NAMED) > 15
    for file, name in NAMED:
        written = (ROOT / file).read_text()
        found = re.search(rf"^\s*(def {name}\(|class {name}\b|{name} = )", written, re.MULTILINE)
        assert found, f"{file}::{name}"


def test_each_guarantee_names_a_test() -> None:
    guaranteed, _, _ = PAGE.partition("## Not guaranteed")
    guarantees = [part for part in guaranteed.split("\n\n") if part.startswith("**")]
    assert len(guarantees) > 10
    for guarantee in guarantees:
        assert "\nShown by `tests/" in guarantee, guarantee
