# SPDX-License-Identifier: Apache-2.0
"""The driver's pool of worker processes: start them, exchange messages, detect their exit. One epoll loop, no
threads."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from dataclasses import dataclass
from typing import Any

from thresher.errors import RunFailedError
from thresher.runtime.processes.control import kill_group, request_stop
from thresher.runtime.processes.messages import CannotStart, Exited, Fork, Forked, FromWorker, Run, Stop
from thresher.runtime.processes.wire import Channel, socket_pair
from thresher.runtime.processes.zygote import Zygote

ZYGOTE_ATTEMPTS = 3
STOP_IDLE_S = 30.0
"""Time limit of the teardown of idle workers."""
STOP_BUSY_S = 2.0
"""Time that workers with running tasks get to notice that the run is over."""
STOP_SIGNALLED_S = 5.0
"""Time limit of workers that were sent SIGTERM while busy, teardown included."""
STOP_CLOSED_S = 1.0
"""Time that a worker gets to exit after it closed its connection; it has usually exited already."""
_READ = select.EPOLLIN
_WRITE = select.EPOLLIN | select.EPOLLOUT


@dataclass(eq=False)
class WorkerHandle:
    """A worker process."""

    worker: int
    """Its id."""
    channel: Channel[Any]
    """The connection to it."""
    pid: int = 0
    """Process id; 0 until the zygote has reported it."""
    held: int = 0
    """Number of dispatched tasks that it has not reported as done."""
    ending: bool = False
    """True if it was told to stop, or reported that it will."""
    ends_by: float = math.inf
    """Time at which it is killed if it has not exited."""
    killed: bool = False
    """True if the signal that kills it is ours."""
    overdue: bool = False
    """It was killed because a call took too long."""
    waits_for_room: bool = False
    """True if epoll waits for room in its socket."""


@dataclass(frozen=True)
class Gone:
    """Exit of a worker process, delivered like a message."""

    expected: bool
    """True if it was told to stop."""
    reason: str
    """Reason for the user."""
    status: int | None = None
    """Exit code, or minus the number of the signal; `None`: not known."""
    overdue: bool = False
    """It was killed because a call took too long."""


class ProcessPool:
    """Worker processes, forked by a zygote that is started at once."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._zygote: Zygote | None = None
        self._zygotes_lost = 0
        self._setup = b""
        self._output: int | None = None
        self._workers: dict[int, WorkerHandle] = {}
        self._by_fd: dict[int, WorkerHandle] = {}
        self._dirty: dict[int, WorkerHandle] = {}
        self._start_zygote()

    # -- starting and sending -----------------------------------------------------------------------------------------

    def _start_zygote(self) -> Zygote:
        zygote = self._zygote = Zygote()
        self._epoll.register(zygote.channel.fileno(), _READ)
        if self._setup:
            zygote.load(self._setup, self._output)
        return zygote

    def load(self, setup: bytes, output: int | None = None) -> None:
        """Send the setup of the workers; `output` is the descriptor for what they print, if it is not the driver's own
        stderr."""
        self._setup, self._output = setup, output
        assert self._zygote is not None
        self._zygote.load(setup, output)
        self._flush_zygote()

    def start(self, request: Fork, arena: int) -> None:
        """Start a worker."""
        zygote = self._zygote or self._start_zygote()
        ours, theirs = socket_pair()
        ours.setblocking(False)
        zygote.fork(request, theirs, arena)
        handle = WorkerHandle(request.worker, Channel(ours, FromWorker))
        self._workers[request.worker] = handle
        self._by_fd[ours.fileno()] = handle
        self._epoll.register(ours.fileno(), _READ)

    def knows(self, worker: int) -> bool:
        """Return True if a worker is running or starting."""
        return worker in self._workers

    def send(self, worker: int, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Queue a message for the next poll. Messages to a dead worker are dropped: its exit will be reported."""
        handle = self._workers.get(worker)
        if handle is None:
            for fd in fds:
                os.close(fd)
            return
        if isinstance(message, Run):
            handle.held += len(message.tasks)
        elif isinstance(message, Stop):
            handle.ending = True
            handle.ends_by = time.monotonic() + STOP_IDLE_S
        handle.channel.queue(message, fds)
        self._dirty[worker] = handle

    def answered(self, worker: int, tasks: int) -> None:
        """Subtract tasks that a worker has reported as done."""
        handle = self._workers.get(worker)
        if handle is not None:
            handle.held -= tasks

    def zygote_pids(self) -> list[int]:
        """Return the process id of the zygote, if it is running."""
        return [self._zygote.pid] if self._zygote is not None else []

    def worker_pids(self) -> dict[int, int]:
        """Return the process ids by worker."""
        return {worker: handle.pid for worker, handle in self._workers.items() if handle.pid}

    def kill_overdue(self, now: float) -> None:
        """Kill workers that exceeded their time to stop: another worker may wait for their resources."""
        for handle in self._workers.values():
            if handle.ends_by < now and handle.pid:
                handle.killed = True
                kill_group(handle.pid)

    def kill_hanging(self, worker: int) -> None:
        """Kill a worker whose call takes too long."""
        handle = self._workers.get(worker)
        if handle is not None and handle.pid and not handle.killed:
            handle.killed = handle.overdue = True
            kill_group(handle.pid)

    # -- polling ------------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[tuple[int, Any]]:
        """Return pairs of worker and message, in order of arrival; `Gone` is the last message of a worker."""
        self._flush()
        found: list[tuple[int, Any]] = []
        for fd, events in self._epoll.poll(timeout_s):
            handle = self._by_fd.get(fd)
            if handle is None:
                if self._zygote is not None and fd == self._zygote.channel.fileno():
                    self._receive_from_zygote(self._zygote, found)
                continue
            if events & select.EPOLLOUT:
                self._dirty[handle.worker] = handle
            if events & ~select.EPOLLOUT:
                self._receive_from_worker(handle, found)
        self._flush()
        return found

    def _flush(self) -> None:
        if not self._dirty:
            self._flush_zygote()
            return
        dirty, self._dirty = self._dirty, {}
        for handle in dirty.values():
            room = handle.channel.flush()
            if room == handle.waits_for_room and handle.worker in self._workers:
                handle.waits_for_room = not room
                self._epoll.modify(handle.channel.fileno(), _READ if room else _WRITE)
        self._flush_zygote()

    def _flush_zygote(self) -> None:
        zygote = self._zygote
        if zygote is not None and zygote.channel.has_unsent:
            room = zygote.channel.flush()
            self._epoll.modify(zygote.channel.fileno(), _READ if room else _WRITE)

    def _receive_from_worker(self, handle: WorkerHandle, found: list[tuple[int, Any]]) -> None:
        for message in handle.channel.receive():
            if isinstance(message, CannotStart):
                handle.ending = True
            found.append((handle.worker, message))
        if handle.channel.closed:
            # The worker closed the connection: it has exited, which the zygote will report, or it cannot be used.
            self._epoll.unregister(handle.channel.fileno())
            del self._by_fd[handle.channel.fileno()]
            if not handle.ending:
                handle.ends_by = time.monotonic() + STOP_CLOSED_S

    def _receive_from_zygote(self, zygote: Zygote, found: list[tuple[int, Any]]) -> None:
        for message in zygote.channel.receive():
            if isinstance(message, Forked):
                self._workers[message.worker].pid = message.pid
            elif isinstance(message, Exited):
                handle = self._workers[message.worker]
                self._remove_worker(handle, _exit_reason(message.status, ours=handle.killed), found, message.status)
        if zygote.channel.closed:
            self._remove_zygote(zygote, found)

    def _remove_worker(
        self, handle: WorkerHandle, reason: str, found: list[tuple[int, Any]], status: int | None = None
    ) -> None:
        """Remove a worker that has exited; messages that it had sent come before its `Gone`."""
        found.extend((handle.worker, message) for message in handle.channel.receive_all())
        if self._by_fd.pop(handle.channel.fileno(), None) is not None:
            self._epoll.unregister(handle.channel.fileno())
        handle.channel.close()
        del self._workers[handle.worker]
        self._dirty.pop(handle.worker, None)
        found.append((handle.worker, Gone(handle.ending, reason, status, handle.overdue)))

    def _remove_zygote(self, zygote: Zygote, found: list[tuple[int, Any]]) -> None:
        self._epoll.unregister(zygote.channel.fileno())
        zygote.close()
        self._zygote = None
        self._zygotes_lost += 1
        for handle in list(self._workers.values()):
            if handle.pid:
                kill_group(handle.pid)
            self._remove_worker(
                handle, "the process that starts workers was killed, and all workers exited with it", found
            )
        if self._zygotes_lost >= ZYGOTE_ATTEMPTS:
            raise RunFailedError(
                f"the process that starts workers exited {self._zygotes_lost} times. Look for messages above this one; "
                "if memory is short, give the run less of it (memory=…) or fewer workers"
            )

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self, *, kill: bool = False) -> None:
        """Stop all workers and the zygote; `kill`: also while they are busy. May be called twice."""
        if self._epoll.closed:
            return
        self._stop_workers(busy_too=kill)
        for handle in self._workers.values():
            handle.channel.close()
            if handle.pid:
                kill_group(handle.pid)
        self._workers.clear()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
        self._epoll.close()

    def _stop_workers(self, *, busy_too: bool) -> None:
        """Let workers tear down their stages, and wait for that, within limits."""
        for worker, handle in list(self._workers.items()):
            self.send(worker, Stop())
            if busy_too and handle.pid:
                request_stop(handle.pid)
        started = time.monotonic()
        while self._workers:
            if busy_too:
                limit_s = STOP_SIGNALLED_S
            else:
                limit_s = STOP_BUSY_S if any(handle.held > 0 for handle in self._workers.values()) else STOP_IDLE_S
            left = started + limit_s - time.monotonic()
            if left <= 0 or (busy_too and not any(handle.pid for handle in self._workers.values())):
                return
            with contextlib.suppress(RunFailedError):  # the zygote exited, and all workers with it
                self.poll(min(left, 0.2))


def _exit_reason(status: int, *, ours: bool) -> str:
    if status >= 0:
        return f"its process ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    if name == "SIGKILL" and not ours:
        return "killed (out of memory?): its process was ended by a SIGKILL that this run did not send"
    return f"its process was killed by {name}"
