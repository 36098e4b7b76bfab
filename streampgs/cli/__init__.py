"""The command line: parses options, calls the Python API, prints results."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType


def main() -> None:
    sys.meta_path.insert(0, _WithoutPandas)
    # Arrow's default allocator returns memory between batches and requests it again: a third of the time of reading a
    # wide table.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        from streampgs.cli.main import run_commands

        run_commands()
    except KeyboardInterrupt:  # while Python still imports modules
        sys.exit(130)


class _WithoutPandas:
    """pyarrow imports pandas, if it is installed, when it makes its first array: a quarter of the time of a start, and
    at least 30 MB. No command needs it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the command line does without pandas", name=name)
