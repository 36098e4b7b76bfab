"""The command line: parses options, calls the Python API, prints results."""

from __future__ import annotations

import os
import sys


def main() -> None:
    # Arrow's default allocator returns memory between batches and requests it again: a third of the time of reading a
    # wide table.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        from streampgs.cli.main import run_commands

        run_commands()
    except KeyboardInterrupt:  # while Python still imports modules
        sys.exit(130)
