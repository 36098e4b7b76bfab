"""Patterns of column names."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """A pattern that names a struct stands for all its fields."""
    return any(fnmatchcase(name, pattern) or name == pattern or name.startswith(pattern + ".") for pattern in patterns)
