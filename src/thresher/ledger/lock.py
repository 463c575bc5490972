# SPDX-License-Identifier: Apache-2.0
"""One run at a time in a run folder.

On this machine the kernel holds the lock and lets go of it whatever the process dies of. Behind a URL the lock is a
small object that says who holds it and when it was last renewed: good against mistakes, not against two at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from typing import Protocol

import msgspec

from thresher.core.filesystem import is_url, local_path
from thresher.errors import OutputRefusedError
from thresher.ledger.store import Store

LEASE_S = 60.0
"""A lease that was not renewed for so long belongs to nobody."""
RENEW_S = 10.0
"""How often a lease is renewed."""
LOCK = "lock"
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
"""What a network file system says that has no locks."""


class Holder(msgspec.Struct, frozen=True):
    """Who works in a run folder."""

    pid: int
    """Process id of the driver."""
    host: str
    """Its machine."""
    start: str
    """When it started."""
    run_id: str = ""
    """Its run."""
    renewed: float = 0.0
    """When a lease was last renewed, in seconds since 1970."""


class RunLock(Protocol):
    """A lock that is held."""

    def renew(self, now: float) -> None:
        """Say that the run is still alive; cheap when called often."""

    def release(self) -> None:
        """Let go."""


def take_lock(store: Store, holder: Holder, clock: Callable[[], float]) -> RunLock:
    """Hold the lock of a run folder, or refuse with the name of who holds it."""
    if is_url(store.root):
        return Lease(store, holder, clock())
    try:
        return KernelLock(store.root, holder)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return Lease(store, holder, clock())


def refusal(run_dir: str, holder: Holder | None) -> OutputRefusedError:
    """The error for a folder in which a run is alive."""
    who = f"process {holder.pid} on {holder.host}, started {holder.start}" if holder else "another process"
    return OutputRefusedError(
        f"{run_dir} is in use by a live run: {who}. Wait for it to end, stop it, or choose another output"
    )


class KernelLock:
    """A file lock. The process id in the file is for people; only the kernel's answer counts."""

    def __init__(self, run_dir: str, holder: Holder) -> None:
        self._path = os.path.join(local_path(run_dir), LOCK)
        self._descriptor = self._take(run_dir)
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, msgspec.json.encode(holder), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _take(self, run_dir: str) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                held = _read_holder(os.pread(descriptor, 4096, 0))
                os.close(descriptor)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise refusal(run_dir, held) from None
                raise
            # Somebody may have removed the file between open and lock: then the lock guards nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                    return descriptor
            os.close(descriptor)

    def renew(self, now: float) -> None:
        """The kernel knows that we are alive."""

    def release(self) -> None:
        """Let go; the file stays, empty, for the next one."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)


class Lease:
    """An object that is renewed while the run lives."""

    def __init__(self, store: Store, holder: Holder, now: float) -> None:
        self._store = store
        self._holder = holder
        found = _read_holder(store.read(LOCK) or b"")
        if found is not None and is_alive(found, now):
            raise refusal(store.root, found)
        self._write(now)

    def _write(self, now: float) -> None:
        self._holder = msgspec.structs.replace(self._holder, renewed=now)
        self._store.write(LOCK, msgspec.json.encode(self._holder))

    def renew(self, now: float) -> None:
        """Put the object again when it is due."""
        if now - self._holder.renewed >= RENEW_S:
            self._write(now)

    def release(self) -> None:
        """Remove the object."""
        self._store.remove(LOCK)


def is_alive(holder: Holder, now: float) -> bool:
    """Whether the holder of a lease must be taken as alive."""
    if holder.host == os.uname().nodename and not process_exists(holder.pid):
        return False
    return now - holder.renewed < LEASE_S


def process_exists(pid: int) -> bool:
    """Whether a process of this machine is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read_holder(content: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(content, type=Holder)
    except msgspec.DecodeError:
        return None
