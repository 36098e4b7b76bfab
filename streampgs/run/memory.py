"""The memory of this process, now and at its peak, and how much it may take.

The machine, control groups (containers) and `ulimit -v` each set a bound.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_STATUS = Path("/proc/self/status")
_ROOT = Path("/")
_NO_LIMIT = 1 << 60  # version 1 writes a number near 2^63


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


# Bounds.


@dataclass(frozen=True)
class Bound:
    """What holds this process to so many bytes, in words."""

    name: str
    limit: int
    free: int
    """Bytes that the process can still take."""


def bounds(root: Path = _ROOT) -> list[Bound]:
    """All that are known. `root` stands for the root of the file system."""
    return [*_of_machine(root), *_of_control_groups(root), *_of_address_space()]


def available_bytes() -> int | None:
    """Memory that the process can still take without swapping; None where the system does not report it."""
    return min((bound.free for bound in bounds()), default=None)


def tightest(root: Path = _ROOT) -> Bound | None:
    """The bound with the lowest limit."""
    return min(bounds(root), key=lambda bound: bound.limit, default=None)


def _of_machine(root: Path) -> Iterator[Bound]:
    facts = root / "proc/meminfo"
    total, available = _kilobytes(facts, "MemTotal"), _kilobytes(facts, "MemAvailable")
    if total is not None and available is not None:
        yield Bound("the machine", total * 1024, available * 1024)
    elif root == _ROOT and "SC_PHYS_PAGES" in os.sysconf_names:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        yield Bound("the machine", size, max(0, size - rss_bytes()))


def _of_address_space() -> Iterator[Bound]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    taken = _kilobytes(_STATUS, "VmSize")
    if limit != resource.RLIM_INFINITY and taken is not None:
        yield Bound("ulimit -v", limit, max(0, limit - taken * 1024))


@dataclass(frozen=True)
class _Version:
    """The files of a version of control groups."""

    limit: str
    usage: str
    cached: tuple[str, ...]
    """In memory.stat: file contents in memory, which the system drops when memory is needed."""


_VERSIONS = {
    "cgroup": _Version(
        "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
    ),
    "cgroup2": _Version("memory.max", "memory.current", ("inactive_file", "active_file")),
}  # fmt: skip


def _of_control_groups(root: Path) -> Iterator[Bound]:
    """The bounds of the group of this process and of all groups around it."""
    for kind, folder, top in _group_folders(root):
        version = _VERSIONS[kind]
        for place in (folder, *folder.parents):
            limit = _number_in(place / version.limit)
            if limit is not None and limit < _NO_LIMIT:
                used = (_number_in(place / version.usage) or 0) - _cached(place / "memory.stat", version.cached)
                yield Bound("the control group (container)", limit, max(0, limit - max(0, used)))
            if place == top:
                break


def _group_folders(root: Path) -> Iterator[tuple[str, Path, Path]]:
    """The kind of each hierarchy that counts memory, the folder of this process's group, and the topmost folder."""
    own = {}
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            own["cgroup2" if number == "0" else "cgroup"] = PurePosixPath(path)
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, file_system = line.partition(" - ")
        kind, options = file_system.split()[0], file_system.split()[-1].split(",")
        if kind not in own or (kind == "cgroup" and "memory" not in options):
            continue
        # In a container the mounted hierarchy may begin at the container's group.
        begins, top = PurePosixPath(mount.split()[3]), root / mount.split()[4].lstrip("/")
        group = own[kind]
        yield kind, top / (group.relative_to(begins) if group.is_relative_to(begins) else "."), top


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number_in(path: Path) -> int | None:
    """None: there is no such file, or it says 'max'."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _cached(statistics: Path, names: tuple[str, ...]) -> int:
    found = dict(line.split(" ", 1) for line in _lines(statistics))
    return sum(int(found.get(name, 0)) for name in names)
