# SPDX-License-Identifier: Apache-2.0
"""An address where nobody listens is refused at once, with what would help."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from thresher.backends.ray_session import refuse_silent
from thresher.errors import UsageError


@pytest.fixture
def somebody() -> Iterator[str]:
    """The address of something that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


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
        refuse_silent(scheme + nobody)


def test_the_cluster_that_auto_means_may_be_gone(
    nobody: str, somebody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    refuse_silent("auto")  # Ray has noted none; it says that itself
    note = tmp_path / "ray" / "ray_current_cluster"
    note.parent.mkdir()
    note.write_text(somebody)
    refuse_silent("auto")
    note.write_text(nobody)
    with pytest.raises(UsageError, match=f"answers at 'auto' .{nobody}: Connection refused"):
        refuse_silent("auto")


def test_where_somebody_listens_ray_is_asked(somebody: str) -> None:
    refuse_silent(somebody)


@pytest.mark.parametrize("address", ["local", "anything else"])
def test_what_is_no_place_is_left_to_ray(address: str) -> None:
    refuse_silent(address)
