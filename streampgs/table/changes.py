"""Compare a table with its catalog: which shards are new, missing, moved or rewritten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from streampgs.base.errors import DataError, Unfinished
from streampgs.formats.format import Fingerprint, ShardPath
from streampgs.formats.local import content_digest, same_content, stamp_of
from streampgs.formats.registry import fingerprint_of
from streampgs.stores.access import ASKERS, RemoteObject, looked_up
from streampgs.stores.patience import Absent
from streampgs.table.catalog import Catalog, Shard, why_unfinished

Stamp = tuple[int, int, int]
"""Size, time of the last change and inode of a file."""
_Likeness = tuple[int, str, str]
"""Equal for files that may hold the same rows: size, digest of the footer, digest of samples."""


@dataclass
class Changes:
    new: list[ShardPath] = field(default_factory=list)
    """Shards that are not in the catalog, including those that took the name of one that is."""
    moved: dict[int, Path] = field(default_factory=dict)
    """Number of a shard → the new path of its content."""
    touched: list[int] = field(default_factory=list)
    """Numbers of shards that were rewritten with the same content."""
    replaced: list[int] = field(default_factory=list)
    """Numbers of shards whose content was replaced."""
    gone: list[int] = field(default_factory=list)
    copies: list[tuple[Path, Path]] = field(default_factory=list)
    """New files, each with the shard that has the same bytes."""
    doubtful: list[int] = field(default_factory=list)
    """Numbers of shards that the next look will decide about."""
    unfinished: list[DataError] = field(default_factory=list)
    """Why files are not used yet."""
    incomplete: list[ShardPath] = field(default_factory=list)
    """Files without an end."""

    @property
    def lost(self) -> list[int]:
        """Shards that cannot be read any more."""
        return sorted([*self.replaced, *self.gone])


class Watch:
    """Looks at a table repeatedly, and remembers the files that it has compared."""

    def __init__(self, settling: bool) -> None:
        """`settling`: a file counts once it is the same in two looks."""
        self.settling = settling
        self._missing: set[int] = set()
        self._stamps: dict[Path, Stamp] = {}
        self._copies: dict[Path, tuple[Stamp, Path]] = {}
        self._new: defaultdict[_Likeness, list[Path]] = defaultdict(list)
        """The new shards of the present look."""

    def look(
        self, catalog: Catalog, retired: Collection[int], paths: Sequence[ShardPath], only_listed: bool = False
    ) -> Changes:
        """`only_listed`: a shard that is not among the paths counts as missing, even if its file is still there."""
        changes = Changes()
        live = {shard.path: number for number, shard in enumerate(catalog.shards) if number not in retired}
        alike: defaultdict[_Likeness, list[int]] = defaultdict(list)
        for number in live.values():
            alike[_likeness(catalog.shards[number].fingerprint, catalog.shards[number].content)].append(number)
        named = set(paths)
        lost: dict[int, Path] = {}
        unlisted: dict[int, RemoteObject] = {}
        for path, number in live.items():
            if not isinstance(path, Path):
                if path not in named and only_listed:  # objects are not recognised in another place
                    changes.gone.append(number)
                elif path not in named:
                    unlisted[number] = path
                continue
            stamp = stamp_of(path)
            shard = catalog.shards[number].fingerprint
            elsewhere = only_listed and path not in named
            if stamp is not None and stamp[:2] == (shard.size, shard.modified_ns) and not elsewhere:
                continue
            if stamp is None or elsewhere or self._is_settled(path, stamp, changes):
                lost[number] = path
            else:
                changes.doubtful.append(number)
        remote = [path for path in paths if not isinstance(path, Path) and path not in live]
        files = [path for path in paths if isinstance(path, Path) and (path not in live or live[path] in lost)]
        self._place_objects(remote, unlisted, changes)
        self._new.clear()
        for path in files:
            self._place(path, catalog, live, alike, lost, changes)
        new = set(changes.new)
        missing = {number for number, path in lost.items() if path not in new}
        for number in lost:
            if catalog.shards[number].rows == 0:  # whether an empty shard is there makes no difference
                continue
            if number not in missing:
                changes.replaced.append(number)
            elif self._has_gone(number, changes):
                changes.gone.append(number)
            else:
                changes.doubtful.append(number)
        self._missing = missing
        return changes

    @staticmethod
    def _place_objects(new: Sequence[RemoteObject], unlisted: dict[int, RemoteObject], changes: Changes) -> None:
        """Objects that were not known, and known ones that a listing lacks. Listings may be late: the store is asked."""

        def gone(remote: RemoteObject) -> bool:
            try:
                looked_up(remote.address)
            except Absent:
                return True
            return False

        with ThreadPoolExecutor(ASKERS, "streampgs-looks") as pool:
            are_gone, faults = pool.map(gone, unlisted.values()), pool.map(why_unfinished, new)
            changes.gone += (number for number, is_gone in zip(unlisted, are_gone, strict=True) if is_gone)
            for remote, fault in zip(new, faults, strict=True):
                if fault is None:
                    changes.new.append(remote)
                else:
                    changes.unfinished.append(fault)
                    changes.incomplete.append(remote)

    def _has_gone(self, number: int, changes: Changes) -> bool:
        """With settling, a shard must be missing twice: while it is moved it may be at neither place."""
        unsettled = any(not isinstance(error, Unfinished) for error in changes.unfinished)
        return not self.settling or (number in self._missing and not unsettled)

    def _is_settled(self, path: Path, stamp: Stamp, changes: Changes) -> bool:
        """Whether the writer of a file seems to have finished."""
        if self.settling and self._stamps.get(path) != stamp:
            self._stamps[path] = stamp
            changes.unfinished.append(DataError(f"shard '{path}' may not be complete yet"))
            return False
        return True

    def _place(
        self,
        path: Path,
        catalog: Catalog,
        live: dict[ShardPath, int],
        alike: Mapping[_Likeness, list[int]],
        lost: dict[int, Path],
        changes: Changes,
    ) -> None:
        """Decide whether a file is a moved shard, a rewritten one, a copy, or a new one."""
        stamp = stamp_of(path)
        if stamp is None or (path not in live and not self._is_settled(path, stamp, changes)):
            return
        known, original = self._copies.get(path, (None, path))
        if known == stamp and original in live and live[original] not in lost:
            changes.copies.append((path, original))
            return
        try:
            found, content = fingerprint_of(path), content_digest(path)
        except Unfinished as error:
            changes.unfinished.append(error)
            changes.incomplete.append(path)
            if path in live:  # it is being overwritten: the next look will decide
                lost.pop(live[path], None)
                changes.doubtful.append(live[path])
            return
        likeness, own = _likeness(found, content), live.get(path)
        for number in sorted(alike.get(likeness, []), key=lambda number: (number != own, number not in lost)):
            before = catalog.shards[number].path
            if before == path:
                changes.touched.append(number)
                lost.pop(number, None)
                if number in changes.moved:  # that file is a copy: the shard is still here
                    changes.copies.append((changes.moved.pop(number), path))
                return
            if not isinstance(before, Path) or _folder_columns(path) != _folder_columns(before):
                continue
            if number in lost:
                changes.moved[number] = path
                lost.pop(number)
                return
            if number in changes.doubtful:  # it is being overwritten: its content may have moved here
                changes.unfinished.append(DataError(f"shard '{path}' may be '{before}', which is being overwritten"))
                return
            if self._is_copy(path, stamp, changes.moved.get(number, before), changes):
                return
        if not any(self._is_copy(path, stamp, other, changes) for other in self._new[likeness]):
            self._new[likeness].append(path)
            changes.new.append(path)

    def _is_copy(self, path: Path, stamp: Stamp, original: Path, changes: Changes) -> bool:
        if _folder_columns(path) != _folder_columns(original) or not same_content(path, original):
            return False
        self._copies[path] = stamp, original
        changes.copies.append((path, original))
        return True


def content_of(path: ShardPath, shard: Shard | None = None) -> str:
    """Equal for the same rows at the same or another place. `shard`: what is known of the path, or else it is read."""
    if isinstance(path, RemoteObject):
        return f"{path.address} {path.size} {path.version}"
    found, content = (shard.fingerprint, shard.content) if shard else (fingerprint_of(path), content_digest(path))
    return " ".join(map(str, (*_likeness(found, content), *_folder_columns(path))))


def _likeness(found: Fingerprint, content: str) -> _Likeness:
    return found.size, found.footer_digest, content


def _folder_columns(path: Path) -> tuple[str, ...]:
    """Columns can come from the names of folders, so the same bytes in another folder may be other rows."""
    return tuple(part for part in path.parts[:-1] if "=" in part)
