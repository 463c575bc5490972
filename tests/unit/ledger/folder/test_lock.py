# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from thresher.errors import OutputRefusedError
from thresher.ledger.folder.lock import (
    LEASE_S,
    RENEW_S,
    Holder,
    KernelLock,
    Lease,
    is_dead,
    read_holder,
    take_lock,
    this_process,
)
from thresher.ledger.stores.store import LocalStore

ME = this_process("2024-01-01T00:00:00Z", "run")
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
    assert read_holder(store.read("lock") or b"") is None, "and is free when it was released"


def test_a_lease_of_a_dead_process_on_this_machine_ends_at_once(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    Lease(store, holder_of_a_dead_process(), now=1000.0)

    Lease(store, ME, now=1000.5)
    holder = read_holder(store.read("lock") or b"")
    assert holder is not None
    assert holder.pid == ME.pid


def holder_of_a_dead_process() -> Holder:
    code = """
import sys, msgspec
from thresher.ledger.folder.lock import this_process
sys.stdout.buffer.write(msgspec.json.encode(this_process("then", "run")))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    holder = read_holder(done.stdout)
    assert holder is not None
    return holder


def test_a_process_that_got_the_number_of_a_dead_one_is_not_taken_for_it():
    assert not is_dead(ME)
    assert is_dead(msgspec.structs.replace(ME, process_start="1"))


@pytest.mark.parametrize("elsewhere", [{"host": "another"}, {"boot_id": "another"}, {"pid_space": "another"}])
def test_nothing_is_known_of_a_process_elsewhere(elsewhere: dict[str, str]):
    assert not is_dead(msgspec.structs.replace(ME, process_start="1", **elsewhere))


def test_who_lost_the_lease_is_told_and_writes_no_more(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    late = Lease(store, FAR_AWAY, now=1000.0)
    lease = Lease(store, ME, now=1000.0 + LEASE_S)
    held = store.read("lock")

    with pytest.raises(OutputRefusedError, match=f"taken by process {os.getpid()}"):
        late.renew(1001.0 + LEASE_S)
    late.release()
    assert store.read("lock") == held, "its end does not free what another one holds"
    lease.release()


def test_a_clock_that_is_set_back_does_not_end_a_lease(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    lease = Lease(store, FAR_AWAY, now=5000.0)
    lease.renew(1000.0)

    with pytest.raises(OutputRefusedError, match="in use"):
        Lease(store, ME, now=1000.0 + LEASE_S / 2)


def test_a_refusal_says_who_since_when_and_how_long(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    Lease(store, FAR_AWAY, now=1000.0)

    with pytest.raises(OutputRefusedError) as refused:
        Lease(store, ME, now=1020.0)
    said = str(refused.value)
    assert "process 1 on another-machine, started 2024-01-01T00:00:00Z" in said
    assert "its lease ends 1970-01-01T00:17:40Z, in 40 s, unless it is renewed" in said


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
