"""Decoded groups kept on disk: each group is decoded once, later passes read any slice of it at Arrow's speed.

A cache file has its slices one after the other, each packed, and then an index with checksums for each. Damaged files are
deleted and decoded again: a damaged cache costs time but never changes bits.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import refuse_other_format
from streampgs.base.errors import DataError, RunError, Unreadable
from streampgs.base.faults import remedy
from streampgs.base.files import new_file, remove_leftovers
from streampgs.encoding.rows import RowBlock
from streampgs.formats.format import Bytes, Damaged
from streampgs.formats.local import LocalFile
from streampgs.kernels.randomness import checksum
from streampgs.reading.decode import Group
from streampgs.reading.packed_rows import lengths_of, packed, unpacked
from streampgs.reading.reused import Scratch
from streampgs.table.catalog import Shard

_MAGIC = b"spgcach"
_DIGITS = 32  # of the digest of a shard, in the name of its file
_NAME = re.compile(rf"[0-9a-f]{{{_DIGITS}}}-\d+-\d+\.rows")
FORMAT = 4
_FORMAT = b"%d" % FORMAT
_TAIL = np.dtype([("slices", "<u8"), ("index_checksum", "<u8"), ("magic", "S7"), ("format", "S1")])
_INDEX = np.dtype(
    [
        ("offset", "<i8"),
        ("bytes", "<i8"),
        ("rows", "<i8"),
        ("checksum", "<u8"),
        ("head", "<i8"),
        ("head_checksum", "<u8"),
    ]
)
"""The head of a slice has the lengths of its rows."""


@dataclass
class CacheFile:
    """One decoded group, open for reading."""

    path: Path
    file: LocalFile
    index: NDArray[np.void]

    def announce(self, number: int) -> None:
        """Ask for the bytes of slice `number`."""
        entry = self.index[number]
        self.file.announce(int(entry["offset"]), int(entry["bytes"]))

    def lengths(self, number: int, scratch: Scratch) -> NDArray[np.int64]:
        """Lengths of the sparse rows of slice `number`."""
        entry = self.index[number]
        return lengths_of(self._checked(int(entry["offset"]), int(entry["head"]), entry["head_checksum"], scratch))

    def rows_of(self, number: int, scratch: Scratch) -> RowBlock:
        entry = self.index[number]
        data = self._checked(int(entry["offset"]), int(entry["bytes"]), entry["checksum"], scratch)
        return unpacked(data, scratch.take)

    def _checked(self, offset: int, size: int, expected: int, scratch: Scratch) -> Bytes:
        data = self._read(offset, size, scratch)
        if checksum(data) != expected:
            raise Damaged("a checksum that does not match")
        return data

    def _read(self, offset: int, size: int, scratch: Scratch) -> Bytes:
        target = scratch.take(size)
        try:
            with _may_be_deleted():
                self.file.read_into(target, offset)
        except DataError as error:
            raise Damaged(str(error)) from error
        return target

    def close(self) -> None:
        with suppress(OSError):  # it has been read all the same
            self.file.close()


@contextmanager
def _may_be_deleted() -> Iterator[None]:
    """A file that cannot be read may be sound, so it is not deleted here; but a user may do it."""
    try:
        yield
    except Unreadable as error:
        error.say(error.found, f"{error.remedy}; if the file is deleted, its rows are decoded again")
        raise


def _digest_of(shard: Shard) -> str:
    return hashlib.sha256(shard.identity.encode() + os.fsencode(str(shard.path))).hexdigest()[:_DIGITS]


def remove_unused(folder: Path, used: Iterable[Shard], gone: Iterable[Shard] | None) -> None:
    """Remove the blocks of shards that are no longer read. `gone`: these shards, where other runs have blocks in the folder,
    too; None: all that are not used."""
    kept = {_digest_of(shard) for shard in used}
    unwanted = None if gone is None else {_digest_of(shard) for shard in gone} - kept
    for name in os.listdir(folder):
        digest = name[:_DIGITS]
        is_unused = digest not in kept if unwanted is None else digest in unwanted
        if is_unused and _NAME.fullmatch(name):
            (folder / name).unlink()


class BlockCache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rebuilt = 0
        """How many damaged files were decoded again."""
        remove_leftovers(folder, f".{'[0-9a-f]' * _DIGITS}-*-*.rows-*-*")

    def path(self, group: Group) -> Path:
        return self.folder / f"{_digest_of(group.shard)}-{group.in_file}-{group.slice_rows}.rows"

    def open(self, group: Group) -> CacheFile | None:
        """The group's cache file; None if it is missing or damaged."""
        path = self.path(group)
        with _may_be_deleted():
            try:
                file = LocalFile(path, "cache file")
            except FileNotFoundError:
                return None
            except OSError:  # not a file
                self.discard(path)
                return None
        try:
            with _may_be_deleted():
                return _open(path, file, group)
        except (Damaged, DataError):
            file.close()
            self.discard(path)
            return None
        except BaseException:
            file.close()
            raise

    def discard(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.rebuilt += 1

    def write(self, group: Group, slices: Iterable[RowBlock]) -> None:
        """Write a decoded group, under a temporary name until it is complete."""
        path = self.path(group)
        temporary = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(new_file(temporary), "wb") as file:
                entries: list[tuple[int, ...]] = []
                for block in slices:
                    data, head = packed(block)
                    sums = [checksum(np.frombuffer(data, np.uint8)[:size]) for size in (len(data), head)]
                    entries.append((file.tell(), len(data), block.num_rows, sums[0], head, sums[1]))
                    file.write(data)
                index = np.array(entries, _INDEX)
                file.write(index.tobytes())
                file.write(np.array([(len(index), _of(index, _FORMAT), _MAGIC, _FORMAT)], _TAIL).tobytes())
                file.flush()
                temporary.rename(path)
        except OSError as error:
            raise RunError(
                f"the cache in '{self.folder}' cannot be written: {error.strerror or error}",
                f"{remedy(error)}, or name another place with `--cache DIR`; then resume",
            ) from error
        finally:
            with suppress(OSError):  # it usually has its final name by now
                temporary.unlink()


def _of(index: NDArray[np.void], written_as: bytes) -> int:
    return checksum(np.frombuffer(index.tobytes() + written_as, np.uint8))


def _open(path: Path, file: LocalFile, group: Group) -> CacheFile:
    size = file.size
    if size < _TAIL.itemsize:
        raise Damaged("too short")
    tail = np.frombuffer(file.read(_TAIL.itemsize, size - _TAIL.itemsize), np.uint8)
    (slices, index_checksum, magic, written_as) = tail.view(_TAIL)[0]
    index_bytes = int(slices) * _INDEX.itemsize
    if magic != _MAGIC or index_bytes + _TAIL.itemsize > size:
        raise Damaged("no index at its end")
    raw = file.read(index_bytes, size - _TAIL.itemsize - index_bytes)
    index = np.frombuffer(raw, _INDEX)
    if _of(index, written_as) != int(index_checksum):
        raise Damaged("an index that does not match")
    if not written_as.isdigit() or int(written_as) < FORMAT:
        raise Damaged("an old format")
    refuse_other_format(path, int(written_as), FORMAT)
    expected = [min(group.slice_rows, group.rows - start) for start in range(0, group.rows, group.slice_rows)]
    if index["rows"].tolist() != expected:
        raise Damaged("an index that does not match")
    return CacheFile(path, file, index)
