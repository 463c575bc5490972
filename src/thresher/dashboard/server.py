# SPDX-License-Identifier: Apache-2.0
"""Serve the dashboard over HTTP. Nothing in a request names a file: every address is in one table.

On loopback, requests are answered only if they name this machine (so a page elsewhere cannot reach the dashboard by
rebinding its own name) and do not come from another origin. Elsewhere, every request needs the token.
"""

from __future__ import annotations

import hmac
import http.server
import json
import math
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from thresher.dashboard.documents import Documents
from thresher.dashboard.run_view import RunView
from thresher.errors import ThresherError, UsageError
from thresher.version import __version__

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MOST_REQUESTS = 24
"""Requests that are answered at a time; further ones are closed at once."""
REQUEST_S = 20.0
"""Time for one request, from its first byte to its last; a slower client is cut off."""
MOST_QUERY = 4000
"""Characters of an address."""
COOKIE = "thresher_dashboard"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/thresholds.js": ("thresholds.js", "text/javascript; charset=utf-8"),
}


class DashboardServer(http.server.ThreadingHTTPServer):
    """Server of one run."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, view: RunView, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        """Listen on `host`; other hosts than loopback need a token."""
        if host not in LOOPBACK and not token:
            raise UsageError(f"--host {host}: a dashboard that others can reach needs a token; give --token")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.token = token
        self.pages = {path: (_page(name), kind) for path, (name, kind) in _PAGES.items()}
        documents = Documents(view)
        self.answers: dict[str, Callable[[Mapping[str, str]], dict[str, Any]]] = {
            "/api/state": lambda query: view.state(),
            "/api/timeline": lambda query: view.timeline(),
            "/api/gantt": lambda query: view.gantt(),
            "/api/samples": lambda query: documents.samples(),
            "/api/errors": lambda query: documents.errors(),
            "/api/scores": lambda query: documents.scores(),
            "/api/what-if": lambda query: documents.what_if(_numbers(query)),
        }
        self._free = threading.BoundedSemaphore(MOST_REQUESTS)
        self._open: dict[socket.socket, float] = {}
        self._open_lock = threading.Lock()
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UsageError(f"--port {port}: cannot listen on {host}: {error.strerror or error}") from error
        port = self.server_address[1]
        self.hosts = frozenset(
            f"{name}{end}" for name in ("127.0.0.1", "localhost", "[::1]") for end in ("", f":{port}")
        )
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")

    def server_bind(self) -> None:
        """Bind the socket without asking for the name of this machine, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in a thread of its own, unless too many are open."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        with self._open_lock:
            self._open[request] = time.monotonic() + REQUEST_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a request, and make room for another one."""
        with self._open_lock:
            was_counted = self._open.pop(request, None) is not None
        super().shutdown_request(request)
        if was_counted:
            self._free.release()

    def service_actions(self) -> None:
        """Cut off clients that take too long, whether they send or read slowly."""
        now = time.monotonic()
        with self._open_lock:
            late = [request for request, deadline in self._open.items() if now > deadline]
        for request in late:
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that went away."""


def _page(name: str) -> bytes:
    return resources.files("thresher.dashboard").joinpath("pages", name).read_bytes()


def _numbers(query: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for name, text in query.items():
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            found[name] = value
    return found


class _Handler(http.server.BaseHTTPRequestHandler):
    """Handler of one request; the connection ends with it."""

    server: DashboardServer
    timeout = REQUEST_S
    server_version = f"thresher/{__version__}"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request for a page or for data."""
        target = urlsplit(self.path)
        query = dict(parse_qsl(target.query, max_num_fields=200)) if len(self.path) <= MOST_QUERY else {}
        if len(self.path) > MOST_QUERY:
            self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
        elif not self._is_from_here():
            self._refuse(HTTPStatus.FORBIDDEN, "this dashboard answers only requests from its own pages")
        elif self.server.token and not self._is_known(query):
            self._refuse(HTTPStatus.UNAUTHORIZED, "open the address that `thresher dashboard` printed, with its token")
        elif self.server.token and "token" in query:
            self._welcome()
        elif target.path in self.server.pages:
            self._send(HTTPStatus.OK, *self.server.pages[target.path])
        elif target.path in self.server.answers:
            self._answer(target.path, query)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page")

    def do_HEAD(self) -> None:
        """Answer with the headers of the same request."""
        self.do_GET()

    def _answer(self, path: str, query: dict[str, str]) -> None:
        try:
            found = self.server.answers[path](query)
        except (ThresherError, OSError) as error:
            found = {"problem": str(error)[:1000]}
        body = json.dumps(found, allow_nan=False, default=str) if _is_finite(found) else json.dumps(_plain(found))
        self._send(HTTPStatus.OK, body.encode("utf-8", "replace"), "application/json")

    def _is_from_here(self) -> bool:
        """Return True if the request names this machine, and no page of another origin has sent it."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if not self.server.token and host.lower() not in self.server.hosts:
            return False
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return False
        is_page = self.headers.get("Sec-Fetch-Dest", "document") == "document"
        return is_page or self.headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none")

    def _is_known(self, query: Mapping[str, str]) -> bool:
        """Return True if the request has the token: in its address, a header, or the cookie that it was given."""
        cookies = dict(part.strip().partition("=")[::2] for part in self.headers.get("Cookie", "").split(";"))
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        given = query.get("token") or bearer or cookies.get(COOKIE, "")
        return hmac.compare_digest(given.encode(), (self.server.token or "").encode())

    def _welcome(self) -> None:
        """Keep the token in a cookie, and lead to an address without it."""
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Set-Cookie", f"{COOKIE}={self.server.token}; Path=/; HttpOnly; SameSite=Strict")
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self._end_headers()

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send(status, f"{text}\n".encode(), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self._end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the run."""


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list | tuple) else True


def _plain(value: Any) -> Any:
    """Return a value with `null` in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
