"""The command line: words in, words and JSON out. Everything else happens elsewhere."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from streampgs.cli.main import run_commands

        run_commands()
    except KeyboardInterrupt:  # in the first moments, while Python still reads its files
        sys.exit(130)
