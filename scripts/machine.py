"""The machine, its load and the versions of packages, which every benchmark prints."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("numba", "numpy", "pyarrow", "scipy", "streampgs")
"""The packages that the results depend on."""


def machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    found = {}
    for package in sorted(set(packages)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine_line(more_packages: Iterable[str] = ()) -> str:
    facts = machine()
    packages = ", ".join(f"{package} {number}" for package, number in versions((*PACKAGES, *more_packages)).items())
    return (
        f"{facts['date']}, {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, load "
        f"{facts['load_average'][0]:.1f}, {facts['system']}, Python {facts['python']}, {packages}"
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
