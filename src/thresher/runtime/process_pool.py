# SPDX-License-Identifier: Apache-2.0
"""The driver's view of its worker processes: start them, talk to them, notice their end. One epoll loop, no threads."""

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
from thresher.runtime.messages import CannotStart, Exited, Fork, Forked, FromWorker, Run, Stop
from thresher.runtime.process_control import ask_to_end, kill_group
from thresher.runtime.wire import Channel, socket_pair
from thresher.runtime.zygote import Zygote

ZYGOTE_ATTEMPTS = 3
STOP_IDLE_S = 30.0
"""How long workers may take for their teardown."""
STOP_BUSY_S = 2.0
"""How long workers that are in the middle of a task may take to notice that the run is over."""
STOP_ASKED_S = 5.0
"""How long workers may take that were asked to end in the middle of whatever they do, teardown included."""
STOP_CLOSED_S = 1.0
"""How long a worker may take to end after it has closed its connection; mostly it is dead already."""
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
    """0 until the zygote has told."""
    held: int = 0
    """Tasks that it was given and has not answered for."""
    ending: bool = False
    """It was told to end, or said that it will."""
    ends_by: float = math.inf
    """When it is killed if it has not ended by itself."""
    killed: bool = False
    """The signal that ends it is ours."""
    overdue: bool = False
    """It was killed because a call took too long."""
    writes: bool = False
    """Whether epoll watches for room in its socket."""


@dataclass(frozen=True)
class Gone:
    """A worker process has ended, in place of a message."""

    expected: bool
    """It was told to."""
    reason: str
    """For people."""
    status: int = 0
    """Exit code, or minus the number of the signal; 0 where that is not known."""
    overdue: bool = False
    """It was killed because a call took too long."""


