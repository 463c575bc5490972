# SPDX-License-Identifier: Apache-2.0
"""The zygote: a process that imports the modules of workers once, and forks them.

It is started first and imports while the driver plans. It has one thread, because a fork copies only the calling
thread; if a user module has started threads, workers are spawned instead. It exits with the driver, and workers exit
with it: the kernel sends the signal.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from thresher.credentials import print_traceback, traceback_of
from thresher.runtime.memory.large_table import create_table
from thresher.runtime.memory.usage import choose_pool_when_imported
from thresher.runtime.processes.control import end_with_parent, kill_group, name_process
from thresher.runtime.processes.launch import FIRST_FD, early_socket, launch_zygote, search_path, start_python
from thresher.runtime.processes.messages import Exited, Fork, Forked, FromZygote, Load, Preload, ToZygote
from thresher.runtime.processes.wire import Channel, PeerGone

_PRELOADED = ("numpy", "thresher.runtime.processes.worker_start")


# -- the driver's side -------------------------------------------------------------------------------------------------


def preload_early(stages: Sequence[Any]) -> None:
    """Make a zygote that was started early import the modules of some stages while their plan is made."""
    from thresher.runtime.processes.preload import modules_for

    sock = early_socket()
    if sock is not None:
        channel: Channel[FromZygote] = Channel(sock, FromZygote)
        channel.queue(Preload(modules_for(stages)))
        channel.flush()  # the socket blocks and the message is short


class Zygote:
    """The driver's handle of its zygote."""

    def __init__(self) -> None:
        """Start the process, or take one that was started early."""
        self.pid, sock = launch_zygote()
        sock.setblocking(False)
        self.channel: Channel[FromZygote] = Channel(sock, FromZygote)

    def load(self, setup: bytes, output: int | None = None) -> None:
        """Send the setup of the workers, and the descriptor for what they print if it is not the driver's own
        stderr."""
        fds = () if output is None else (os.dup(output),)
        self.channel.queue(Load(setup, search_path(), sys.argv, output is not None), fds)

    def fork(self, request: Fork, sock: socket.socket, arena: int) -> None:
        """Request a worker; takes ownership of the socket."""
        self.channel.queue(request, (sock.detach(), os.dup(arena)))

    def close(self) -> None:
        """Stop the process, even during an import; remaining workers exit with it."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):  # other code in this process reaped it
            os.waitpid(self.pid, 0)


# -- the process itself ------------------------------------------------------------------------------------------------


def main(driver_pid: int, environment: dict[str, str]) -> NoReturn:
    """Serve the driver until it exits. `environment`: the user's values of variables that we set for our imports."""
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
    """Starts workers and reports their exits."""

    def __init__(self, channel: Channel[ToZygote], environment: dict[str, str]) -> None:
        self._channel = channel
        self._environment = environment
        self._setup: Any = None
        self._setup_bytes = b""
        self._error = ""
        self._workers: dict[int, tuple[int, int]] = {}
        """Worker id and process id, by the descriptor of the process."""

    def serve(self) -> None:
        """Handle messages until the driver exits."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd in self._workers:
                    poll.unregister(fd)
                    self._reap(fd)
                    continue
                for message in self._channel.receive(wait=True):
                    if isinstance(message, Preload):
                        self._import(message)
                    elif isinstance(message, Load):
                        self._load(message)
                    else:
                        poll.register(self._start(message), select.POLLIN)
            self._channel.flush()

    def _reap(self, fd: int) -> None:
        """Report the exit of a worker, and kill the processes that its stages left running, while its process group
        still exists."""
        worker, pid = self._workers.pop(fd)
        kill_group(pid)
        self._channel.queue(Exited(worker, _exit_status(fd)))

    def end(self, *_signal: object) -> NoReturn:
        """Exit after the driver; kill the workers and all processes that they started."""
        for _, pid in self._workers.values():
            kill_group(pid)
        os._exit(0)

    def _import(self, message: Preload) -> None:
        from thresher.runtime.processes.preload import import_early

        import_early(message.modules)

    def _load(self, message: Load) -> None:
        from thresher.runtime.processes.preload import import_modules
        from thresher.runtime.processes.setup_pickle import load_setup
        from thresher.runtime.processes.worker_start import set_up_node_in_subprocess

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
            self._error = set_up_node_in_subprocess(self._setup)
            if not self._error:
                import_modules(self._setup.plan)
        except BaseException as error:  # an import of a user's module may raise anything, SystemExit included
            self._error = traceback_of(error)
        gc.collect()
        gc.freeze()

    def _start(self, request: Fork) -> int:
        """Start a worker; return the descriptor of its process."""
        sock, arena = self._channel.take_fd(), self._channel.take_fd()
        signal.signal(signal.SIGTERM, self.end)  # from now on there are workers to stop
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
            self._close_zygote_descriptors()
            os.environ.update(self._environment)
            from thresher.runtime.processes.worker_start import run_worker

            run_worker(request, socket.socket(fileno=sock), arena, self._setup, self._error)
        except BaseException as error:
            print_traceback(error)
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

    def _close_zygote_descriptors(self) -> None:
        """In a new worker: close the descriptors of the zygote. A copy of a socket would hide that its other end was
        closed."""
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
