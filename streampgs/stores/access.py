"""Read object stores through pyarrow: listings, sizes and versions of objects, ranges of their bytes.

The S3 library is loaded at the first use of an address.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streampgs.base.errors import DataError, OptionError
from streampgs.stores.addresses import AZURE, GOOGLE, S3, Address, parse
from streampgs.stores.patience import Absent, patiently, without_secrets

CONNECT_SECONDS = 10.0
STALL_SECONDS = 15.0
"""A request without a byte for so long has failed."""
_COMPARISONS = 5
"""How often a reply is compared with the next one, until two are the same."""
_CONTRADICTION = "two replies that contradict each other"
_EMPTY_MD5 = "d41d8cd98f00b204e9800998ecf8427e"
ASKERS = 32
"""Threads for small requests, which mostly wait."""


@dataclass(frozen=True)
class RemoteObject:
    """One version of an object. `str` gives its address, `os.fspath` its copy on this disk.

    Equality is that of addresses: a catalog has one version of each.
    """

    address: str
    size: int = field(default=0, compare=False)
    version: str = field(default="", compare=False)
    """The store's name for this content: the ETag where there is one."""
    folder: Path | None = field(default=None, compare=False)
    """The folder of its copy."""

    def __str__(self) -> str:
        return self.address

    def __fspath__(self) -> str:
        return str(self.copy)

    @property
    def copy(self) -> Path:
        assert self.folder is not None, f"{self.address} has no folder for its copy"
        return self.folder / self.name

    @property
    def name(self) -> str:
        """The name of the copy: a digest of address, size and version."""
        facts = f"{self.address}\n{self.size}\n{self.version}"
        return hashlib.sha256(facts.encode(errors="surrogateescape")).hexdigest()[:32] + ".shard"


class RemoteFile:
    """An object open for reading ranges, by any number of threads."""

    def __init__(self, remote: RemoteObject, open_another: Callable[[], Any], stopping: threading.Event | None) -> None:
        self.address = remote.address
        self.size = remote.size
        self._stopping = stopping
        self._open_another = open_another
        self._idle: list[Any] = []
        self._lock = threading.Lock()

    def read(self, size: int, offset: int) -> bytes:
        """No store has a checksum of a range: two replies in a row must be the same."""
        last = self.read_part(size, offset)
        for _ in range(_COMPARISONS):
            before, last = last, self.read_part(size, offset)
            if before == last:
                return bytes(last)
        raise DataError(
            f"'{self.address}': each of {_COMPARISONS + 1} requests for the same {size:,} bytes got other ones",
            "something between here and the store damages them: fix that, and try again",
        )

    def read_part(self, size: int, offset: int) -> bytearray:
        """As one reply has it; who asks compares the whole object with its ETag."""
        if not size:
            return bytearray()
        return patiently(self.address, lambda: self._read(size, offset), self._stopping)

    def _read(self, size: int, offset: int) -> bytearray:
        with self._handle() as handle:
            return _complete(handle, size, offset)

    @contextmanager
    def _handle(self) -> Iterator[Any]:
        """A file that no other thread uses meanwhile: it has a position."""
        with self._lock:
            handle = self._idle.pop() if self._idle else None
        handle = handle or self._open_another()
        try:
            yield handle
        finally:
            with self._lock:
                self._idle.append(handle)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _complete(handle: Any, size: int, offset: int) -> bytearray:
    """The bytes of a range. pyarrow does not notice a reply that breaks off in its head or is shorter than the range: it
    leaves the rest of the memory as it was. So the last byte is set before, and must be another one afterwards; if it is the
    same by chance, the range is read again with another byte."""
    target = bytearray(size)
    for mark in random.sample(range(256), 2):
        target[-1] = mark
        handle.seek(offset)
        received = handle.readinto(target)
        if received != size:
            raise OSError(f"received {received:,} bytes of {size:,}")
        if target[-1] != mark:
            return target
    raise OSError(f"received fewer than {size:,} bytes")


@contextmanager
def opened(remote: RemoteObject, stopping: threading.Event | None = None) -> Iterator[RemoteFile]:
    """Open the object; an error if it is no longer the version in the catalog."""
    filesystem, path = _at(parse(remote.address))

    def ask() -> Any:
        file, size, version = _asked(filesystem, path)
        if (size, version) == (remote.size, remote.version):
            return file
        file.close()
        _confirm(filesystem, path, (size, version))
        raise changed(remote, size)

    try:
        first = patiently(remote.address, ask, stopping)
    except Absent:
        raise DataError(
            f"shard '{remote.address}' was removed while in use", "restore it, or start a new run"
        ) from None
    reader = RemoteFile(remote, ask, stopping)
    reader._idle.append(first)
    try:
        yield reader
    finally:
        reader.close()