class ProcessPool:
    """Worker processes, forked by a zygote that starts at once."""

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

    # -- starting and talking -----------------------------------------------------------------------------------------

    def _start_zygote(self) -> Zygote:
        zygote = self._zygote = Zygote()
        self._epoll.register(zygote.channel.fileno(), _READ)
        if self._setup:
            zygote.load(self._setup, self._output)
        return zygote

    def load(self, setup: bytes, output: int | None = None) -> None:
        """What workers are made of; `output` is what they print to, if it is not the driver's own stderr."""
        self._setup, self._output = setup, output
        assert self._zygote is not None
        self._zygote.load(setup, output)
        self._flush_zygote()

    def start(self, request: Fork, arena: int) -> None:
        """Start a worker."""
        zygote = self._zygote or self._start_zygote()
        mine, its = socket_pair()
        mine.setblocking(False)
        zygote.fork(request, its, arena)
        handle = WorkerHandle(request.worker, Channel(mine, FromWorker))
        self._workers[request.worker] = handle
        self._by_fd[mine.fileno()] = handle
        self._epoll.register(mine.fileno(), _READ)

    def knows(self, worker: int) -> bool:
        """Whether a worker is there (or about to be)."""
        return worker in self._workers

    def send(self, worker: int, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Send with the next poll. What a dead worker would have got is dropped: its end is about to be told."""
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
        """A worker has answered for so many tasks."""
        handle = self._workers.get(worker)
        if handle is not None:
            handle.held -= tasks

    def zygote_pids(self) -> list[int]:
        """The zygote, if it is there."""
        return [self._zygote.pid] if self._zygote is not None else []

    def worker_pids(self) -> dict[int, int]:
        """Workers and their processes."""
        return {worker: handle.pid for worker, handle in self._workers.items() if handle.pid}

    def kill_overdue(self, now: float) -> None:
        """End workers that were to end and hang: another one may wait for their place."""
        for handle in self._workers.values():
            if handle.ends_by < now and handle.pid:
                handle.killed = True
                kill_group(handle.pid)

    def kill_hanging(self, worker: int) -> None:
        """End a worker whose call takes too long."""
        handle = self._workers.get(worker)
        if handle is not None and handle.pid and not handle.killed:
            handle.killed = handle.overdue = True
            kill_group(handle.pid)

    # -- polling ------------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[tuple[int, Any]]:
        """Worker and message, in the order they came; `Gone` is the last one of a worker."""
        self._flush()
        found: list[tuple[int, Any]] = []
        for fd, events in self._epoll.poll(timeout_s):
            handle = self._by_fd.get(fd)
            if handle is None:
                if self._zygote is not None and fd == self._zygote.channel.fileno():
                    self._hear_zygote(self._zygote, found)
                continue
            if events & select.EPOLLOUT:
                self._dirty[handle.worker] = handle
            if events & ~select.EPOLLOUT:
                self._hear(handle, found)
        self._flush()
        return found

    def _flush(self) -> None:
        if not self._dirty:
            self._flush_zygote()
            return
        dirty, self._dirty = self._dirty, {}
        for handle in dirty.values():
            room = handle.channel.flush()
            if room == handle.writes and handle.worker in self._workers:
                handle.writes = not room
                self._epoll.modify(handle.channel.fileno(), _READ if room else _WRITE)
        self._flush_zygote()

    def _flush_zygote(self) -> None:
        zygote = self._zygote
        if zygote is not None and zygote.channel.has_unsent:
            room = zygote.channel.flush()
            self._epoll.modify(zygote.channel.fileno(), _READ if room else _WRITE)

    def _hear(self, handle: WorkerHandle, found: list[tuple[int, Any]]) -> None:
        for message in handle.channel.receive():
            if isinstance(message, CannotStart):
                handle.ending = True
            found.append((handle.worker, message))
        if handle.channel.closed:
            # It closed the connection: it is dead, which the zygote will tell, or useless.
            self._epoll.unregister(handle.channel.fileno())
            del self._by_fd[handle.channel.fileno()]
            if not handle.ending:
                handle.ends_by = time.monotonic() + STOP_CLOSED_S

    def _hear_zygote(self, zygote: Zygote, found: list[tuple[int, Any]]) -> None:
        for message in zygote.channel.receive():
            if isinstance(message, Forked):
                self._workers[message.worker].pid = message.pid
            elif isinstance(message, Exited):
                handle = self._workers[message.worker]
                self._lose(handle, _why(message.status, ours=handle.killed), found, message.status)
        if zygote.channel.closed:
            self._lose_zygote(zygote, found)

    def _lose(self, handle: WorkerHandle, reason: str, found: list[tuple[int, Any]], status: int = 0) -> None:
        """A worker has ended: what it had sent counts, then it is gone."""
        found.extend((handle.worker, message) for message in handle.channel.receive_all())
        if self._by_fd.pop(handle.channel.fileno(), None) is not None:
            self._epoll.unregister(handle.channel.fileno())
        handle.channel.close()
        del self._workers[handle.worker]
        self._dirty.pop(handle.worker, None)
        found.append((handle.worker, Gone(handle.ending, reason, status, handle.overdue)))

    def _lose_zygote(self, zygote: Zygote, found: list[tuple[int, Any]]) -> None:
        self._epoll.unregister(zygote.channel.fileno())
        zygote.close()
        self._zygote = None
        self._zygotes_lost += 1
        for handle in list(self._workers.values()):
            if handle.pid:
                kill_group(handle.pid)
            self._lose(handle, "the process that starts workers was killed, and they ended with it", found)
        if self._zygotes_lost >= ZYGOTE_ATTEMPTS:
            raise RunFailedError(
                f"the process that starts workers died {self._zygotes_lost} times. Look for messages above this one; "
                "if memory is short, give the run less of it (memory=…) or fewer workers"
            )

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self, *, kill: bool = False) -> None:
        """End all workers and the zygote; `kill`: also in the middle of what they do. May be called twice."""
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
        """Let workers tear their stages down, and wait for that, within limits."""
        for worker, handle in list(self._workers.items()):
            self.send(worker, Stop())
            if busy_too and handle.pid:
                ask_to_end(handle.pid)
        started = time.monotonic()
        while self._workers:
            if busy_too:
                patience = STOP_ASKED_S
            else:
                patience = STOP_BUSY_S if any(handle.held > 0 for handle in self._workers.values()) else STOP_IDLE_S
            left = started + patience - time.monotonic()
            if left <= 0 or (busy_too and not any(handle.pid for handle in self._workers.values())):
                return
            with contextlib.suppress(RunFailedError):  # the zygote died: then all are gone
                self.poll(min(left, 0.2))


def _why(status: int, *, ours: bool) -> str:
    if status >= 0:
        return f"its process ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    if name == "SIGKILL" and not ours:
        return "killed (out of memory?): its process was ended by a SIGKILL that this run did not send"
    return f"its process was killed by {name}"
