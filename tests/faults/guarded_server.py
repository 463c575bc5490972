# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on loopback that gives its files to those with a password or a signed URL only."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: Mapping[str, bytes]
    logins: frozenset[str]
    tokens: frozenset[str]

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        asked = urlsplit(self.path)
        status, body, headers = self._content(asked.path, asked.query)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _content(self, path: str, query: str) -> tuple[int, bytes, dict[str, str]]:
        if path.startswith("/status/"):
            return int(path.split("/")[2]), b"", {}
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        login = base64.b64decode(given).decode() if kind == "Basic" else ""
        if login not in self.logins and not self.tokens.intersection(parse_qs(query).get("X-Amz-Signature", ())):
            return 401, b"", {"WWW-Authenticate": 'Basic realm="test"'}
        if path.endswith("/"):
            links = "".join(f'<a href="{name}">{name}</a>\n' for name in self.files)
            return 200, links.encode(), {"Content-Type": "text/html"}
        content = self.files.get(path.rsplit("/", 1)[-1])
        if content is None:
            return 404, b"", {}
        span = self.headers.get("Range")
        if span is None:
            return 200, content, {"Accept-Ranges": "bytes", "ETag": '"1"'}
        first, last = span.removeprefix("bytes=").split("-")
        end = min(int(last), len(content) - 1) if last else len(content) - 1
        covered = f"bytes {first}-{end}/{len(content)}"
        return 206, content[int(first) : end + 1], {"Content-Range": covered, "Accept-Ranges": "bytes", "ETag": '"1"'}


@contextlib.contextmanager
def guarded_server(files: Mapping[str, bytes], logins: set[str], tokens: set[str]) -> Iterator[str]:
    """Serve `files` by name in every folder; yields `host:port`."""
    kept = {"files": files, "logins": frozenset(logins), "tokens": frozenset(tokens)}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), kept))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
