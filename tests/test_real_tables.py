"""The commands of docs/real-data.md reach their accuracies, if the data sets are available."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT.parent / "shared" / "data"
BLOCKS = re.findall(r"^```bash\n(.*?)^```", (ROOT / "docs" / "real-data.md").read_text(), re.MULTILINE | re.DOTALL)

LEAST = {"a9a": 0.848, "magic04": 0.77, "reuters21578": 0.98, "rcv1_small": 0.86, "python_names": 0.87}


@pytest.mark.slow
@pytest.mark.skipif(not SOURCE.is_dir(), reason="needs the data sets, which are too large for the project")
@pytest.mark.parametrize("name", LEAST)
def test_the_commands_reach_their_accuracy(name: str, tmp_path: Path) -> None:
    (commands,) = [block for block in BLOCKS if f"$D/{name}" in block]
    environment = {
        **os.environ,
        "D": str(SOURCE),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    accuracy = float(re.findall(r"^accuracy +(\S+)", done.stdout, re.MULTILINE)[-1])
    assert accuracy >= LEAST[name]
