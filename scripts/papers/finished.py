"""Finished cells of a benchmark, one JSON line each, so that a benchmark can be continued after an interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


class Finished:
    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        """Two cells are the same if they agree in `names`."""
        self._path, self._names = path, names
        self.cells: list[Cell] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                self.cells.append(json.loads(line))
            except json.JSONDecodeError:
                break  # the line that was being written when the benchmark was killed
        self._write("w", self.cells)

    def __contains__(self, cell: Cell) -> bool:
        return bool(self.like([cell]))

    def like(self, wanted: list[Cell]) -> list[Cell]:
        """The finished ones among these cells."""
        keys = [[cell[name] for name in self._names] for cell in wanted]
        return [cell for cell in self.cells if [cell[name] for name in self._names] in keys]

    def add(self, cell: Cell) -> None:
        self.cells.append(cell)
        self._write("a", [cell])

    def _write(self, mode: str, cells: list[Cell]) -> None:
        with open(self._path, mode) as file:
            file.writelines(json.dumps(cell) + "\n" for cell in cells)
