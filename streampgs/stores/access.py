"""Read object stores through pyarrow: listings, sizes and versions of objects, ranges of their bytes.

The S3 library is loaded at the first use of an address.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streampgs.errors import DataError, OptionError
from streampgs.stores.addresses import AZURE, GOOGLE, S3, Address, parse
from streampgs.stores.patience import Absent, patiently, without_secrets

CONNECT_SECONDS = 10.0
STALL_SECONDS = 15.0
"""A request without a byte for so long has failed."""
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
    """An object open for reading ranges."""

    def __init__(self, address: str, file: Any, one_at_a_time: bool, stopping: threading.Event | None) -> None:
        self.address = address
        self.handle = file
        self.stopping = stopping
        self.size: int = file.size()
        self._lock = threading.Lock() if one_at_a_time else None

    def read(self, size: int, offset: int) -> bytes:
        data: bytes = patiently(self.address, lambda: self._read(size, offset), self.stopping)
        return data

    def _read(self, size: int, offset: int) -> bytes:
        if self._lock is None:
            data = self.handle.read_at(size, offset)
        else:
            with self._lock:
                data = self.handle.read_at(size, offset)
        if len(data) != size:
            raise OSError(f"received {len(data):,} bytes of {size:,}")
        return bytes(data)


@contextmanager
def opened(remote: RemoteObject, stopping: threading.Event | None = None) -> Iterator[RemoteFile]:
    """Open the object; an error if it is no longer the version in the catalog."""
    filesystem, path = _at(parse(remote.address))

    def ask() -> tuple[Any, str]:
        file = filesystem.open_input_file(path)
        return file, _version(filesystem, path, file)

    try:
        file, version = patiently(remote.address, ask, stopping)
    except Absent:
        raise DataError(
            f"shard '{remote.address}' was removed while in use", "restore it, or start a new run"
        ) from None
    with file:
        reader = RemoteFile(remote.address, file, filesystem.type_name.startswith("py::"), stopping)
        if (reader.size, version) != (remote.size, remote.version):
            raise changed(remote, reader.size)
        yield reader


def changed(remote: RemoteObject, size: int) -> DataError:
    what = "another version" if size == remote.size else f"{size:,} bytes and not {remote.size:,}"
    return DataError(
        f"shard '{remote.address}' was replaced while in use: the store now has {what}",
        "restore it, or start a new run",
    )


def looked_up(address: str) -> RemoteObject:
    """The present version of the object."""
    filesystem, path = _at(parse(address))

    def ask() -> RemoteObject:
        with filesystem.open_input_file(path) as file:
            return RemoteObject(address, file.size(), _version(filesystem, path, file))

    return patiently(address, ask)


def _version(filesystem: Any, path: str, file: Any) -> str:
    found = {_text(name).lower(): _text(value) for name, value in (file.metadata() or {}).items()}
    if found.get("etag"):
        return found["etag"].strip('"')
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
    found = patiently(address, lambda: filesystem.get_file_info(path.rstrip("/"))).type.name
    return {"File": True, "Directory": False}.get(found)


def keys_below(address: Address) -> list[str]:
    """The keys of all objects in the folder `address` and below."""
    filesystem, path = _at(address)
    selector = import_module("pyarrow.fs").FileSelector(path.rstrip("/"), recursive=True, allow_not_found=True)
    try:
        entries = patiently(address, lambda: filesystem.get_file_info(selector))
    except Absent:
        return []
    start = len(path) - len(address.key)  # paths begin with the bucket
    return [entry.path[start:] for entry in entries if entry.type.name == "File"]


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
