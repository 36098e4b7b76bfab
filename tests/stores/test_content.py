"""What ETags tell of a content."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from streampgs.stores.content import NO_MD5, Match, matches

CONTENT = bytes(range(256)) * (12 << 12)  # 12 MiB


def etag_of_parts(content: bytes, part: int) -> str:
    digests = [hashlib.md5(content[first : first + part]).digest() for first in range(0, len(content), part)]
    return f"{hashlib.md5(b''.join(digests)).hexdigest()}-{len(digests)}"


@pytest.mark.parametrize(
    ("version", "right", "wrong"),
    [
        (hashlib.md5(CONTENT).hexdigest(), Match.YES, Match.NO),
        (etag_of_parts(CONTENT, len(CONTENT)), Match.YES, Match.NO),
        (etag_of_parts(CONTENT, 5 << 20), Match.YES, Match.UNKNOWN),
        (etag_of_parts(CONTENT, 8 << 20), Match.YES, Match.UNKNOWN),
        (etag_of_parts(CONTENT, 5_000_000), Match.YES, Match.UNKNOWN),
        (etag_of_parts(CONTENT, (5 << 20) + 1), Match.UNKNOWN, Match.UNKNOWN),
        ("0x8DABCDEF", Match.UNKNOWN, Match.UNKNOWN),
    ],
)
def test_contents_are_compared_where_the_etag_is_a_checksum(
    version: str, right: Match, wrong: Match, tmp_path: Path
) -> None:
    for content, expected in ((CONTENT, right), (CONTENT[:-1] + b"x", wrong)):
        (tmp_path / "x").write_bytes(content)
        with open(tmp_path / "x", "rb", buffering=0) as file:
            assert matches(file, len(content), version) is expected


def test_of_an_empty_object(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with open(tmp_path / "x", "rb", buffering=0) as file:
        assert matches(file, 0, hashlib.md5(b"").hexdigest()) is Match.YES


def test_etags_that_are_no_checksums_can_be_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NO_MD5, "1")
    (tmp_path / "x").write_bytes(b"x")
    with open(tmp_path / "x", "rb", buffering=0) as file:
        assert matches(file, 1, "0" * 32) is Match.UNKNOWN
