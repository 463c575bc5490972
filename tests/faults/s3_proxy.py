# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of an S3 server that breaks a part of the calls, by a plan that a seed makes.

A call can be answered with 503 or 409 in place of the server, never reach it, or reach it while its answer is lost: the
connection is dropped, or held until the client gives up. The same call is broken at most twice in a row, so that who
asks again gets through.
"""

from __future__ import annotations

import http.client
import random
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal["503", "409", "timeout", "dropped", "held"]
"""`timeout`: the call does not reach the server. `dropped` and `held`: it does, and its answer is lost."""
Kind = Literal["put", "part", "begin", "complete", "abort", "get", "head", "list", "delete"]
Plan = Callable[[Kind, str], Fault | None]

_IN_A_ROW = 2
_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "expect", "content-length"}


def seeded_plan(seed: int, shares: dict[Kind, float], faults: tuple[Fault, ...], most: int = 40) -> Plan:
    """Break a share of the calls of each kind, `most` in all."""
    chance = random.Random(seed)
    left = [most]

    def plan(kind: Kind, path: str) -> Fault | None:
        if left[0] <= 0 or chance.random() >= shares.get(kind, 0.0):
            return None
        left[0] -= 1
        return chance.choice(faults)

    return plan


def once_each(kinds: dict[Kind, Fault]) -> Plan:
    """Break the first call of each of these kinds."""
    left = dict(kinds)
    return lambda kind, path: left.pop(kind, None)


class FaultyProxy:
    """A running proxy."""

    def __init__(self, server_url: str, plan: Plan) -> None:
        self._server = urlsplit(server_url)
        self._plan = plan
        self._lock = threading.Lock()
        self._broken_in_a_row: Counter[tuple[str, str]] = Counter()
        self.broken: Counter[tuple[Kind, Fault]] = Counter()
        """How often which kind of call met which fault."""
        self.closing = threading.Event()

    def fault_for(self, method: str, path: str) -> Fault | None:
        """What is to happen to a call."""
        with self._lock:
            kind = kind_of(method, path)
            fault = self._plan(kind, path) if self._broken_in_a_row[method, path] < _IN_A_ROW else None
            self._broken_in_a_row[method, path] = self._broken_in_a_row[method, path] + 1 if fault else 0
            if fault is not None:
                self.broken[kind, fault] += 1
            return fault

    def ask_server(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """What the server says."""
        connection = http.client.HTTPConnection(str(self._server.hostname), self._server.port, timeout=100)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


def kind_of(method: str, path: str) -> Kind:
    """What a call is about."""
    parts = urlsplit(path)
    query = parts.query
    if "uploadId=" in query:
        kinds: dict[str, Kind] = {"PUT": "part", "POST": "complete", "DELETE": "abort"}
        return kinds.get(method, "list")
    if method == "POST":
        return "begin" if "uploads" in query else "delete"
    if method == "GET" and parts.path.strip("/").count("/") == 0:
        return "list"
    plain: dict[str, Kind] = {"PUT": "put", "GET": "get", "HEAD": "head", "DELETE": "delete"}
    return plain[method]


@contextmanager
def faulty_proxy(server_url: str, plan: Plan) -> Iterator[tuple[str, FaultyProxy]]:
    """A proxy in front of a server: its address, and what it did."""
    proxy = FaultyProxy(server_url, plan)

    class Handler(_Handler):
        faulty = proxy

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", proxy
        finally:
            proxy.closing.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faulty: FaultyProxy

    def _serve(self) -> None:
        body = self._body()
        fault = self.faulty.fault_for(self.command, self.path)
        if fault == "timeout":
            self._hold()
            return
        if fault in ("503", "409"):
            self._refuse(int(fault))
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        status, answered, content = self.faulty.ask_server(self.command, self.path, headers, body)
        if fault == "held":
            self._hold()
        elif fault == "dropped":
            self._drop()
        else:
            self._answer(status, answered, content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - what http.server asks for

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        length = headers.get("Content-Length") if self.command == "HEAD" else str(len(content))
        for name, value in headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, status: int) -> None:
        code = {503: "ServiceUnavailable", 409: "ConditionalRequestConflict"}[status]
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>Please try again.</Message></Error>".encode()
        self._answer(status, {"Content-Type": "application/xml"}, b"" if self.command == "HEAD" else text)

    def _hold(self) -> None:
        """Say nothing until the client goes away."""
        self.connection.settimeout(0.05)
        while not self.faulty.closing.is_set():
            try:
                if not self.connection.recv(1 << 16):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self._drop()

    def _drop(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def handle_one_request(self) -> None:
        """As usual; a client that goes away is nothing to speak of."""
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
