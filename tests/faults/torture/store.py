"""An object store on this machine that fails according to a plan: moto's server behind a proxy, each in its own process, so
that this process has no threads and can fork trainers."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random

from tests.stores.moto import BUCKET, PYTHON, ROOT, Moto, Proxy, Request

PASSING = ("500", "503", "429", "close", "cut head", "truncate", "slow", "stall")
"""Faults that a retry may overcome."""
LASTING = (*PASSING[:-2], "stall", "403", "404", "portal", "shorten")
LYING = ("flip", "shorten", "portal")
"""Faults of replies that look complete."""
LISTINGS = "listings"


@dataclass(frozen=True)
class Plan:
    """Which requests fail, and how. The same request of the same plan fails in the same way."""

    seed: str = ""
    faults: tuple[str, ...] = ()
    share: float = 0.0
    """Of the requests that fail."""
    after: int = 0
    """So many requests are answered before the first one fails."""
    only: str = ""
    """LISTINGS: other requests do not fail."""
    changes: tuple[tuple[int, str, str], ...] = ()
    """Before the request of this number the object of this key gets the content of this file, or is deleted: ''."""


class _Planned:
    """The faults of a plan, in the process of the proxy."""

    def __init__(self, moto: Moto, plan: Plan) -> None:
        self._moto, self._plan = moto, plan
        self._times: Counter[Request] = Counter()
        self._lock = threading.Lock()
        self.requests = self.failed = 0

    def __call__(self, request: Request) -> str | None:
        plan = self._plan
        with self._lock:
            self.requests += 1
            self._times[request] += 1
            self._change()
            if self.requests <= plan.after or (plan.only == LISTINGS and "list-type" not in request[1]):
                return None
            chance = Random(f"{plan.seed} {request} {self._times[request]}")
            if chance.random() >= plan.share:
                return None
            self.failed += 1
            return chance.choice(plan.faults)

    def _change(self) -> None:
        for number, key, content in self._plan.changes:
            if number != self.requests:
                continue
            if content:
                self._moto.put(key, Path(content).read_bytes())
            else:
                self._moto.delete(key)


def serve(port: int) -> None:
    """The process of the proxy: a line of standard input is a plan, and ends the plan before."""
    moto = Moto.at(port)
    planned = _Planned(moto, Plan())
    proxy = Proxy(port, planned)
    print(proxy.endpoint, flush=True)
    for line in sys.stdin:
        print(json.dumps([planned.requests, planned.failed]), flush=True)
        told = json.loads(line)
        planned = _Planned(moto, Plan(**{**told, "changes": tuple(map(tuple, told["changes"]))}))
        proxy.fault = planned


class FaultyStore:
    def __init__(self) -> None:
        self.moto = Moto()
        command = [sys.executable, "-m", "tests.faults.torture.store", str(self.moto.port)]
        self._proxy = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._endpoint = self._answer()
        atexit.register(self.close)

    def _answer(self) -> str:
        assert self._proxy.stdout is not None
        return self._proxy.stdout.readline().strip()

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "torture",
            "AWS_SECRET_ACCESS_KEY": "torture",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self._endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def follow(self, plan: Plan) -> tuple[int, int]:
        """Use another plan. Returns the numbers of requests and of faults of the plan before."""
        assert self._proxy.stdin is not None
        self._proxy.stdin.write(json.dumps(asdict(plan)) + "\n")
        self._proxy.stdin.flush()
        requests, failed = json.loads(self._answer())
        return requests, failed

    def put(self, key: str, file: Path) -> None:
        self.moto.put(key, file.read_bytes())

    def delete(self, key: str) -> None:
        self.moto.delete(key)

    def address(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    def close(self) -> None:
        for process in (self._proxy, self.moto.process):
            process.kill()
            process.wait()


def there_is_a_store() -> bool:
    return PYTHON.exists()


@cache
def store() -> FaultyStore:
    """One for all cases."""
    return FaultyStore()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
