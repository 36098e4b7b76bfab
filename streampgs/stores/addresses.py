"""Addresses of object stores, told from paths. A credential has no place in one: addresses are recorded and printed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from streampgs.errors import OptionError

S3, GOOGLE, AZURE = frozenset({"s3"}), frozenset({"gs", "gcs"}), frozenset({"abfs", "abfss"})

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)", re.DOTALL)
_ADDRESS_AS_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
# A '?' is also a wildcard, but a wildcard is hardly followed by a name and '='.
_QUERY = re.compile(r"\?[A-Za-z_][A-Za-z0-9_.%-]*=")


@dataclass(frozen=True)
class Address:
    scheme: str
    place: str
    """Bucket or container; of Azure perhaps with its account, as container@account.dfs.core.windows.net."""
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}/{self.key}"

    def at(self, key: str) -> Address:
        return Address(self.scheme, self.place, key)


def is_address(source: str) -> bool:
    return _ADDRESS.match(source) is not None


def is_address_of_path(path: Path) -> bool:
    """Whether a path was meant as an address; one of two slashes is lost on the way."""
    return _ADDRESS_AS_PATH.match(str(path)) is not None


def parse(source: str) -> Address:
    found = _ADDRESS.match(source)
    if found is None:
        raise OptionError(f"'{source}' is no address", "write it like s3://bucket/folder")
    scheme, place, key = found[1].lower(), found[2], found[3]
    user, at, _ = place.rpartition("@")
    if (at and (scheme not in AZURE or ":" in user)) or _QUERY.search(source):
        raise OptionError(
            f"the address '{_without_secrets(scheme, place, key)}' (shortened) carries a user, a password or a query: "
            "addresses are recorded and printed, so that secrets do not belong there",
            "leave the bare address and give credentials and options by the environment: see docs/stores.md",
        )
    if scheme == "file":
        raise OptionError(f"'{source}' is on a disk", "write its path, without file://")
    if not place:
        raise OptionError(f"the address '{source}' names no bucket", "write it like s3://bucket/folder")
    return Address(scheme, place, key)


def _without_secrets(scheme: str, place: str, key: str) -> str:
    bare = f"{place.rpartition('@')[2]}/{key}"
    return f"{scheme}://{bare.partition('?')[0]}"


def absolute(source: str | Path) -> str:
    """What a run records of a source, so that a resume from another folder finds it: paths from the root on, addresses
    as they are."""
    text = os.fspath(source)
    return text if is_address(text) and parse(text) else str(Path(source).absolute())
