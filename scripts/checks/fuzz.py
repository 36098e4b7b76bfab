"""Read real files with random damage. `python -m scripts.checks.fuzz --files 1000` reads so many of each kind; a fault is printed
with its number, and `--first NUMBER --files 1 --only KIND` repeats it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.faults.torture.mutations import PACKED, SHARDS, read_mutations

_AT_ONCE = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    for packed, kinds in ((False, SHARDS), (True, PACKED)):
        for name, make in kinds.items():
            if asked.only in name:
                found: Counter[str] = Counter()
                for first in range(asked.first, asked.first + asked.files, _AT_ONCE):
                    numbers = range(first, min(first + _AT_ONCE, asked.first + asked.files))
                    with tempfile.TemporaryDirectory() as folder:
                        found += read_mutations(name, make, packed, numbers, Path(folder))
                faults = [key for key in found if key not in ("read", "refused")]
                print(f"{name}: {found['read']} read, {found['refused']} refused, {len(faults)} faults", flush=True)
                for fault in faults:
                    print(f"  {fault}", flush=True)
                total.update({"read": found["read"], "refused": found["refused"], "faults": len(faults)})
    print(", ".join(f"{count} {what}" for what, count in total.items()))
    return 1 if total["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
