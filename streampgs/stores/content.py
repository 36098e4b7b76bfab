"""Whether a downloaded file is what its store says it is, as far as the ETag tells.

An ETag is the MD5 of the content where it was uploaded in one go, and the MD5 of the parts' MD5s where it was uploaded
in parts, whose size nobody tells. Buckets encrypted with keys of a key service have ETags that are neither.
"""

from __future__ import annotations

import hashlib
import os
import re
from enum import Enum
from io import FileIO

_ETAG = re.compile(r"([0-9a-f]{32})(?:-([0-9]+))?")
_CHUNK_BYTES = 1 << 20
# Parts are written in such sizes by common tools, in MB or MiB.
_USUAL_PARTS = (
    5,
    6,
    8,
    10,
    12,
    15,
    16,
    20,
    24,
    25,
    32,
    48,
    50,
    64,
    80,
    96,
    100,
    128,
    200,
    250,
    256,
    500,
    512,
    1000,
    1024,
)

NO_MD5 = "STREAMPGS_ETAG_IS_NO_MD5"


class Match(Enum):
    YES = "the content is the one that was uploaded"
    NO = "it is another"
    UNKNOWN = "the store's name for it tells nothing"


def matches(file: FileIO, size: int, version: str) -> Match:
    etag = _ETAG.fullmatch(version)
    if etag is None or os.environ.get(NO_MD5):
        return Match.UNKNOWN
    if etag[2] is None:
        return Match.YES if _md5(file, 0, size).hex() == etag[1] else Match.NO
    parts = int(etag[2])
    for part_bytes in _possible_parts(size, parts):
        digests = b"".join(_md5(file, first, min(part_bytes, size - first)) for first in range(0, size, part_bytes))
        if hashlib.md5(digests, usedforsecurity=False).hexdigest() == etag[1]:
            return Match.YES
    return Match.NO if parts == 1 else Match.UNKNOWN


def _possible_parts(size: int, parts: int) -> list[int]:
    if parts == 1:
        return [max(1, size)]
    usual = sorted({number * unit for number in _USUAL_PARTS for unit in (10**6, 1 << 20)})
    return [part for part in usual if -(-size // part) == parts]


def _md5(file: FileIO, first: int, size: int) -> bytes:
    digest = hashlib.md5(usedforsecurity=False)
    file.seek(first)
    while size:
        data = file.read(min(size, _CHUNK_BYTES))
        if not data:
            break
        digest.update(data)
        size -= len(data)
    return digest.digest()


def digest_of(file: FileIO, size: int) -> bytes:
    return _md5(file, 0, size)
