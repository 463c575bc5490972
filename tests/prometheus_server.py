# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes runs on this machine, for tests."""

from __future__ import annotations

import json
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from thresher.observe.prometheus.stack import Stack, started

HOUR = "[1h]"

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus and promtool are not installed (apt-get install prometheus, which .ci/run does as root)",
)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Prometheus:
    """Queries of a running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API; an error of a query is an AssertionError."""
        url = f"{self._url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def wait_until_ready(self, seconds: float = 60) -> None:
        """Until it answers."""
        self._wait(lambda: urllib.request.urlopen(f"{self._url}/-/ready", timeout=5).status == 200, seconds)

    def wait_for(self, query: str, seconds: float = 60) -> list[dict[str, Any]]:
        """The result of a query, as soon as it has one."""
        found: list[dict[str, Any]] = []

        def ask() -> bool:
            found[:] = self.get("/api/v1/query", query=query)["result"]
            return bool(found)

        self._wait(ask, seconds)
        return found

    def last_moment(self, series: str) -> str:
        """The time of the last sample of a series: what ended is stale afterwards, and visible then."""
        (found,) = self.get("/api/v1/query", query=f"{series}{HOUR}")["result"]
        return str(found["values"][-1][0])

    def values(self, query: str, at: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The values of a query at a time, by labels other than those of the scrape."""
        result = self.get("/api/v1/query", query=query, time=at)["result"]
        hidden = {"__name__", "instance", "job"}
        return {
            tuple(sorted((k, v) for k, v in one["metric"].items() if k not in hidden)): float(one["value"][1])
            for one in result
        }

    @staticmethod
    def _wait(done: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                if done():
                    return
            except OSError:
                pass
            if time.monotonic() > end:
                raise AssertionError(f"nothing after {seconds} s")
            time.sleep(0.1)


@contextmanager
def prometheus(folder: Path, *targets: str, interval_s: float = 0.3) -> Iterator[Prometheus]:
    """A server that scrapes these targets, with the configuration that `thresher monitor up` writes."""
    stack = Stack(folder, targets, free_port(), free_port(), interval_s)
    stack.write()
    programs = [program for program in stack.programs() if program.name == "prometheus"]
    with started(programs, folder):
        server = Prometheus(stack.prometheus_port)
        server.wait_until_ready()
        yield server
