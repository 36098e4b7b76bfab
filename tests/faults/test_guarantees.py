"""docs/guarantees.md names a test for each promise, and each that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_each_test_that_is_named_exists() -> None:
    assert len(NAMED) > 15
    for file, name in NAMED:
        written = (ROOT / file).read_text()
        found = re.search(rf"^\s*(def {name}\(|class {name}\b|{name} = )", written, re.MULTILINE)
        assert found, f"{file}::{name}"


def test_each_promise_names_a_test() -> None:
    promised, _, _ = PAGE.partition("## Not promised")
    promises = [part for part in promised.split("\n\n") if part.startswith("**")]
    assert len(promises) > 10
    for promise in promises:
        assert "\nShown by `tests/" in promise, promise
