"""Where a Parquet footer has its row groups, and the footer of a single one.

pyarrow parses a footer as a whole: for hundreds of row groups of hundreds of columns that takes tens of megabytes and
milliseconds, for each file that is open or for each group that is read. Here a footer is read once from front to back, in
pieces, and only the place of each row group is kept. A group is then decoded with a footer that lists no other group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampgs.base.errors import DataError
from streampgs.formats.format import Damaged, FooterPlace, Ints, Seen, ShardFile, ShardPath
from streampgs.kernels import footer_loop

MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_PIECE_BYTES = 1 << 21
_LARGEST_PART = 1 << 28
"""Bytes of a row group or of a field in a footer. pyarrow allows no longer ones either."""
_LENGTH_BYTES = 4
_ROW_GROUPS, _ENCRYPTION = 4, 8
"""Numbers of fields in parquet.thrift."""
_GROUPS_AT_ONCE = 1 << 10
_plain_bytes_left = 1 << 17
"""The loops walk through so many bytes as plain Python, which takes a tenth of a second. Compiling them takes four."""
_NO_GROUPS, _ONE_GROUP = bytes([footer_loop.STRUCT]), bytes([1 << 4 | footer_loop.STRUCT])


class _Walk:
    """Runs the loops over so many bytes of a footer: as plain Python if there are few of them, with all that came before."""

    def __init__(self, size: int) -> None:
        global _plain_bytes_left
        self._is_plain = size <= _plain_bytes_left
        _plain_bytes_left = max(0, _plain_bytes_left - size)
        if not _plain_bytes_left:  # compiled now: memory is forecast when all footers have been read
            footer_loop.hide_size_statistics(np.zeros(1, np.uint8))

    def __call__(self, loop: Callable[..., Any], *arguments: Any) -> Any:
        return _called(loop, self._is_plain, *arguments)


def _called(loop: Callable[..., Any], is_plain: bool, *arguments: Any) -> Any:
    if not is_plain:
        return loop(*arguments)
    with np.errstate(over="ignore"):
        return getattr(loop, "py_func", loop)(*arguments)


def encrypted(path: ShardPath) -> DataError:
    return DataError(f"shard '{path}' is encrypted, and no keys can be given", "write the file without encryption")


@dataclass(frozen=True)
class FooterMap:
    """Places in the file. The footer of a group is its head, a list of one group, and its tail."""

    head: tuple[int, int]
    """[start, stop): all fields before the list of row groups."""
    tail: tuple[int, int]
    """The fields behind it."""
    starts: Ints
    """Where each row group starts, and where the last one ends."""
    rows: Ints

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.rows.nbytes

    def footer_of(self, file: ShardFile, group: int | None) -> bytes:
        """A footer with one row group, or with none, as a file of that footer alone would have it."""
        parts = [self.head, self.tail]
        if group is not None:
            parts.append((int(self.starts[group]), int(self.starts[group + 1])))
        head, tail, *groups = file.read_all([(stop - start, start) for start, stop in parts])
        group_bytes = np.frombuffer(bytearray(b"".join(groups)), np.uint8)
        is_plain = _plain_bytes_left > 0
        reason = _called(footer_loop.hide_size_statistics, is_plain, group_bytes) if groups else 0
        if reason:
            raise Damaged(footer_loop.REASONS[int(reason)])
        footer = head + (_ONE_GROUP if groups else _NO_GROUPS) + group_bytes.tobytes() + tail
        return MAGIC + footer + len(footer).to_bytes(_LENGTH_BYTES, "little") + MAGIC


def read_map(file: ShardFile, place: FooterPlace, seen: Seen) -> FooterMap:
    """`seen` is given all bytes from the footer to the end of the file, in their order."""
    footer = _Pieces(file, place.start, place.stop, seen)
    head = groups = None
    number = 0
    while True:
        number, kind = footer.take(footer_loop.next_field, number)
        if not kind:
            break
        if number == _ENCRYPTION:
            raise encrypted(file.path)
        if number != _ROW_GROUPS:
            footer.take(footer_loop.skip_value, kind)
        elif groups is not None:
            raise Damaged("it has two lists of row groups")
        else:
            head = place.start, footer.place
            groups = _Groups(footer, kind)
    if head is None or groups is None:
        raise Damaged("it has no list of row groups")
    stop = footer.place
    footer.finish(file.size)
    return FooterMap(head, (int(groups.starts[-1]), stop), groups.starts, groups.rows)


def values_of_column(file: ShardFile, groups: FooterMap, leaf: int) -> Ints:
    """The number of values of the `leaf`th column in each row group."""
    first, stop = int(groups.starts[0]), int(groups.starts[-1])
    return _values(_Pieces(file, first, stop, lambda _: None), len(groups.rows), leaf)[2]


class _Pieces:
    """The bytes [start, stop) of a file from front to back, a few at a time."""

    def __init__(self, file: ShardFile, start: int, stop: int, seen: Seen) -> None:
        self._file, self._seen = file, seen
        self._next, self._stop = start, stop
        self.walk = _Walk(stop - start)
        self.data = np.empty(0, np.uint8)
        self.at = 0
        """The number of bytes of `data` that are done with."""

    @property
    def place(self) -> int:
        """In the file."""
        return self._next - len(self.data) + self.at

    @property
    def left(self) -> int:
        return self._stop - self.place

    def take(self, loop: Callable[..., Sequence[int]], *arguments: int) -> list[int]:
        """The results of a loop that reads the next bytes. Its last result is the place where it stopped."""
        while True:
            *found, end = map(int, self.walk(loop, self.data, self.at, *arguments))
            if end >= 0:
                self.at = end
                return found
            self.read_on(end)

    def read_on(self, reason: int) -> None:
        """After a loop has stopped for this reason: more bytes, if there are more and they can help."""
        if reason != footer_loop.SHORT or self._next == self._stop:
            raise Damaged(footer_loop.REASONS[reason])
        kept = self.data[self.at :]
        if len(kept) > _LARGEST_PART:
            raise Damaged(f"a part of it has more than {_LARGEST_PART >> 20} MiB")
        size = min(max(_PIECE_BYTES, len(kept)), self._stop - self._next)
        data = np.empty(len(kept) + size, np.uint8)
        data[: len(kept)] = kept
        self._file.read_into(data[len(kept) :], self._next)
        self._seen(data[len(kept) :])
        self._next += size
        self.data, self.at = data, 0

    def finish(self, stop: int) -> None:
        """Show the rest."""
        while self._next < stop:
            data = self._file.read(min(_PIECE_BYTES, stop - self._next), self._next)
            self._seen(data)
            self._next += len(data)


def _values(footer: _Pieces, count: int, leaf: int) -> tuple[Ints, Ints, Ints]:
    """Where each of so many row groups ends, its rows, and the number of values of a column (-1: of none)."""
    found: list[tuple[Ints, Ints, Ints]] = [(np.empty(0, np.int64),) * 3]
    while count:
        ends, rows, values = (np.empty(min(count, _GROUPS_AT_ONCE), np.int64) for _ in range(3))
        done, reason = footer.walk(footer_loop.row_groups, footer.data, footer.at, leaf, ends, rows, values)
        if done:
            found.append((ends[:done] + (footer.place - footer.at), rows[:done], values[:done]))
            footer.at = int(ends[done - 1])
        if reason:
            footer.read_on(reason)
        count -= done
    ends, rows, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return ends, rows, values


class _Groups:
    """The list of row groups that comes next in a footer."""

    def __init__(self, footer: _Pieces, kind: int) -> None:
        (count,) = footer.take(footer_loop.list_of_structs, kind)
        if count > footer.left:
            raise Damaged("a list longer than the footer")
        first = footer.place
        ends, self.rows, _ = _values(footer, count, -1)
        self.starts = np.concatenate([[first], ends]).astype(np.int64)
