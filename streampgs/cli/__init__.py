"""The command line: words in, words and JSON out. Everything else happens elsewhere."""

from __future__ import annotations

import os
import sys


def main() -> None:
    # Arrow's usual allocator gives memory back between one batch of columns and the next, and fetches it anew: a third of
    # the time of reading a wide table.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        from streampgs.cli.main import run_commands

        run_commands()
    except KeyboardInterrupt:  # in the first moments, while Python still reads its files
        sys.exit(130)
