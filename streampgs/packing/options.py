"""The options of a pack."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streampgs.base.errors import BadValue, OptionError
from streampgs.options.commands import MOST_SEED, ON_BAD_ROW, SMALLEST_MEMORY
from streampgs.options.fields import (
    COMMON,
    DATA,
    RESOURCES,
    Checked,
    Choice,
    FilePath,
    Flag,
    Listed,
    Number,
    Repeated,
    Size,
    Text,
    option,
    values_of,
)
from streampgs.packing.kinds import KINDS

FORMATS = ("arrow", "parquet")
TYPES = ("int64", "int32", "double", "float", "string", "bool", "date", "timestamp")
DEFAULT_BLOCK_BYTES = 1 << 20
DEFAULT_SHARD_BYTES = 1 << 27
_BLOCK = Size(low=1 << 12, high=1 << 28)


@dataclass(frozen=True)
class _Types(Text):
    """A type for each of some columns."""

    symbol: str = "COLUMN=TYPE,…"

    def read(self, value: Any) -> tuple[tuple[str, str], ...]:
        if isinstance(value, str):
            parts = (part.rpartition("=") for part in value.split(",") if part)
            pairs = [(name.strip(), kind.strip()) for name, _, kind in parts]
        else:
            pairs = list(value.items() if isinstance(value, dict) else values_of(value))
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 and all(pair) for pair in pairs):
            raise BadValue(value, "is not a list of types", "write it like age=int64,zip=string")
        return tuple(sorted((name, Choice(names=TYPES).read(kind)) for name, kind in pairs))


@dataclass(frozen=True)
class _Delimiter(Text):
    symbol: str = "C"

    def read(self, value: Any) -> str:
        character = "\t" if isinstance(value, str) and value == "\\t" else str(value)
        if not isinstance(value, str) or len(character.encode()) != 1:
            raise BadValue(value, "is not one byte", "give a single character, like ';'")
        return character


@dataclass(frozen=True)
class PackOptions(Checked):
    """The files to read, and the content of the shards."""

    # fmt: off
    kind: str | None = option(None, Choice("KIND", KINDS), COMMON, f"Kind of the inputs: {', '.join(KINDS)}.",
        flag="--from", shown="detected by file names")
    names: tuple[str, ...] | None = option(None, Listed(of=Text("NAME"), always=True), DATA,
        "Names of the columns, instead of those in the header.")
    skip_lines: int = option(0, Number("N", 0, whole=True), DATA, "Lines to leave out at the start of each text file.")
    delimiter: str | None = option(None, _Delimiter(), DATA, "Character between columns.", shown="comma, or tab for .tsv")
    types: tuple[tuple[str, str], ...] = option((), _Types(), DATA,
        f"Types of columns, instead of those found: {', '.join(TYPES)}.")
    nulls: tuple[str, ...] | None = option(None, Repeated(of=Text()), DATA,
        "Text that marks a missing value. Can be repeated.", flag="--null",
        shown="empty, NA, null and similar ones, except in columns of strings")
    labels: str | None = option(None, FilePath("FILE"), DATA,
        "File with a number for each row, one per line or .npy: becomes the column 'label'.")
    on_bad_row: str = option("error", ON_BAD_ROW, DATA,
        "At a row that cannot be read: stop (error), or leave it out and count it (skip).")
    no_header: bool = option(False, Flag(), DATA, "For CSV: the first line is a row, not the names of the columns.")
    format: str = option("arrow", Choice(names=FORMATS), COMMON, "Format of the shards.")
    rows_per_shard: int | None = option(None, Number("N", 1, whole=True), RESOURCES, "Rows per shard.",
        shown="as many as fit into 134MB")
    block_bytes: int = option(DEFAULT_BLOCK_BYTES, _BLOCK, RESOURCES, "Size of a record batch.")
    shuffle: bool = option(False, Flag(), COMMON, "Write the rows in random order, for data that are sorted, say by label.")
    seed: int = option(0, Number("N", 0, MOST_SEED, whole=True), COMMON, "Seed of --shuffle.")
    memory: int = option(512 * 10**6, Size(low=SMALLEST_MEMORY), COMMON, "Memory for rows. Python needs more on top.")
    sql: str | None = option(None, Text("QUERY"), COMMON,
        "Pack the result of a DuckDB query, which names files itself. Needs the extra streampgs[sql].")
    overwrite: bool = option(False, Flag(), COMMON, "Replace the shards of an earlier pack in the folder.")
    # fmt: on

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.labels, Path):
            object.__setattr__(self, "labels", os.path.abspath(self.labels))
        if self.labels is not None and self.skips_bad_rows:
            raise OptionError(
                "labels in a file of their own cannot be matched to rows when bad rows are left out",
                "fix the bad rows, or put the labels into the file of the features",
            )

    @property
    def skips_bad_rows(self) -> bool:
        return self.on_bad_row == "skip"
