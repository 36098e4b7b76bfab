"""Identify the content of a file by a few of its bytes, so that a moved shard is recognised."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from streampgs.base.files import open_regular
from streampgs.formats.local import LocalFile, unreadable

_PARTS, _PART_BYTES = 4, 4096
_COMPARED_BYTES = 1 << 20


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Size, time of the last change and inode of a file; None if there is none."""
    with _named(path):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def content_digest(path: Path) -> str:
    """A digest of the whole file if it is small, else of a few parts of it. Together with the footer it distinguishes
    shards unless they differ in a few bytes only."""
    digest = hashlib.sha256()
    with _named(path), closing(LocalFile(path)) as file:
        whole = file.size <= _PARTS * _PART_BYTES
        places = [0] if whole else [(file.size - _PART_BYTES) * place // (_PARTS - 1) for place in range(_PARTS)]
        for place in places:
            digest.update(file.read(file.size if whole else _PART_BYTES, place))
    return digest.hexdigest()[:32]


def same_content(one: Path, other: Path) -> bool:
    """Whether two files hold the same bytes."""
    with _named(one), open(open_regular(one), "rb") as a, open(open_regular(other), "rb") as b:
        if os.fstat(a.fileno()).st_size != os.fstat(b.fileno()).st_size:
            return False
        while True:
            left, right = a.read(_COMPARED_BYTES), b.read(_COMPARED_BYTES)
            if left != right:
                return False
            if not left:
                return True
