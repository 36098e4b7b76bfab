"""Files and folders of the simulated disk: what programs see, and what survives a power failure."""

from __future__ import annotations

import itertools
import os
import stat
from dataclasses import dataclass, field
from random import Random

_BLOCK_BYTES = 512
"""A write is torn between two of these."""
_numbers = itertools.count(1)


@dataclass(eq=False)
class File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, bytes) of each write since the last fsync; None: the file was cut there."""
    number: int = field(default_factory=lambda: next(_numbers))
    modified_ns: int = 0
    links: int = 0

    def write(self, position: int, content: bytes) -> None:
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(content)] = content
        self.unsynced.append((position, content))

    def cut(self, size: int) -> None:
        del self.data[size:]
        self.unsynced.append((size, None))

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.unsynced.clear()

    def lose_power(self, random: Random) -> None:
        if not self.unsynced:
            return
        survivor = File(bytearray(self.durable))
        for position, content in self.unsynced:
            fate = random.random()
            if fate < 0.4:
                continue
            if content is None:
                survivor.cut(position)
            else:
                torn = fate < 0.7
                blocks = -(-len(content) // _BLOCK_BYTES)
                kept = random.randrange(blocks + 1) * _BLOCK_BYTES if torn else len(content)
                survivor.write(position, content[:kept])
        self.data = survivor.data
        self.sync()


@dataclass(eq=False)
class Folder:
    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    unsynced: list[tuple[tuple[str, Node | None], ...]] = field(default_factory=list)
    """Changes since the last fsync; each happens as a whole."""
    number: int = field(default_factory=lambda: next(_numbers))
    modified_ns: int = 0
    links: int = 1

    def change(self, *changes: tuple[str, Node | None]) -> None:
        _apply(self.names, changes)
        self.unsynced.append(changes)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.unsynced.clear()

    def lose_power(self, random: Random) -> None:
        if self.unsynced:
            for changes in self.unsynced:
                if random.random() < 0.5:
                    _apply(self.durable, changes)
            self.unsynced.clear()
            self.names = dict(self.durable)
        for node in self.names.values():
            node.lose_power(random)


Node = File | Folder


def _apply(names: dict[str, Node], changes: tuple[tuple[str, Node | None], ...]) -> None:
    for name, node in changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def status_of(node: Node) -> os.stat_result:
    kind = stat.S_IFDIR | 0o755 if isinstance(node, Folder) else stat.S_IFREG | 0o644
    size = 0 if isinstance(node, Folder) else len(node.data)
    seconds, times = node.modified_ns // 10**9, node.modified_ns
    return os.stat_result(
        (kind, node.number, 1, node.links, 0, 0, size, seconds, seconds, seconds),
        {
            "st_mtime_ns": times, "st_ctime_ns": times, "st_atime_ns": times,
            "st_mtime": times / 1e9, "st_ctime": times / 1e9, "st_atime": times / 1e9, "st_blksize": 4096,
        },
    )  # fmt: skip
