"""The contents of the wheel, the pins of the locks, the size of the product, and that no file depends on one machine."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "streampgs"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
LOCKS = {name: (ROOT / f"requirements-{name}.lock").read_text() for name in ("dev", "moto")}

# A path that exists on one machine only, or the package index of one machine.
OF_ONE_MACHINE = re.compile(
    r"(^|[^A-Za-z0-9_.])/(work|farm|root|home|Users)/"
    r"|https?://[^ ]*/simple"
    r'|(registry|index-url|find-links) *= *"?https?:'
)


def locked(name: str) -> list[tuple[Requirement, list[str]]]:
    """Each requirement of a lock with its hashes."""
    entries = re.sub(r"\s*\\\n\s*", " ", LOCKS[name]).splitlines()
    parts = [re.split(r"\s+--hash=", entry) for entry in entries if not entry.lstrip().startswith("#")]
    return [(Requirement(requirement), hashes) for requirement, *hashes in parts]


def project_files() -> list[Path]:
    """The files that git tracks or would add, so that a violation is found before it is committed."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git work tree, so the files of the project are unknown")
    files = [ROOT / os.fsdecode(name) for name in found.split(b"\0") if name]
    return [file for file in files if file.is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as opened:
        yield opened


def test_wheel_contains_every_module_and_the_typing_marker(wheel):
    package = ROOT / "streampgs"
    modules = {file.relative_to(ROOT).as_posix() for file in package.rglob("*.py")}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == modules | {"streampgs/py.typed"}


def test_wheel_has_the_command_and_the_licence(wheel):
    (entry_points,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert "streampgs = streampgs.cli:main" in wheel.read(entry_points).decode()
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_one_version_with_hashes(name):
    assert locked(name)
    for requirement, hashes in locked(name):
        assert re.fullmatch(r"==[^=*,]+", str(requirement.specifier)), f"{requirement} is not pinned"
        assert hashes, f"{requirement} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement
    names = [requirement.name for requirement, _ in locked(name)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", LOCKS)
def test_lock_has_no_address(name):
    assert "://" not in LOCKS[name]
    options = set(re.findall(r"(?:^|\s)(-[-a-z]+)", LOCKS[name]))
    assert options == {"--hash"}


def test_lock_satisfies_the_project():
    pinned = {requirement.name: Version(str(requirement.specifier)[2:]) for requirement, _ in locked("dev")}
    asked = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
    for requirement in map(Requirement, asked):
        assert requirement.name in pinned, f"{requirement.name} is not in the lock: run ./scripts/lock"
        assert pinned[requirement.name] in requirement.specifier, f"{requirement}: run ./scripts/lock"


def test_no_file_depends_on_one_machine():
    found = []
    for file in project_files():
        content = file.read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
            if OF_ONE_MACHINE.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


NOT_CODE = {
    getattr(tokenize, name) for name in ["COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"]
}


def lines_of_code(text: str) -> int:
    """Lines that hold at least one token other than comments and docstrings."""
    lines: set[int] = set()
    begins_statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            begins_statement = True
        elif token.type not in NOT_CODE:
            if not (token.type == tokenize.STRING and begins_statement):
                lines.update(range(token.start[0], token.end[0] + 1))
            begins_statement = False
    return len(lines)


def test_the_product_stays_below_its_cap():
    cap = SETTINGS["tool"]["streampgs"]["lines-of-code"]
    code = {
        file: lines_of_code(file.read_text())
        for file in project_files()
        if PACKAGE in file.parents and file.suffix == ".py"
    }
    found = sum(code.values())
    largest = ", ".join(f"{file.relative_to(PACKAGE)} {code[file]}" for file in sorted(code, key=code.__getitem__)[-5:])
    assert found <= cap, (
        f"streampgs/ has {found:,} lines of code, {found - cap:,} more than lines-of-code in pyproject.toml allows. Remove code "
        f"that the change makes needless, or raise the number and say in the commit why. The largest files: {largest}"
    )


def test_the_package_fits_on_one_screen():
    names = {file.relative_to(PACKAGE).parts[0] for file in project_files() if PACKAGE in file.parents} - {"py.typed"}
    assert len(names) <= 22, "a new folder or file goes into one of the folders that are there"


OPENS = {
    "open", "os.open", "io.open", "pa.OSFile", "pa.memory_map", "pa.input_stream", "pa.output_stream", "pq.ParquetFile", "pq.read_table",
    "pq.read_metadata", "pq.read_schema", "pq.write_table", "pq.ParquetWriter", "np.load", "np.save", "np.fromfile", "np.memmap",
}  # fmt: skip
OF_PATHS = {"read_bytes", "read_text", "write_bytes", "write_text"}
SAFE = {"new_file", "open_regular", "path_of", "BufferReader"}
"""Functions whose results may be opened."""
OPENED_OTHERWISE = {
    ("kernels/compile_cache.py", "source.read_bytes"): "a module of this package",
    ("run/memory.py", "source.read_text"): "a file of the kernel in /proc",
    ("run/memory.py", "path.read_text"): "a file of the kernel in /sys",
    ("run/lock.py", "os.open"): "the folder of the run",
    ("cli/streams.py", "os.open"): "/dev/null",
}


def opens_in(source: Path) -> Iterator[tuple[str, int]]:
    """Calls that open a path, other than one that is known to lead to a regular file."""
    tree = ast.parse(source.read_text())
    nodes = list(ast.walk(tree))
    items = [item for node in nodes if isinstance(node, ast.With) for item in node.items]
    files = {
        item.optional_vars.id
        for item in items
        if isinstance(item.optional_vars, ast.Name)
        and isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func) in ("native_path", "reading", "self.file.native", "_whole_or_absent")
    }
    arguments = [arg for node in nodes if isinstance(node, ast.FunctionDef) for arg in node.args.args]
    files |= {arg.arg for arg in arguments if arg.annotation is not None and ast.unparse(arg.annotation) == "BinaryIO"}
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        first = node.args[0] if node.args else None
        is_safe = isinstance(first, ast.Name) and first.id in files
        if isinstance(first, ast.Call):
            is_safe = ast.unparse(first.func).rpartition(".")[2] in SAFE
        if (name in OPENS and not is_safe) or (isinstance(node.func, ast.Attribute) and node.func.attr in OF_PATHS):
            yield name, node.lineno


def test_files_are_opened_by_the_functions_that_refuse_pipes_and_devices():
    """A pipe in place of a file blocks forever, a device has no end, and a link leads elsewhere."""
    package = ROOT / "streampgs"
    found = {
        (file.relative_to(package).as_posix(), name): line
        for file in sorted(package.rglob("*.py"))
        if file != package / "base/files.py" and package / "stores" not in file.parents
        for name, line in opens_in(file)
    }
    assert {key: line for key, line in found.items() if key not in OPENED_OTHERWISE} == {}
    assert OPENED_OTHERWISE.keys() <= found.keys(), "an exception that is not needed any more"


def test_scripts_are_executable():
    files = [file for file in project_files() if file.parent in (ROOT / ".ci", ROOT / "scripts")]
    scripts = [file for file in files if file.read_bytes().startswith(b"#!")]
    assert {ROOT / ".ci/run", ROOT / "scripts/test"} <= set(scripts)
    assert [file for file in scripts if not os.access(file, os.X_OK)] == []
