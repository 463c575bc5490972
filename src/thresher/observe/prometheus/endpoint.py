# SPDX-License-Identifier: Apache-2.0
"""The metrics endpoint of a run: HTTP on a port of this machine, in a thread that serves the last snapshot.

It is a progress display: the driver hands it a snapshot once a second, and never waits for a client.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from thresher.errors import UsageError
from thresher.observe.progress import NoProgress, RunInfo, Snapshot
from thresher.observe.prometheus.exposition import content_type, render
from thresher.observe.prometheus.families import RunMetrics

LOOPBACK = "127.0.0.1"
REFRESH_S = 0.9
"""Time between two snapshots."""
CLIENT_S = 10.0
"""Time that a client may take to send a request and to receive the answer."""
POLL_S = 0.05
"""Time that the end of the endpoint may take."""
MOST_CLIENTS = 16
"""Number of clients that are served at the same time; the others are turned away."""
_LOCAL_NAMES = {"localhost", "127.0.0.1", "[::1]", "::1"}


class MetricsEndpoint(NoProgress):
    """Serves `/metrics` from the moment it is made until `shut_down`."""

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        """`port`: 0 takes a free one."""
        self._metrics = RunMetrics()
        self._runs: dict[str, tuple[str, RunInfo, Snapshot]] = {}
        self._now = ""  # the outlet that runs
        self._info: RunInfo | None = None
        self._next_t = 0.0
        self._lock = threading.Lock()  # of the runs; held for moments only, because the driver takes it
        self._rendering = threading.Lock()
        self._all_served = threading.Event()  # a client has the figures of the end
        self._ended = False
        try:
            self._server = _Server((host, port), _Handler, family_of(host))
        except OSError as error:
            raise UsageError(
                f"--metrics-port {port} (host {host}): cannot listen there: {error.strerror or error}. "
                "0 takes a free port"
            ) from None
        self._server.endpoint = self
        self.address = shown_address(host, self._server.server_address[1])
        """Host and port, as a client writes it."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="thresher-metrics", daemon=True
        )
        self._thread.start()

    def start(self, info: RunInfo) -> None:
        """Begin a run: that of the pipeline, or of an outlet."""
        with self._lock:
            name, number = info.outlet, 1
            while name in self._runs:
                number += 1
                name = f"{info.outlet}-{number}"
            self._now, self._info, self._next_t = name, info, 0.0

    def due(self, t: float) -> bool:
        """Return True about once a second."""
        return t >= self._next_t

    def update(self, snapshot: Snapshot) -> None:
        """Serve this snapshot from now on."""
        assert self._info is not None, "start comes first"
        self._next_t = snapshot.elapsed_s + REFRESH_S
        with self._lock:
            self._runs[self._now] = (self._now, self._info, snapshot)

    def text(self, kind: str) -> tuple[bytes, bool]:
        """Return the metrics of all runs so far, and True if these are the figures of the end."""
        with self._lock:
            runs, ended = list(self._runs.values()), self._ended
        with self._rendering:
            return render(self._metrics.families(runs), kind), ended

    def final_served(self) -> None:
        """Note that a client has the figures of the end."""
        self._all_served.set()

    def linger(self, seconds: float) -> None:
        """Wait until a client has fetched the figures of the end, at most for `seconds`."""
        with self._lock:
            self._ended = True
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._all_served.wait(0.1):  # short waits let Ctrl-C in
            pass

    def shut_down(self) -> None:
        """End the endpoint; an answer that is under way may be cut by the end of the process. May be called twice."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Serves a limited number of clients, each in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16
    endpoint: MetricsEndpoint

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], family: int) -> None:
        self.address_family = family
        self._free = threading.BoundedSemaphore(MOST_CLIENTS)
        self.is_local = is_loopback(address[0])
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client, or close the connection if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one client in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that go away: the output of a run is no place for their errors."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = CLIENT_S
    server_version = "thresher"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the metrics, or with a hint where they are."""
        server = cast(_Server, self.server)
        # A page in a browser may reach loopback under a name of its own (DNS rebinding); a scraper names what it asks.
        if server.is_local and _without_port(self.headers.get("Host", "localhost")) not in _LOCAL_NAMES:
            self._answer(403, "text/plain; charset=utf-8", b"this endpoint is for clients on this machine\n")
        elif self.path.partition("?")[0] == "/metrics":
            kind = content_type(self.headers.get("Accept", ""))
            text, final = server.endpoint.text(kind)
            self._answer(200, kind, text)
            if final:
                server.endpoint.final_served()
        else:
            self._answer(404, "text/plain; charset=utf-8", b"the metrics are at /metrics\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the run."""


def is_loopback(host: str) -> bool:
    """Return True if only clients on this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def family_of(host: str) -> socket.AddressFamily:
    """Return the address family of a host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def shown_address(host: str, port: int) -> str:
    """Return host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host
