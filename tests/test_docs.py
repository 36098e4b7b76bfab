"""The commands in the documents run as printed, links lead to files, and the reference matches the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


MANY_COMMANDS = ROOT / "docs" / "solvers.md"
"""Its commands run in one process, because most of their time would be the start of Python."""
_IN_ONE_PROCESS = """
import shlex, sys
from streampgs.cli.main import cli
for line in sys.argv[1:]:
    program, *words = shlex.split(line)
    assert program == "streampgs" and cli.main(words, standalone_mode=False) == 0, line
"""


_EACH_BLOCK_ALONE = """
import sys
for code in sys.argv[1:]:
    exec(compile(code, "a block of the page", "exec"), {"__name__": "__main__"})
"""


@pytest.mark.slow
def test_many_commands_of_a_page_run_in_its_order(tmp_path: Path) -> None:
    lines = "".join(blocks(MANY_COMMANDS, "sh")).splitlines()
    command = [sys.executable, "-c", _IN_ONE_PROCESS, *lines]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    assert blocks(MANY_COMMANDS, "python") == []


@pytest.mark.slow
@pytest.mark.parametrize("document", [page for page in DOCUMENTS if page != MANY_COMMANDS], ids=lambda path: path.name)
def test_snippets_run_in_the_order_of_the_page(document: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for commands in blocks(document, "sh"):
        subprocess.run(
            ["bash", "-euc", commands], cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=300
        )
    if code := blocks(document, "python"):  # in one process, because most of the time would be the imports
        command = [sys.executable, "-c", _EACH_BLOCK_ALONE, *code]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, *sorted((ROOT / "docs" / "papers").rglob("*.md")), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_options_in_the_documents_exist() -> None:
    from streampgs.cli.main import cli

    known = {name for command in cli.commands.values() for option in command.params for name in option.opts}
    for document in DOCUMENTS:
        for option in re.findall(r"`(--[a-z0-9-]+)", document.read_text()):
            assert option in known | {"--help", "--version"}, f"{document.name}: {option}"


def test_the_reference_is_generated_from_the_command_line() -> None:
    from scripts.reference import reference

    message = "run: python scripts/reference.py > docs/reference.md"
    assert (ROOT / "docs" / "reference.md").read_text() == reference(), message


def test_the_readme_begins_with_the_nights() -> None:
    story, *others = blocks(ROOT / "README.md", "sh")[:3]
    assert "streampgs train " in story
    assert others[0].splitlines()[-1].startswith("streampgs resume ")
    assert others[1].startswith("streampgs evaluate ")
    text = (ROOT / "README.md").read_text()
    assert text.index("streampgs resume my-run") < text.index("inverse.png")


def test_the_index_links_every_page() -> None:
    text = (ROOT / "docs" / "README.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("[a-z]*.md") if f"({page.name})" not in text] == []


def test_every_module_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for entry in (ROOT / "streampgs").iterdir():
        if entry.name.startswith("__") or entry.suffix not in ("", ".py"):
            continue
        name = f"{entry.name}/" if entry.is_dir() else entry.name
        assert f"`{name}`" in text, name
