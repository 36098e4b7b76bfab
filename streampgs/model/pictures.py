"""Pictures, which need matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streampgs.base.errors import MissingPackage, OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")


def figure_for(option: str, file: Path, height: float) -> Figure:
    """An empty figure for the file that an option names."""
    if file.suffix not in PICTURES:
        raise OptionError(f"`{option} {file}`", f"give a name that ends in {', '.join(PICTURES)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackage(f"{option} needs the package matplotlib", "pip install 'streampgs[plot]'") from error
    return Figure(figsize=(8.0, height), layout="constrained")