def _asked(filesystem: Any, path: str) -> tuple[Any, int, str]:
    """The open file, its size and its version. OSError if the reply was not complete."""
    file = filesystem.open_input_file(path)
    try:
        size, version = file.size(), _version(filesystem, path, file)
    except BaseException:
        file.close()
        raise
    if size == 0 and version != _EMPTY_MD5:  # as after a reply that broke off in its head
        file.close()
        raise OSError("a reply without a size")
    return file, size, version


def _confirm(filesystem: Any, path: str, facts: tuple[int, str]) -> None:
    """Facts that contradict the catalog must be in two replies: one of them may have broken off in a number."""
    file, size, version = _asked(filesystem, path)
    file.close()
    if (size, version) != facts:
        raise OSError(_CONTRADICTION)


def changed(remote: RemoteObject, size: int) -> DataError:
    what = "another version" if size == remote.size else f"{size:,} bytes and not {remote.size:,}"
    return DataError(
        f"shard '{remote.address}' was replaced while in use: the store now has {what}",
        "restore it, or start a new run",
    )


def looked_up(address: str, before: RemoteObject | None = None) -> RemoteObject:
    """The present version of the object. `before`: the version in the catalog."""
    filesystem, path = _at(parse(address))

    def ask() -> RemoteObject:
        file, size, version = _asked(filesystem, path)
        file.close()
        if before is not None and (size, version) != (before.size, before.version):
            _confirm(filesystem, path, (size, version))
        return RemoteObject(address, size, version)

    return patiently(address, ask)


def _version(filesystem: Any, path: str, file: Any) -> str:
    found = {_text(name).lower(): _text(value) for name, value in (file.metadata() or {}).items()}
    if found.get("etag"):
        return found["etag"].strip('"')
    if filesystem.type_name == "s3":  # every S3 store gives one
        raise OSError("a reply without an ETag")
    if filesystem.type_name.startswith("py::"):  # its files have no metadata
        entry = filesystem.handler.fs.info(path)
        for name in ("ETag", "etag", "md5", "mtime", "LastModified", "last_modified", "created"):
            if entry.get(name):
                return str(entry[name]).strip('"')
    return f"modified {filesystem.get_file_info(path).mtime_ns}"


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# Listings.


def is_object(address: Address) -> bool | None:
    """True: an object; False: a folder; None: neither."""
    filesystem, path = _at(address)
    path = path.rstrip("/")
    found = patiently(address, lambda: filesystem.get_file_info(path)).type.name
    if found == "Directory":
        return False
    if found == "File":
        if filesystem.type_name != "s3":
            return True
        with suppress(Absent):  # a reply that broke off in its head looks like an object
            patiently(address, lambda: _asked(filesystem, path))[0].close()
            return True
    return False if _entries(address, filesystem, path, recursive=False) else None


def keys_below(address: Address) -> list[str]:
    """The keys of all objects in the folder `address` and below."""
    filesystem, path = _at(address)
    entries = _entries(address, filesystem, path.rstrip("/"), recursive=True)
    start = len(path) - len(address.key)  # paths begin with the bucket
    return [entry.path[start:] for entry in entries if entry.type.name == "File"]


def _entries(address: Address, filesystem: Any, path: str, recursive: bool) -> list[Any]:
    """Two replies in a row must be the same; else the longest one counts. pyarrow takes a page of a listing that breaks off in
    its head for an empty last page, and a name may be damaged."""
    selector = import_module("pyarrow.fs").FileSelector(path, recursive=recursive, allow_not_found=True)

    def ask() -> list[Any]:
        try:
            return list(patiently(address, lambda: filesystem.get_file_info(selector)))
        except Absent:
            return []

    replies = [ask()]
    for _ in range(_COMPARISONS):
        replies.append(ask())
        if [entry.path for entry in replies[-2]] == [entry.path for entry in replies[-1]]:
            return replies[-1]
    return max(replies, key=len)


# File systems of stores.


def _at(address: Address) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    try:
        return _found_at(address)
    except (ValueError, NotImplementedError, ImportError) as error:
        raise OptionError(
            f"the environment does not give access to the store of '{address}': {without_secrets(str(error))}",
            "docs/stores.md lists the variables",
        ) from None


