# SPDX-License-Identifier: Apache-2.0
"""The dashboard holds against hostile clients on loopback: other origins, rebinding, paths, slow and many requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from thresher.dashboard import server as server_module
from thresher.dashboard.run_view import RunView
from thresher.dashboard.server import MOST_QUERY, DashboardServer
from thresher.errors import UsageError


@contextlib.contextmanager
def serving(folder: Path, token: str | None = None, host: str = "127.0.0.1") -> Iterator[DashboardServer]:
    """Serve a folder."""
    with DashboardServer(RunView(str(folder)), host, 0, token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DashboardServer]:
    """A server of a run that has not begun."""
    with serving(tmp_path) as server:
        yield server


def ask(server: DashboardServer, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    """Return the answer to a request; `Host` may be given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    return connection.getresponse()


def drip(server: DashboardServer) -> None:
    """Send a request one byte at a time, for longer than any server should wait."""
    with socket.create_connection(("127.0.0.1", server.server_port), 20) as client:
        for _ in range(3000):
            client.sendall(b"x")
            threading.Event().wait(0.02)


def test_pages_and_data_are_served(server: DashboardServer) -> None:
    page = ask(server, "/")
    assert page.status == 200
    assert b"<script" in page.read()
    assert json.loads(ask(server, "/api/state").read()) == {"status": "waiting"}
    assert ask(server, "/app.js").getheader("Content-Type", "").startswith("text/javascript")
    assert ask(server, "/", "HEAD").read() == b""


def test_the_policy_allows_no_inline_script_and_no_other_origin(server: DashboardServer) -> None:
    answer = ask(server, "/")
    policy = answer.getheader("Content-Security-Policy", "")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    body = answer.read().decode()
    assert "style=" not in body, "the policy would not apply it"
    assert "onclick" not in body
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("X-Frame-Options") == "DENY"


@pytest.mark.parametrize("path", ["/", "/api/state", "/app.js"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8377", "127.0.0.1.evil.example", ""])
def test_a_name_that_was_rebound_to_this_machine_gets_nothing(server: DashboardServer, path: str, host: str) -> None:
    assert ask(server, path, Host=host).status == 403


def test_another_origin_gets_nothing(server: DashboardServer) -> None:
    here = f"127.0.0.1:{server.server_port}"
    assert ask(server, "/api/state", Host=here, Origin="http://evil.example").status == 403
    assert ask(server, "/api/state", Host=here, Origin="null").status == 403
    assert ask(server, "/api/state", Host=here, Origin=f"http://127.0.0.1:{server.server_port + 1}").status == 403
    assert ask(server, "/api/state", Host=here, Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="script").status == 403
    assert ask(server, "/api/state", Host=here, Origin=f"http://{here}", Sec_Fetch_Site="same-origin").status == 200
    assert ask(server, "/", Host=here, Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="document").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/pages/app.js",
        "/style.css/../server.py",
        "//etc/passwd",
        "/api/state/../../run.json",
        "/app.js%00.html",
        "/run.json",
        "/api/",
    ],
)
def test_no_path_reaches_a_file(server: DashboardServer, path: str) -> None:
    assert ask(server, path).status == 404


def test_only_reading_is_possible(server: DashboardServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert ask(server, "/api/state", method).status == 501


def test_long_addresses_and_odd_numbers_are_refused_or_ignored(server: DashboardServer) -> None:
    assert ask(server, f"/api/state?{'a' * MOST_QUERY}").status == 414
    assert ask(server, "/api/what-if?A.b=nan&C.d=inf&E.f=1e999&G=x&__proto__=1").status == 200


def test_a_slow_client_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REQUEST_S", 0.2)
    with serving(tmp_path) as server, socket.create_connection(("127.0.0.1", server.server_port), 20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.")
        assert client.recv(100) == b"", "the server ends the connection"


def test_a_client_that_sends_one_byte_at_a_time_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REQUEST_S", 0.3)
    with serving(tmp_path) as server, pytest.raises(OSError, match=r"Broken pipe|reset"):
        drip(server)


def test_many_idle_clients_do_not_take_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_REQUESTS", 4)
    monkeypatch.setattr(server_module, "REQUEST_S", 0.5)
    with serving(tmp_path) as server, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), 20)) for _ in range(30)
        ]
        for client in clients:
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b"", "every one of them is cut off, most of them at once"
            assert len(server._open) <= 4
        assert status_when_there_is_room(server) == 200


def status_when_there_is_room(server: DashboardServer) -> int:
    """Return the status of the first answer; the threads of clients that were cut off take a moment to end."""
    for _ in range(1000):
        with contextlib.suppress(ConnectionError, http.client.RemoteDisconnected):
            return ask(server, "/api/state").status
        threading.Event().wait(0.02)
    raise AssertionError("there is never room again")


def test_elsewhere_only_those_with_the_token_are_answered(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--token"):
        DashboardServer(RunView(str(tmp_path)), "0.0.0.0")
    with serving(tmp_path, token="secret-token", host="0.0.0.0") as server:
        assert ask(server, "/api/state").status == 401
        assert ask(server, "/", Authorization="Bearer wrong").status == 401
        assert ask(server, "/api/state", Authorization="Bearer secret-token").status == 200
        assert (
            ask(server, "/api/state", Host="node7.example", Cookie="a=b; thresher_dashboard=secret-token").status == 200
        )
        welcome = ask(server, "/?token=secret-token")
        assert (welcome.status, welcome.getheader("Location")) == (303, "/")
        assert "HttpOnly; SameSite=Strict" in welcome.getheader("Set-Cookie", "")
        assert (
            ask(server, "/api/state", Authorization="Bearer secret-token", Origin="http://evil.example").status == 403
        )


def test_a_port_that_is_taken_is_named(server: DashboardServer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=str(server.server_port)):
        DashboardServer(RunView(str(tmp_path)), "127.0.0.1", server.server_port)
