"""How the loops are compiled, and how the on-disk cache of compiled code learns that a source changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from numba import njit
from numba.extending import register_jitable

__all__ = ["SOURCES_DIGEST", "compiled", "inlinable", "reordering"]

# The interpreter lock is let go of, so that reading and training run at the same time.
compiled = njit(cache=True, nogil=True, error_model="numpy")

# A plain function that loops may call; unlike an @njit function it can be closed over without losing the cache.
inlinable = register_jitable

# Only sums inside one row may be reassociated (that is what lets a dot product use vector registers). Sums that
# run across rows must not be: where a call ends would then change their bits, and with them the law that a pause
# changes nothing.
reordering = register_jitable(fastmath={"reassoc", "contract", "nsz"})


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


# Numba's cache notices an edit of the file that holds a loop, not of the files whose functions it calls. Loops made
# by a factory close over this digest, which makes them new whenever any file of this room changes.
SOURCES_DIGEST = _digest_of_sources()
