# SPDX-License-Identifier: Apache-2.0
"""The zygote: a process that imports what workers need once, and forks them.

It is started before anything else and imports while the driver plans. It has one thread, because a fork copies only the
thread that forks; should a module of a user have started more, workers are started afresh instead. It ends with the
driver, and workers end with it, whatever happens: the kernel sends the signal.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from thresher.runtime.large_table import create_table
from thresher.runtime.launch import FIRST_FD, early_socket, launch_zygote, search_path, start_python
from thresher.runtime.memory import choose_pool_when_imported
from thresher.runtime.messages import Exited, Fork, Forked, FromZygote, Load, Preload, ToZygote
from thresher.runtime.process_control import end_with_parent, kill_group, name_process
from thresher.runtime.wire import Channel, PeerGone

_PRELOADED = ("numpy", "thresher.runtime.worker_start")


# -- the driver's side -------------------------------------------------------------------------------------------------


def tell_early(stages: Sequence[Any]) -> None:
    """Let a zygote that was started early import what some stages need, while their plan is made."""
    from thresher.runtime.preload import modules_for

    sock = early_socket()
    if sock is not None:
        channel: Channel[FromZygote] = Channel(sock, FromZygote)
        channel.queue(Preload(modules_for(stages)))
        channel.flush()  # the socket blocks and the message is short


class Zygote:
    """The driver's handle on its zygote."""

    def __init__(self) -> None:
        """Start the process, unless one was started early."""
        self.pid, sock = launch_zygote()
        sock.setblocking(False)
        self.channel: Channel[FromZygote] = Channel(sock, FromZygote)

    def load(self, setup: bytes, output: int | None = None) -> None:
        """Tell what workers are made of, and where their prints go if not to the driver's own stderr."""
        fds = () if output is None else (os.dup(output),)
        self.channel.queue(Load(setup, search_path(), sys.argv, output is not None), fds)

    def fork(self, request: Fork, sock: socket.socket, arena: int) -> None:
        """Ask for a worker; the socket is handed over."""
        self.channel.queue(request, (sock.detach(), os.dup(arena)))

    def close(self) -> None:
        """End the process, also if it is busy with an import; workers that are left end with it."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):  # somebody else in this process reaps children
            os.waitpid(self.pid, 0)


# -- the process itself ------------------------------------------------------------------------------------------------


def main(driver_pid: int, environment: dict[str, str]) -> NoReturn:
    """Serve the driver until it is gone. `environment`: the user's values of variables that we set for our imports."""
    end_with_parent(driver_pid, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name_process("thresher-zygote")
    channel: Channel[ToZygote] = Channel(socket.socket(fileno=FIRST_FD), ToZygote)
    choose_pool_when_imported()
    for module in _PRELOADED:
        __import__(module)
    create_table()
    server = _Server(channel, environment)
    with contextlib.suppress(PeerGone):
        server.serve()
    server.end()


class _Server:
    """Starts workers, and tells when they end."""

    def __init__(self, channel: Channel[ToZygote], environment: dict[str, str]) -> None:
        self._channel = channel
        self._environment = environment
        self._setup: Any = None
        self._setup_bytes = b""
        self._error = ""
        self._workers: dict[int, tuple[int, int]] = {}
        """Descriptor of the process to the worker's id and its pid."""

    def serve(self) -> None:
        """Until the driver is gone."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd in self._workers:
                    poll.unregister(fd)
                    self._bury(fd)
                    continue
                for message in self._channel.receive(wait=True):
                    if isinstance(message, Preload):
                        self._import(message)
                    elif isinstance(message, Load):
                        self._load(message)
                    else:
                        poll.register(self._start(message), select.POLLIN)
            self._channel.flush()

    def _bury(self, fd: int) -> None:
        """A worker has ended. What its stages left running ends too, while the number of the group is still taken."""
        worker, pid = self._workers.pop(fd)
        kill_group(pid)
        self._channel.queue(Exited(worker, _exit_status(fd)))

    def end(self, *_signal: object) -> NoReturn:
        """The driver is gone: end the workers and all that they started."""
        for _, pid in self._workers.values():
            kill_group(pid)
        os._exit(0)

    def _import(self, message: Preload) -> None:
        from thresher.runtime.preload import import_early

        import_early(message.modules)

    def _load(self, message: Load) -> None:
        from thresher.runtime.preload import import_modules
        from thresher.runtime.setup_pickle import load_setup
        from thresher.runtime.worker_start import set_up_node_apart

        self._setup_bytes = message.setup
        sys.path[:] = message.path
        sys.argv[:] = message.argv
        if message.takes_output:
            output = self._channel.take_fd()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
        try:
            self._setup = load_setup(message.setup)
            self._error = set_up_node_apart(self._setup)
            if not self._error:
                import_modules(self._setup.plan)
        except BaseException:  # an import of a user's module may raise anything, SystemExit included
            self._error = traceback.format_exc()
        gc.collect()
        gc.freeze()

    def _start(self, request: Fork) -> int:
        """Start a worker; the descriptor of its process."""
        sock, arena = self._channel.take_fd(), self._channel.take_fd()
        signal.signal(signal.SIGTERM, self.end)  # from now on there is something to clean up
        pid = self._fork(request, sock, arena) if _has_one_thread() else self._spawn(request, sock, arena)
        os.close(sock)
        os.close(arena)
        fd = os.pidfd_open(pid)
        self._workers[fd] = (request.worker, pid)
        self._channel.queue(Forked(request.worker, pid))
        return fd

    def _fork(self, request: Fork, sock: int, arena: int) -> int:
        zygote = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            end_with_parent(zygote, signal.SIGKILL)
            os.setpgid(0, 0)
            self._leave_behind()
            os.environ.update(self._environment)
            from thresher.runtime.worker_start import run_worker

            run_worker(request, socket.socket(fileno=sock), arena, self._setup, self._error)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _spawn(self, request: Fork, sock: int, arena: int) -> int:
        """Start a worker that imports everything itself."""
        setup = os.memfd_create("thresher-setup", os.MFD_CLOEXEC)
        os.write(setup, self._setup_bytes)
        fields = tuple(getattr(request, name) for name in request.__struct_fields__)
        try:
            return start_python(
                "worker_start",
                f"{os.getpid()}, {fields!r}, {self._error!r}",
                (sock, arena, setup),
                {**os.environ, **self._environment},
            )
        finally:
            os.close(setup)

    def _leave_behind(self) -> None:
        """In a new worker: close what belongs to the zygote. A sibling that kept a socket open would hide its end."""
        self._channel.sock.close()
        for fd in self._workers:
            os.close(fd)


def _has_one_thread() -> bool:
    return len(os.listdir("/proc/self/task")) == 1


def _exit_status(fd: int) -> int:
    ended = os.waitid(os.P_PIDFD, fd, os.WEXITED)
    os.close(fd)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
