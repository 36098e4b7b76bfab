"""Addresses of object stores. They hold no credentials, because they are recorded and printed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from streampgs.base.errors import OptionError

S3, GOOGLE, AZURE = frozenset({"s3"}), frozenset({"gs", "gcs"}), frozenset({"abfs", "abfss"})

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)", re.DOTALL)
_ADDRESS_AS_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
# A '?' is a wildcard, too, but then a name and '=' hardly follow it.
_QUERY = re.compile(r"\?[A-Za-z_][A-Za-z0-9_.%-]*=")


@dataclass(frozen=True)
class Address:
    scheme: str
    place: str
    """Bucket or container; on Azure also container@account.dfs.core.windows.net."""
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}/{self.key}"

    def at(self, key: str) -> Address:
        return Address(self.scheme, self.place, key)


def is_address(source: str) -> bool:
    return _ADDRESS.match(source) is not None


def is_address_of_path(path: Path) -> bool:
    """Whether a path was an address: a Path has only one of its two slashes."""
    return _ADDRESS_AS_PATH.match(str(path)) is not None


def parse(source: str) -> Address:
    found = _ADDRESS.match(source)
    if found is None:
        raise OptionError(f"'{source}' is not an address", "write it like s3://bucket/folder")
    try:
        source.encode()
    except UnicodeEncodeError:
        raise OptionError(f"the address '{source}' is not UTF-8", "give the object another name") from None
    scheme, place, key = found[1].lower(), found[2], found[3]
    user, at, _ = place.rpartition("@")
    if (at and (scheme not in AZURE or ":" in user)) or _QUERY.search(source):
        raise OptionError(
            f"the address '{_without_secrets(scheme, place, key)}' (shortened) has a user, a password or a query; "
            "addresses are recorded and printed, so they must not hold secrets",
            "give the bare address, and credentials and options in the environment: see docs/stores.md",
        )
    if scheme == "file":
        raise OptionError(f"'{source}' is on a disk", "write its path, without file://")
    if not place:
        raise OptionError(f"the address '{source}' has no bucket", "write it like s3://bucket/folder")
    return Address(scheme, place, key)


def _without_secrets(scheme: str, place: str, key: str) -> str:
    bare = f"{place.rpartition('@')[2]}/{key}"
    return f"{scheme}://{bare.partition('?')[0]}"


def absolute(source: str | Path) -> str:
    """The form in which a run records a source: an absolute path, or the address."""
    text = os.fspath(source)
    return text if is_address(text) and parse(text) else str(Path(source).absolute())
