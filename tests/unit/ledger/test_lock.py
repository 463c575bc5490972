# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thresher.errors import OutputRefusedError
from thresher.ledger.lock import LEASE_S, RENEW_S, Holder, KernelLock, Lease, take_lock
from thresher.ledger.store import LocalStore

ME = Holder(os.getpid(), os.uname().nodename, "2024-01-01T00:00:00Z", "run")
FAR_AWAY = Holder(1, "another-machine", "2024-01-01T00:00:00Z", "run")


def test_a_lock_is_free_again_when_it_was_released(tmp_path: Path):
    KernelLock(str(tmp_path), ME).release()
    lock = KernelLock(str(tmp_path), ME)
    with pytest.raises(OutputRefusedError):
        KernelLock(str(tmp_path), ME)
    lock.release()
    lock.release()


def test_a_lock_of_a_dead_process_is_taken_over_silently(tmp_path: Path):
    (tmp_path / "lock").write_text('{"pid": 1, "host": "here", "start": "then"}')

    lock = KernelLock(str(tmp_path), ME)
    assert str(os.getpid()) in (tmp_path / "lock").read_text()
    lock.release()


def test_a_lock_whose_file_was_removed_guards_nothing(tmp_path: Path):
    first = KernelLock(str(tmp_path), ME)
    (tmp_path / "lock").unlink()
    second = KernelLock(str(tmp_path), ME)

    with pytest.raises(OutputRefusedError):
        KernelLock(str(tmp_path), ME)
    first.release()
    second.release()


def test_a_lease_refuses_others_while_it_is_renewed(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    lease = Lease(store, FAR_AWAY, now=1000.0)

    with pytest.raises(OutputRefusedError, match="another-machine"):
        Lease(store, ME, now=1000.0 + LEASE_S / 2)
    lease.renew(1000.0 + LEASE_S / 2)
    with pytest.raises(OutputRefusedError, match="another-machine"):
        Lease(store, ME, now=1000.0 + LEASE_S + 1)


def test_a_lease_that_nobody_renews_ends(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    Lease(store, FAR_AWAY, now=1000.0)

    Lease(store, ME, now=1000.0 + LEASE_S).release()
    assert store.names() == []


def test_a_lease_of_a_dead_process_on_this_machine_ends_at_once(tmp_path: Path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    store = LocalStore(str(tmp_path))
    Lease(store, Holder(dead.pid, os.uname().nodename, "then"), now=1000.0)

    Lease(store, ME, now=1000.5).release()
    assert store.names() == []


def test_a_lease_is_written_again_only_when_it_is_due(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    lease = Lease(store, ME, now=1000.0)
    before = store.read("lock")
    lease.renew(1000.0 + RENEW_S / 2)
    assert store.read("lock") == before

    lease.renew(1000.0 + RENEW_S)

    assert store.read("lock") != before


def test_a_file_system_without_locks_gets_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    store = LocalStore(str(tmp_path))
    lock = take_lock(store, ME, lambda: 1000.0)

    with pytest.raises(OutputRefusedError, match="in use"):
        take_lock(store, ME, lambda: 1001.0)
    lock.release()
    take_lock(store, ME, lambda: 1002.0).release()
