# SPDX-License-Identifier: Apache-2.0
"""An address where nobody listens is refused at once, with what would help."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from thresher.backends.ray_nodes.session import check_reachable, with_compat_names
from thresher.errors import UsageError


@pytest.fixture
def somebody() -> Iterator[socket.socket]:
    """Something that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(100)
        yield server


def place_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def was_called(server: socket.socket) -> bool:
    """Whether somebody has connected; waits for it."""
    caller, _ = server.accept()
    caller.close()
    return True


@pytest.fixture
def nobody() -> str:
    """An address that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_refused(nobody: str, scheme: str) -> None:
    with pytest.raises(
        UsageError, match=f"no Ray cluster answers at '{scheme}{nobody}' .*Connection refused.*ray start"
    ):
        check_reachable(scheme + nobody)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_with_a_password_is_refused_without_showing_it(nobody: str, scheme: str) -> None:
    with pytest.raises(UsageError, match="holds no user name or password") as refused:
        check_reachable(f"{scheme}me:pa55-w0rd@{nobody}")
    assert "pa55-w0rd" not in str(refused.value)


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Ray notes the last cluster of a machine on which none runs."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("psutil.process_iter", lambda attributes: iter(()))
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray" / "ray_current_cluster"


def test_the_cluster_that_auto_means_may_be_gone(nobody: str, note: Path) -> None:
    note.write_text(nobody)
    with pytest.raises(UsageError, match=f"answers at 'auto' .{nobody}: Connection refused"):
        check_reachable("auto")


def test_auto_means_what_the_environment_says_before_all(
    nobody: str, somebody: socket.socket, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note.write_text(nobody)
    monkeypatch.setenv("RAY_ADDRESS", place_of(somebody))
    check_reachable("auto")
    assert was_called(somebody)


@pytest.mark.parametrize("address", ["local", "anything else", "auto"])
def test_what_is_no_place_is_left_to_ray(address: str, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` is none where Ray has noted nothing."""
    called: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *given: called.append(given))
    check_reachable(address)
    assert not called


def test_a_cluster_that_runs_here_is_found_by_ray(nobody: str, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = SimpleNamespace(info={"name": "gcs_server"})
    monkeypatch.setattr("psutil.process_iter", lambda attributes: iter([running]))
    note.write_text(nobody)
    called: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *given: called.append(given))
    check_reachable("auto")
    assert not called


def test_where_somebody_listens_ray_is_asked(somebody: socket.socket) -> None:
    check_reachable(place_of(somebody))
    assert was_called(somebody)


def test_workers_of_a_running_cluster_find_the_names_of_another_curator_if_the_driver_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("THRESHER_COMPAT", raising=False)
    monkeypatch.delenv("THRESHER_COMPAT_REPLACE", raising=False)
    assert with_compat_names(None) is None
    assert with_compat_names({"pip": ["x"]}) == {"pip": ["x"]}
    monkeypatch.setenv("THRESHER_COMPAT", "nemo_curator")
    assert with_compat_names(None) == {"env_vars": {"THRESHER_COMPAT": "nemo_curator"}}
    given = {"pip": ["x"], "env_vars": {"A": "1", "THRESHER_COMPAT": ""}}
    assert with_compat_names(given) == given