def _found_at(address: Address) -> tuple[Any, str]:
    if address.scheme in S3:
        return _s3(*_s3_place(address.place), _environment("AWS_CA_BUNDLE")), f"{address.place}/{address.key}"
    if address.scheme in GOOGLE:
        return _google(_environment("STORAGE_EMULATOR_HOST")), f"{address.place}/{address.key}"
    if address.scheme in AZURE:
        container, _, host = address.place.rpartition("@")
        account = host.partition(".")[0] if container else _environment("AZURE_STORAGE_ACCOUNT")
        key, token = _environment("AZURE_STORAGE_KEY"), _environment("AZURE_STORAGE_SAS_TOKEN")
        if account is None:
            raise OptionError(
                f"'{address}' names no storage account",
                "write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/…, or set AZURE_STORAGE_ACCOUNT",
            )
        return _azure(account, key, token), f"{container or host}/{address.key}"
    filesystem = _by_fsspec(address.scheme)
    return filesystem, filesystem.handler.fs._strip_protocol(str(address))


def _environment(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _s3_place(bucket: str) -> tuple[str | None, str]:
    """The endpoint, unless it is Amazon's own, and the region."""
    endpoint = _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    region = _environment("AWS_REGION", "AWS_DEFAULT_REGION")
    if endpoint is not None and "@" in urlsplit(endpoint).netloc:
        raise OptionError("the endpoint in AWS_ENDPOINT_URL has a user or a password", "give the bare address")
    if region is None:
        region = "us-east-1" if endpoint is not None else _region_of(bucket)
    return endpoint, region


@lru_cache
def _region_of(bucket: str) -> str:
    """The region of a bucket is public."""
    region: str = patiently(f"s3://{bucket}", lambda: import_module("pyarrow.fs").resolve_s3_region(bucket))
    return region


@lru_cache
def _s3(endpoint: str | None, region: str, authorities: str | None) -> Any:
    stores = import_module("pyarrow.fs")
    where: dict[str, str] = {}
    if endpoint is not None:
        scheme, _, host = endpoint.rpartition("://")
        where = {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    return stores.S3FileSystem(
        region=region,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=STALL_SECONDS,
        retry_strategy=stores.AwsStandardS3RetryStrategy(max_attempts=1),  # patiently() retries
        tls_ca_file_path=authorities,
        **where,
    )


def settings_for_rust(address: Address) -> dict[str, str]:
    """The settings for deltalake, where Rust's object_store has other names or does not read the environment."""
    # It retries single requests: patiently() can only repeat all of them.
    patience = {"connect_timeout": f"{CONNECT_SECONDS}s", "timeout": f"{STALL_SECONDS}s", "max_retries": "3"}
    if address.scheme in S3:
        endpoint, region = _s3_place(address.place)
        where = {"AWS_REGION": region}
        if endpoint is not None:
            where["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"https://{endpoint}"
            where["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http://")).lower()
        return where | patience
    if address.scheme in AZURE:
        host = address.place.rpartition("@")[2] if "@" in address.place else ""
        known = {
            "azure_storage_account_name": host.partition(".")[0] or _environment("AZURE_STORAGE_ACCOUNT"),
            "azure_storage_account_key": _environment("AZURE_STORAGE_KEY"),
            "azure_storage_sas_key": _environment("AZURE_STORAGE_SAS_TOKEN"),
        }
        return {name: value for name, value in known.items() if value} | patience
    return patience


@lru_cache
def _google(emulator: str | None) -> Any:
    from datetime import timedelta

    stores = import_module("pyarrow.fs")
    patience = {"retry_time_limit": timedelta(seconds=STALL_SECONDS)}
    if emulator is None:
        return stores.GcsFileSystem(**patience)
    scheme, _, host = emulator.rpartition("://")
    return stores.GcsFileSystem(anonymous=True, scheme=scheme or "http", endpoint_override=host, **patience)


@lru_cache
def _azure(account: str, key: str | None, token: str | None) -> Any:
    return import_module("pyarrow.fs").AzureFileSystem(account, account_key=key, sas_token=token)


@lru_cache
def _by_fsspec(scheme: str) -> Any:
    stores = import_module("pyarrow.fs")
    try:
        return stores.PyFileSystem(stores.FSSpecHandler(import_module("fsspec").filesystem(scheme)))
    except (ImportError, ValueError) as error:
        raise OptionError(
            f"addresses of {scheme}:// cannot be read: {error}",
            "use s3://, gs:// or abfs://, copy the shards to a disk, or install fsspec with its package for this store",
        ) from error
