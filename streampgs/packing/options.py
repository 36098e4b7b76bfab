"""The options of a pack, checked once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streampgs.errors import OptionError
from streampgs.options import SMALLEST_MEMORY
from streampgs.packing.kinds import KINDS

FORMATS = ("arrow", "parquet")
TYPES = ("int64", "int32", "double", "float", "string", "bool", "date", "timestamp")
DEFAULT_BLOCK_BYTES = 1 << 20
DEFAULT_SHARD_BYTES = 1 << 27
_SMALLEST_BLOCK = 1 << 12
_LARGEST_BLOCK = 1 << 28


@dataclass(frozen=True)
class PackOptions:
    """All of them decide what the shards hold; `memory` does so only together with `shuffle`."""

    kind: str | None = None
    """The kind of all inputs; None: detected by name or content."""
    header: bool = True
    names: tuple[str, ...] | None = None
    skip_lines: int = 0
    delimiter: str | None = None
    types: tuple[tuple[str, str], ...] = ()
    nulls: tuple[str, ...] | None = None
    """Cells that mean a missing value; None: the usual ones, except in columns of strings."""
    labels: str | None = None
    """A file with a number for each row."""
    on_bad_row: str = "error"
    format: str = "arrow"
    rows_per_shard: int | None = None
    block_bytes: int = DEFAULT_BLOCK_BYTES
    shuffle: bool = False
    seed: int = 0
    memory: int = 512 * 10**6

    def __post_init__(self) -> None:
        for what, word, known in (
            ("kind of input", self.kind, (None, *KINDS)),
            ("format", self.format, FORMATS),
            ("treatment of bad rows", self.on_bad_row, ("error", "skip")),
            *((f"type of column {name!r}", kind, TYPES) for name, kind in self.types),
        ):
            if word not in known:
                choices = ", ".join(choice for choice in known if choice is not None)
                raise OptionError(f"the {what} {word!r} is unknown", f"choose one of {choices}")
        for what, number, least, most in (
            ("number of lines to skip", self.skip_lines, 0, None),
            ("rows a shard", self.rows_per_shard, 1, None),
            ("size of a block", self.block_bytes, _SMALLEST_BLOCK, _LARGEST_BLOCK),
            ("seed", self.seed, 0, (1 << 64) - 1),
            ("memory budget", self.memory, SMALLEST_MEMORY, None),
        ):
            if number is not None and (number < least or (most is not None and number > most)):
                bounds = f"from {least:,} to {most:,}" if most is not None else f"of at least {least:,}"
                raise OptionError(f"the {what}, {number:,}, is out of range", f"choose one {bounds}")
        if self.delimiter is not None and len(self.delimiter.encode()) != 1:
            raise OptionError(f"the delimiter {self.delimiter!r} is not one byte", "give a single character, like ';'")
        if self.labels is not None and self.skips_bad_rows:
            raise OptionError(
                "labels in a file of their own cannot be matched to rows when bad rows are left out",
                "fix the bad rows, or put the labels into the file of the features",
            )
        if self.names is not None and len(set(self.names)) != len(self.names):
            raise OptionError("a name is repeated in --names", "give each column a name of its own")

    @property
    def skips_bad_rows(self) -> bool:
        return self.on_bad_row == "skip"

    def to_json(self) -> dict[str, Any]:
        """The options that must match to resume."""
        record = asdict(self)
        del record["memory"]
        record["types"] = [list(pair) for pair in self.types]
        record["names"] = None if self.names is None else list(self.names)
        record["nulls"] = None if self.nulls is None else list(self.nulls)
        return record
