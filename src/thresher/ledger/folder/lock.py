# SPDX-License-Identifier: Apache-2.0
"""Lock that admits one run at a time to a run folder.

Locally it is a kernel lock, which is released however the process ends. Behind a URL it is a lease: a small object that
names its holder, is created only if absent, and is renewed or taken over only in place of the version that was read. So
if two runs start at the same moment, exactly one gets it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from thresher.core.files.filesystem import is_url, local_path
from thresher.errors import OutputRefusedError
from thresher.ledger.stores.store import Store, VersionedFile

LEASE_S = 60.0
"""Time after which a lease that was not renewed is free."""
RENEW_S = 10.0
"""Interval between renewals of a lease."""
LOCK = "lock"
_FREE = b"{}\n"
"""Content of a lease without a holder."""
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
"""Error codes of network file systems without locks."""


class RunLock(Protocol):
    """A lock that is held."""

    def renew(self, now: float) -> None:
        """Confirm that the run is alive; cheap if called often. Raise if another process holds the lock."""

    def release(self) -> None:
        """Release the lock."""


def take_lock(store: Store, holder: Holder, clock: Callable[[], float]) -> RunLock:
    """Take the lock of a run folder, or raise an error that names its holder."""
    if is_url(store.root):
        return Lease(store, holder, clock())
    try:
        return KernelLock(store.root, holder)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return Lease(store, holder, clock())


def refusal(run_dir: str, holder: Holder | None, left_s: float | None = None) -> OutputRefusedError:
    """Return the error for a folder that a live run uses; `left_s` is the rest of its lease."""
    holder_text = str(holder or "another process")
    advice = "Wait for it to end, stop it, or choose another output"
    if holder is not None and left_s is not None:
        ends = datetime.fromtimestamp(holder.renewed + LEASE_S, UTC).isoformat(timespec="seconds")
        holder_text += (
            f"; its lease ends {ends.replace('+00:00', 'Z')}, in {max(0, round(left_s))} s, unless it is renewed"
        )
        advice += "; if that process is dead, wait until its lease ends"
    return OutputRefusedError(f"{run_dir} is in use by a live run: {holder_text}. {advice}")


class KernelLock:
    """A file lock. The process id in the file is only informative; the kernel decides."""

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
            # If the file was removed between open and lock, the lock protects nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                    return descriptor
            os.close(descriptor)

    def renew(self, now: float) -> None:
        """Do nothing: the kernel knows that the process is alive."""

    def release(self) -> None:
        """Release the lock; the file stays, empty, for the next run."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)


class Lease:
    """An object that is renewed while the run is active."""

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
        """True if the store prevents another run from taking the lease at the same moment."""

    def _version_of(self, content: bytes) -> str:
        found = self._store.find(LOCK)
        if found is None or found.data != content:
            raise self._lost(found)
        return found.version

    def _lost(self, found: VersionedFile | None) -> OutputRefusedError:
        holder = None if found is None else read_holder(found.data)
        return OutputRefusedError(
            f"{self._store.root}: the lease of this run was not renewed for {LEASE_S:.0f} s and was taken by "
            f"{holder or 'a process that removed it'}. This run ends here; what it committed stays"
        )

    def _put(self, content: bytes) -> None:
        if not self._store.replace(LOCK, content, self._version):
            raise self._lost(self._store.find(LOCK))
        self._version = self._version_of(content)

    def renew(self, now: float) -> None:
        """Put the object again if it is due. Failures of the store are tolerated for half of the lease."""
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
        """Mark the lease as free unless another process holds it."""
        with contextlib.suppress(OutputRefusedError, OSError):  # the lease expires
            self._put(_FREE)


def _refuse_if_held(run_dir: str, found: VersionedFile, now: float) -> None:
    holder = read_holder(found.data)
    if holder is None or is_dead(holder):
        return
    age_s = now - holder.renewed if found.age_s is None else found.age_s
    if age_s < LEASE_S:
        raise refusal(run_dir, holder, LEASE_S - age_s)


# -- the process that holds a lock ------------------------------------------------------------------------------------


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a run folder."""

    pid: int
    """Process id of the driver."""
    host: str
    """Host of the driver."""
    start: str
    """Time at which it opened the folder."""
    run_id: str = ""
    """Id of its run."""
    renewed: float = 0.0
    """Time of the last renewal of its lease, in seconds since 1970."""
    process_start: str = ""
    """Start time of the process in clock ticks since boot, to distinguish it from a later process with the same id."""
    boot_id: str = ""
    """Id of the boot of the host."""
    pid_space: str = ""
    """PID namespace that `pid` belongs to."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.start}"


def this_process(start: str, run_id: str) -> Holder:
    """Return this process as a holder."""
    pid = os.getpid()
    return Holder(pid, os.uname().nodename, start, run_id, 0.0, process_start(pid) or "", boot_id(), _pid_space())


def read_holder(content: bytes) -> Holder | None:
    """Return the holder in the content of a lock; `None` if there is none."""
    try:
        return msgspec.json.decode(content, type=Holder)
    except msgspec.DecodeError:
        return None


def is_dead(holder: Holder) -> bool:
    """Return True if the process is known to be gone; for another host or container that is unknown."""
    if not holder.boot_id or holder.host != os.uname().nodename:
        return False
    if (holder.boot_id, holder.pid_space) != (boot_id(), _pid_space()):
        return False
    return process_start(holder.pid) != holder.process_start


def process_start(pid: int) -> str | None:
    """Return the start time of a process on this host in clock ticks; `None` if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def process_exists(pid: int) -> bool:
    """Return True if a process with this id exists on this host."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def boot_id() -> str:
    """Return the boot id, which the kernel generates at each boot."""
    return _first_line("/proc/sys/kernel/random/boot_id")


def _pid_space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip()
    except OSError:
        return ""
