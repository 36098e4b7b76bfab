"""Where the copies of remote shards lie, and how much they may take."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streampgs.errors import OptionError
from streampgs.options import Resources
from streampgs.stores.addresses import is_address_of_path
from streampgs.stores.copies import Copies
from streampgs.table.catalog import Catalog, decoded_bytes


def copies_folder(cache: str) -> Path:
    return Path(cache) / "shards"


def refuse_remote(catalog: Catalog, run: Path, resources: Resources) -> None:
    """Data may lie in a store; what a run writes may not, and needs a place for copies."""
    for option, folder in (("--run", run), ("--cache", resources.cache)):
        if folder is not None and is_address_of_path(folder):
            raise OptionError(
                f"{option} '{folder}' is no folder on this disk", "runs and their caches are kept on disks"
            )
    if resources.no_cache and catalog.remote:
        raise OptionError(
            f"--no-cache with shards in an object store ('{catalog.remote[0]}'): copies of them are what is read",
            "leave --no-cache out; --cache DIR says where copies lie and --cache-limit how much they may take",
        )


def copies_of(catalog: Catalog, cache: str | None, limit_bytes: int | None) -> Copies | None:
    """Copies of a run's remote shards. They share the limit with decoded slices, which are served first; without a
    limit they may take half of the free disk, which changes the speed but not the order of rows."""
    if cache is None or not catalog.remote:
        return None
    if limit_bytes is None:
        Path(cache).mkdir(parents=True, exist_ok=True)
        return Copies(copies_folder(cache), shutil.disk_usage(cache).free // 2, catalog.remote)
    decoded = sum(decoded_bytes(shard) for shard in catalog.shards if shard.cached)
    return Copies(copies_folder(cache), max(0, limit_bytes - decoded), catalog.remote)


@contextmanager
def one_by_one(catalog: Catalog) -> Iterator[tuple[Catalog, Copies | None]]:
    """For going through a catalog once: copies in a temporary folder, of one shard and the next."""
    if not catalog.remote:
        yield catalog, None
        return
    with tempfile.TemporaryDirectory(prefix="streampgs-") as name:
        placed = catalog.with_copies_in(Path(name))
        copies = Copies(Path(name), None)
        try:
            yield placed, copies
        finally:
            copies.close()
