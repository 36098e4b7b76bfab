"""The limits of a process: of the machine, of control groups of both versions, and of the address space."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from streampgs.run.memory import Bound, bounds, tightest

MB = 10**6
UNLIMITED = {"cgroup": str(9223372036854771712), "cgroup2": "max"}
FILES = {
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    "cgroup2": ("memory.max", "memory.current", "inactive_file"),
}
MOUNTS = {"cgroup": "/sys/fs/cgroup/memory", "cgroup2": "/sys/fs/cgroup"}


def machine(root: Path, total: int = 8_000 * MB, available: int = 6_000 * MB) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal:       {total // 1024} kB\nMemAvailable:   {available // 1024} kB\nMemFree: 1 kB\n"
    )
    return root


def in_group(root: Path, kind: str, path: str, begins: str = "/") -> Path:
    """A process in the group `path`, of a hierarchy whose mount begins at the group `begins`."""
    machine(root)
    mount = MOUNTS[kind]
    line = f"9:memory:{path}\n4:cpu,cpuacct:/\n" if kind == "cgroup" else f"0::{path}\n"
    (root / "proc/self/cgroup").write_text(line)
    options = "rw,memory" if kind == "cgroup" else "rw"
    (root / "proc/self/mountinfo").write_text(
        f"22 1 0:21 / /proc rw,nosuid shared:14 - proc proc rw\n"
        f"30 23 0:26 {begins} {mount} rw,relatime shared:9 - {kind} {kind} {options}\n"
        f"31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    )
    return root / mount.lstrip("/")


def limit(group: Path, kind: str, limit: int | None, used: int = 0, cached: int = 0) -> None:
    group.mkdir(parents=True, exist_ok=True)
    names = FILES[kind]
    (group / names[0]).write_text(f"{UNLIMITED[kind] if limit is None else limit}\n")
    (group / names[1]).write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"cache {cached}\n{names[2]} {cached}\nactive_anon 5\n")


def of_groups(root: Path) -> list[tuple[int, int]]:
    return [(bound.limit, bound.free) for bound in bounds(root) if "control group" in bound.name]


def test_the_machine_is_a_bound(tmp_path):
    [found] = [bound for bound in bounds(machine(tmp_path)) if bound.name == "the machine"]
    assert (found.limit // MB, found.free // MB) == (8_000, 6_000)
    assert of_groups(tmp_path) == []


@pytest.mark.parametrize("kind", FILES)
def test_the_limits_of_all_groups_around_the_process_count(kind, tmp_path):
    top = in_group(tmp_path, kind, "/batch/job/step")
    limit(top, kind, None)
    limit(top / "batch", kind, 4_000 * MB, used=3_900 * MB, cached=3_000 * MB)
    limit(top / "batch/job", kind, 400 * MB, used=150 * MB, cached=50 * MB)
    limit(top / "batch/job/step", kind, None)
    limit(top / "batch/other", kind, 1 * MB)
    assert of_groups(tmp_path) == [(400 * MB, 300 * MB), (4_000 * MB, 3_100 * MB)]
    assert tightest(tmp_path) == Bound("the control group (container)", 400 * MB, 300 * MB)


@pytest.mark.parametrize("kind", FILES)
def test_a_container_sees_its_own_group_as_the_top(kind, tmp_path):
    top = in_group(tmp_path, kind, "/docker/f00", begins="/docker/f00")
    limit(top, kind, 400 * MB, used=500 * MB)
    assert of_groups(tmp_path) == [(400 * MB, 0)]


@pytest.mark.parametrize("kind", FILES)
def test_a_group_outside_the_mount_counts_as_the_top(kind, tmp_path):
    top = in_group(tmp_path, kind, "/docker/f00/inner", begins="/elsewhere")
    limit(top, kind, 400 * MB)
    assert of_groups(tmp_path) == [(400 * MB, 400 * MB)]


def test_the_address_space_is_a_bound(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 45, hard))
        [found] = [bound for bound in bounds(tmp_path) if bound.name == "ulimit -v"]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert 0 < found.free < found.limit == 1 << 45
