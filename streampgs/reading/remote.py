"""Local copies of remote shards: their folder, their limit, and when they are fetched."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path

from streampgs.base.errors import OptionError
from streampgs.options.commands import Resources
from streampgs.stores.access import RemoteObject
from streampgs.stores.addresses import is_address_of_path
from streampgs.stores.copies import Copies
from streampgs.table.catalog import Catalog, Shard, decoded_bytes


def copies_folder(cache: str) -> Path:
    return Path(cache) / "shards"


def refuse_remote(catalog: Catalog, run: Path, resources: Resources) -> None:
    """Refuse runs and caches in an object store, and remote data without a cache for copies."""
    for option, folder in (("--run", run), ("--cache", resources.cache)):
        if folder is not None and is_address_of_path(folder):
            raise OptionError(
                f"`{option} '{folder}'` is not a folder on this disk", "runs and caches must be on a disk"
            )
    if resources.no_cache and catalog.remote:
        raise OptionError(
            f"--no-cache with shards in an object store ('{catalog.remote[0]}'): local copies are needed for reading",
            "leave out --no-cache; `--cache DIR` sets the folder of the copies and --cache-limit their size",
        )


def copies_of(catalog: Catalog, cache: str | None, limit_bytes: int | None) -> Copies | None:
    """Copies of a run's remote shards. They share the limit with decoded slices, which are served first; without a
    limit they may take half of the free disk, which changes the speed but not the order of rows."""
    if cache is None or not catalog.remote:
        return None
    if limit_bytes is None:
        return Copies.on_half_the_disk(copies_folder(cache), catalog.remote)
    decoded = sum(decoded_bytes(shard) for shard in catalog.shards if shard.cached)
    return Copies(copies_folder(cache), max(0, limit_bytes - decoded), catalog.remote)


def remote_shards(shards: Iterable[Shard]) -> list[RemoteObject]:
    """The different objects among the shards."""
    return list(dict.fromkeys(shard.path for shard in shards if isinstance(shard.path, RemoteObject)))


class LocalCopies:
    """Copies of remote shards for the blocks that are read next. Without remote shards there is nothing to do."""

    def __init__(self, copies: Copies | None, check_stop: Callable[[], None]) -> None:
        self._copies = copies
        self._check_stop = check_stop

    def wait_for(self, key: Hashable, wanted: list[RemoteObject]) -> None:
        """These are read now, and no others."""
        if self._copies is not None:
            self._copies.begin(key, wanted)
            self._copies.wait_for(wanted, self._check_stop)

    def fetch(self, wanted: list[RemoteObject]) -> None:
        """These are read now as well."""
        if self._copies is not None and wanted:
            self._copies.also(wanted)
            self._copies.wait_for(wanted, self._check_stop)

    def announce(self, key: Hashable, wanted: list[RemoteObject]) -> None:
        if self._copies is not None:
            self._copies.announce(key, wanted)

    def are_here(self, shards: Iterable[Shard]) -> bool:
        return self._copies is None or all(self._copies.is_here(remote) for remote in remote_shards(shards))
