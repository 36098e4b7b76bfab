"""The memory of this process, now and at its peak."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_MACHINE = Path("/proc/meminfo")


def _kilobytes(source: Path, field: str) -> int | None:
    try:
        for line in source.read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def peak_rss_bytes() -> int:
    # VmHWM and not getrusage, whose peak a child inherits from a large parent.
    peak = _kilobytes(_STATUS, "VmHWM")
    if peak is not None:
        return peak * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def rss_bytes() -> int:
    now = _kilobytes(_STATUS, "VmRSS")
    return now * 1024 if now is not None else peak_rss_bytes()


def available_bytes() -> int | None:
    """Memory that is free without swapping; None where the system does not report it."""
    available = _kilobytes(_MACHINE, "MemAvailable")
    return None if available is None else available * 1024
