"""An object store on this machine (moto's server in its own process), and a proxy that injects faults."""

from __future__ import annotations

import http.client
import os
import random
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-moto" / "bin" / "python"
BUCKET = "tables"
_START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Moto:
    """The server. Its objects are in the memory of its process."""

    def __init__(self, port: int | None = None) -> None:
        assert PYTHON.exists(), "these tests need .venv-moto with the object store: run ./scripts/test"
        self.port = port or free_port()
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [PYTHON, "-I", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait()
        self.request("PUT", BUCKET)

    @classmethod
    def at(cls, port: int) -> Moto:
        """The server that another process has started."""
        server = cls.__new__(cls)
        server.port = port
        return server

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert self.process.poll() is None, "moto's server ended at once"
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "moto's server does not answer"
                time.sleep(0.05)

    def request(self, method: str, path: str, data: bytes = b"") -> str | None:
        """Return the ETag of a written object."""
        # moto requires a signature, but does not check it.
        signed = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        headers = {"Content-Type": "application/octet-stream", "Authorization": signed}
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.headers.get("ETag")

    def put(self, key: str, data: bytes) -> str:
        return str(self.request("PUT", f"{BUCKET}/{key}", data)).strip('"')

    def delete(self, key: str) -> None:
        self.request("DELETE", f"{BUCKET}/{key}")

    def upload(self, folder: Path, prefix: str) -> str:
        """Upload all files of a folder; return its address."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(f"{prefix}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return f"s3://{BUCKET}/{prefix}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


Request = tuple[str, str, int]
"""Method, path, and the number of requested bytes (0: no range)."""


_PORTAL = b"<html><body>Please sign in to use this network.</body></html>"
_ENTRY = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)


_PLACES = random.Random(0)


def _flipped(body: bytes) -> bytes:
    if not body:
        return body
    place = _PLACES.randrange(len(body))
    return body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]


def _late(listing: bytes) -> bytes:
    """A listing without half of its entries: the last ones by name."""
    entries = _ENTRY.findall(listing)
    for entry in entries[len(entries) // 2 :]:
        listing = listing.replace(entry, b"")
    return listing


_CHANGES: dict[str | None, Callable[[bytes], bytes]] = {
    "flip": _flipped,
    "shorten": lambda body: body[: len(body) // 2],
    "portal": lambda body: _PORTAL,
    "late": _late,
}
"""Faults that change the body of a reply."""
STATUSES = ("403", "404", "429", "500", "503")
_SLOW_SECONDS = 0.15


class Proxy:
    """A proxy between a client and the store. `fault` gives the fault of each request, if any: a status such as "503",
    "stall", "slow", "close", "cut head", "truncate", "shorten" (fewer bytes with a matching length), "flip", "portal"
    (a page of another server, status 200) or "late" (a listing without its newest entries)."""

    def __init__(self, port: int, fault: Callable[[Request], str | None] = lambda request: None) -> None:
        self.fault = fault
        self.requests: list[Request] = []
        self.faults = 0
        self.ended = threading.Event()
        self._behind = port
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy.pass_on(self)

            def do_HEAD(self) -> None:
                proxy.pass_on(self)

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        first, _, last = handler.headers.get("Range", "").removeprefix("bytes=").partition("-")
        asked = int(last) - int(first) + 1 if last else 0
        request = (handler.command, handler.path, asked)
        self.requests.append(request)
        fault = self.fault(request)
        self.faults += fault is not None
        if fault == "stall":
            self.ended.wait()
        if fault == "slow":
            time.sleep(_SLOW_SECONDS)
        if fault in ("stall", "close", "cut head"):
            if fault == "cut head":
                handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Ty")
            handler.close_connection = True
            return
        if fault in STATUSES:
            handler.send_response(int(fault))
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        try:
            status, headers, body = self._fetch(handler)
        except OSError:
            handler.close_connection = True
            return
        if fault in _CHANGES and handler.command != "HEAD":
            body = _CHANGES[fault](body)
            headers["Content-Length"] = str(len(body))
            status = 200 if fault == "portal" else status
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if fault == "truncate":
            body = body[: len(body) // 2]
            handler.close_connection = True
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def _fetch(self, handler: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        behind = http.client.HTTPConnection("127.0.0.1", self._behind, timeout=30)
        try:
            behind.request(handler.command, handler.path, headers=dict(handler.headers))
            answer = behind.getresponse()
            body = answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            behind.close()
        left_out = {"connection", "transfer-encoding", "server", "date"}
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in left_out}
        if handler.command != "HEAD":
            headers["Content-Length"] = str(len(body))
        return answer.status, headers, body
