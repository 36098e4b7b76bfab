"""Retry requests to a store, ever more slowly, for a limited time.

pyarrow would retry, too, but could not be stopped in between, and each store would have other rules.
"""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from streampgs.base.errors import DataError

PATIENCE_SECONDS = 60.0
"""How long the same request may fail."""
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 8.0

# A retry would get the same answer. pyarrow gives the code of the store as text only.
_REFUSED = re.compile(
    r"ACCESS_DENIED|Forbidden|INVALID_ACCESS_KEY|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch"
    r"|EXPIRED_TOKEN|ExpiredToken|INVALID_CLIENT_TOKEN|UNRECOGNIZED_CLIENT|HTTP status (40[013]|301)"
    r"|PERMISSION_DENIED|UNAUTHENTICATED|AuthenticationFailed|AuthorizationFailure|PermanentRedirect"
)
_ABSENT = re.compile(r"NO_SUCH_(KEY|BUCKET)|NoSuch(Key|Bucket)|RESOURCE_NOT_FOUND|HTTP status 404|NOT_FOUND")
_SECRETS = ("ACCESS_KEY", "SECRET", "TOKEN", "PASSWORD", "STORAGE_KEY", "ACCOUNT_KEY", "CREDENTIAL")

T = TypeVar("T")


class GivenUp(Exception):
    """The caller has stopped."""


class Absent(DataError):
    """The store has no such object."""


def patiently(address: object, ask: Callable[[], T], stopping: threading.Event | None = None) -> T:
    """The result of `ask`, called again while the store fails in ways that may pass."""
    began, pause, tries = time.monotonic(), FIRST_PAUSE_SECONDS, 0
    stopping = stopping or threading.Event()
    while not stopping.is_set():
        tries += 1
        try:
            return ask()
        except OSError as error:
            words = without_secrets(str(error))
            if isinstance(error, FileNotFoundError) or _ABSENT.search(words):
                raise Absent(
                    f"'{address}' does not exist",
                    "name an object, a folder or a quoted glob of .parquet or .arrow shards",
                ) from None
            if isinstance(error, PermissionError) or _REFUSED.search(words):
                raise DataError(
                    f"the store refused access to '{address}': {words}",
                    "check the credentials and the region in the environment (docs/stores.md), and their permissions",
                ) from None
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            if time.monotonic() - began + pause > PATIENCE_SECONDS:
                raise DataError(
                    f"'{address}' cannot be read: {words} ({tries} tries in {time.monotonic() - began:.0f} s)",
                    "make sure that the store can be reached, then resume: `streampgs resume RUN`, or the same command",
                ) from None
        # Spread out: threads that failed together should not retry together.
        stopping.wait(pause * random.uniform(0.5, 1.0))
        pause = min(2.0 * pause, LONGEST_PAUSE_SECONDS)
    raise GivenUp


def without_secrets(words: str) -> str:
    """The words with every credential of the environment masked: libraries quote the values that were refused."""
    for name, value in os.environ.items():
        if len(value) >= 8 and any(part in name.upper() for part in _SECRETS):
            words = words.replace(value, "***")
    return " ".join(words.split())
