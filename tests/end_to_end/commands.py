"""The command line in a process of its own, without the second that Python needs to import everything.

A server imports the modules once and forks for each command. So a command has its own process, its own arguments and its own exit
code, as when a shell starts it. The server has no threads of Python, and those of OpenBLAS expect forks.
"""

from __future__ import annotations

import array
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
_NOT_READ = {"PYTEST_CURRENT_TEST"}
"""Variables that differ between tests, and that no command reads."""
_PRELOADED = (
    "python.api",
    "model.evaluation",
    "model.inspection",
    "learn.pgs",
    "model.prediction",
    "run.start",
    "selection.race",
    "model.trial",
)


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.out)
        return result


def streampgs(
    *words: object, timeout: float = 120, variables: dict[str, str] | None = None, rows: str | Path = os.devnull
) -> Finished:
    """Run a command with these variables next to those of this process, and with the file `rows` as its standard input."""
    arguments = [str(word) for word in words]
    environment = _environment()
    others = {name: value for name, value in (variables or {}).items() if environment.get(name) != value}
    server = _server(tuple(others.items()))
    with open(rows, "rb") as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if environment | others == server.environment:
            code = server.run(arguments, [source.fileno(), out.fileno(), err.fileno()], timeout)
        else:  # variables may be read while modules are imported
            code = subprocess.run(
                [sys.executable, "-m", "streampgs", *arguments],
                stdin=source, stdout=out, stderr=err, env=environment | others, timeout=timeout, check=False,
            ).returncode  # fmt: skip
        out.seek(0)
        err.seek(0)
        return Finished(code, out.read().decode(), err.read().decode())


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_READ}


class _Server:
    def __init__(self, variables: tuple[tuple[str, str], ...]) -> None:
        self.environment = _environment() | dict(variables)
        self._socket, other = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.end_to_end.commands", str(other.fileno())],
            cwd=ROOT, env=self.environment, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        other.close()

    def run(self, arguments: list[str], files: list[int], timeout: float) -> int:
        """The exit code, or the negated signal."""
        asked = pickle.dumps((arguments, os.getcwd()))
        socket.send_fds(self._socket, [len(asked).to_bytes(4, "big")], files)
        self._socket.sendall(asked)
        child = self._number(None)
        try:
            return self._number(timeout)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            self._number(None)
            raise subprocess.TimeoutExpired(arguments, timeout) from None

    def _number(self, timeout: float | None) -> int:
        self._socket.settimeout(timeout)
        received = self._socket.recv(8)
        self._socket.settimeout(None)
        assert len(received) == 8, "the server of commands has ended"
        return array.array("q", received)[0]


@cache
def _server(variables: tuple[tuple[str, str], ...]) -> _Server:
    return _Server(variables)


def _serve(asking: socket.socket, main: Callable[[], None]) -> None:
    """Until the tests end."""
    while True:
        length, files, _, _ = socket.recv_fds(asking, 4, 3)
        if not length:
            return
        arguments, folder = pickle.loads(asking.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
        child = os.fork()
        if child == 0:
            asking.close()
            _become_command(main, arguments, folder, files)
        for file in files:
            os.close(file)
        asking.sendall(array.array("q", [child]).tobytes())
        asking.sendall(array.array("q", [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]).tobytes())


def _become_command(main: Callable[[], None], arguments: list[str], folder: str, files: list[int]) -> NoReturn:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    sys.argv = ["streampgs", *arguments]
    code: Any = 1
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def _preloaded() -> Callable[[], None]:
    """The function that runs the command line, after it has been imported with most of what commands need."""
    from importlib import import_module

    from streampgs import cli

    main = cli.main  # hidden by the module of this name, once that is imported
    sys.meta_path.insert(0, cli._WithoutPandas)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    for name in ("cli.main", *_PRELOADED):
        import_module(f"streampgs.{name}")
    return main


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as own:
        _serve(own, _preloaded())
