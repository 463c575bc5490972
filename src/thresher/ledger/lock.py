# SPDX-License-Identifier: Apache-2.0
"""One run at a time in a run folder.

On this machine the kernel holds the lock and lets go of it whatever the process dies of. Behind a URL the lock is a
small object that says who holds it: created only if it is absent, and renewed or taken over only in place of the
version that was read. So of two that start in the same moment exactly one gets it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from thresher.core.filesystem import is_url, local_path
from thresher.errors import OutputRefusedError
from thresher.ledger.holder import Holder, is_dead, read_holder
from thresher.ledger.store import Found, Store

LEASE_S = 60.0
"""A lease that was not renewed for so long belongs to nobody."""
RENEW_S = 10.0
"""How often a lease is renewed."""
LOCK = "lock"
_FREE = b"{}\n"
"""The content of a lease that nobody holds."""
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
"""What a network file system says that has no locks."""


class RunLock(Protocol):
    """A lock that is held."""

    def renew(self, now: float) -> None:
        """Say that the run is still alive; cheap when called often. Raises when somebody else holds the lock."""

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


def refusal(run_dir: str, holder: Holder | None, left_s: float | None = None) -> OutputRefusedError:
    """The error for a folder in which a run is alive; `left_s` is how long its lease lasts if nobody renews it."""
    who = f"process {holder.pid} on {holder.host}, started {holder.start}" if holder else "another process"
    advice = "Wait for it to end, stop it, or choose another output"
    if holder is not None and left_s is not None:
        ends = datetime.fromtimestamp(holder.renewed + LEASE_S, UTC).isoformat(timespec="seconds")
        who += f"; its lease ends {ends.replace('+00:00', 'Z')}, in {max(0, round(left_s))} s, unless it is renewed"
        advice += "; if that process is dead, wait until its lease ends"
    return OutputRefusedError(f"{run_dir} is in use by a live run: {who}. {advice}")


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
                held = read_holder(os.pread(descriptor, 4096, 0))
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
        self._holder = msgspec.structs.replace(holder, renewed=now)
        content = msgspec.json.encode(self._holder)
        while True:
            found = store.find(LOCK)
            if found is None:
                taken = store.create(LOCK, content)
            else:
                _refuse_if_held(store.root, found, now)
                taken = store.replace(LOCK, content, found.version)
            if taken:
                break
        self._version = self._version_of(content)
        self.exclusive = store.refuses_to_create(LOCK, content)
        """Whether the store would keep out somebody who starts in the same moment."""

    def _version_of(self, content: bytes) -> str:
        found = self._store.find(LOCK)
        if found is None or found.data != content:
            raise self._lost(found)
        return found.version

    def _lost(self, found: Found | None) -> OutputRefusedError:
        holder = None if found is None else read_holder(found.data)
        who = f"process {holder.pid} on {holder.host}, started {holder.start}" if holder else "somebody who removed it"
        return OutputRefusedError(
            f"{self._store.root}: the lease of this run was not renewed for {LEASE_S:.0f} s and was taken by {who}. "
            "This run ends here and has no more say; what it committed stays"
        )

    def _put(self, content: bytes) -> None:
        if not self._store.replace(LOCK, content, self._version):
            raise self._lost(self._store.find(LOCK))
        self._version = self._version_of(content)

    def renew(self, now: float) -> None:
        """Put the object again when it is due. A store that does not answer is forgiven for half of the lease."""
        since = now - self._holder.renewed
        if 0 <= since < RENEW_S:
            return
        renewed = msgspec.structs.replace(self._holder, renewed=now)
        try:
            self._put(msgspec.json.encode(renewed))
        except OSError:
            if not 0 <= since < LEASE_S / 2:
                raise
            return
        self._holder = renewed

    def release(self) -> None:
        """Say that nobody holds it, unless somebody else does."""
        with contextlib.suppress(OutputRefusedError, OSError):  # it ends by itself
            self._put(_FREE)


def _refuse_if_held(run_dir: str, found: Found, now: float) -> None:
    holder = read_holder(found.data)
    if holder is None or is_dead(holder):
        return
    age_s = now - holder.renewed if found.age_s is None else found.age_s
    if age_s < LEASE_S:
        raise refusal(run_dir, holder, LEASE_S - age_s)
