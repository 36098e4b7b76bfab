"""The folder of shards that a simulated run trains on, and what its owner does to it."""

from __future__ import annotations

from random import Random

from tests.faults.simulator.disk import Disk
from tests.faults.simulator.nodes import File, Node
from tests.faults.simulator.shards import SUFFIX, Content

MOST_SHARDS = 9


class TableFolder:
    """Its files are always durable: a power failure concerns the run."""

    def __init__(self, disk: Disk, path: str, random: Random, classes: int, columns: int) -> None:
        """`classes`: how many labels there are at first; 0: the labels are numbers. `columns`: those that are encoded; 0: rows
        are lists of features."""
        disk.mkdir(path)
        self._disk, self.path, self._random, self._classes = disk, path, random, classes
        self._columns = columns
        self._made = 0
        self._rows = 0
        disk.root.sync()
        disk.folder("/".join(path.split("/")[:-1])).sync()

    @property
    def names(self) -> dict[str, Node]:
        return self._disk.folder(self.path).names

    def move_to(self, disk: Disk) -> None:
        """Another disk with an empty folder of this name."""
        self._disk = disk

    def show(self, names: dict[str, Node]) -> None:
        """Have these files from now on."""
        folder = self._disk.folder(self.path)
        folder.names, folder.durable = dict(names), dict(names)
        folder.unsynced.clear()

    # Shards.

    def _new(self) -> File:
        random = self._random
        self._made += 1
        most = max(1, min(9, 60 - self._rows // 4))
        rows = tuple(random.randint(0, most) for _ in range(random.choice((1, 1, 2, 3))))
        if self._made == 1 and not any(rows):
            rows = (random.randint(1, most),)
        self._rows += sum(rows)
        labels = tuple(float(label) for label in range(self._classes)) or (0.5, 2.0)
        if self._classes and self._made > 2 and random.random() < 0.3:
            self._classes += 1
            labels = (*labels, float(self._classes - 1))
        if self._classes and self._made == 1:
            rows = (max(rows[0], self._classes), *rows[1:])
        if self._columns and self._made > 2 and random.random() < 0.3:
            self._columns += 1
        content = Content(
            self._made, rows, labels, 1 + random.randrange(1 + self._made), random.random() < 0.4,
            random.choice((500, 2700, 5000)), self._columns,
        )  # fmt: skip
        data = content.to_bytes()
        return File(bytearray(data), data, modified_ns=self._disk.now(), links=1)

    def add(self) -> str:
        name = f"{self._random.choice('abc')}{self._made:02d}{SUFFIX}"
        self._put({name: self._new()})
        return f"add {name}"

    def _put(self, changes: dict[str, Node | None]) -> None:
        names = dict(self.names)
        for name, node in changes.items():
            if node is None:
                names.pop(name)
            else:
                names[name] = node
        self.show(names)

    def change(self) -> str:
        """Something that happens to a table: mostly it grows."""
        random, names = self._random, sorted(self.names)
        fate = random.random()
        if (fate < 0.6 or len(names) < 2) and self._made < MOST_SHARDS:
            return self.add()
        name = random.choice(names)
        node = self.names[name]
        assert isinstance(node, File)
        if fate < 0.7:
            new = f"moved{self._disk.now() % 1000:03d}{SUFFIX}"
            self._put({name: None, new: node})
            return f"rename {name} {new}"
        if fate < 0.8:
            self._put({name: File(bytearray(node.data), node.durable, modified_ns=self._disk.now(), links=1)})
            return f"rewrite {name} with the same content"
        if fate < 0.85:
            copy = File(bytearray(node.data), node.durable, modified_ns=self._disk.now(), links=1)
            self._put({f"copy{self._disk.now() % 1000:03d}{SUFFIX}": copy})
            return f"copy {name}"
        if fate < 0.93 and len(names) > 1:
            self._put({name: None})
            return f"remove {name}"
        if self._made < MOST_SHARDS:
            self._put({name: self._new()})
            return f"replace {name}"
        return "nothing"
