# SPDX-License-Identifier: Apache-2.0
"""The zygote: a process that imports what workers need once, and forks them.

It is started before anything else and imports while the driver plans. It has one thread, because a fork copies only the
thread that forks. It ends with the driver, and workers end with it, whatever happens: the kernel sends the signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any

from thresher.runtime.messages import Exited, Fork, Forked, FromZygote, Load, ToZygote
from thresher.runtime.wire import Channel, PeerGone, socket_pair

SOCKET_FD = 3
"""Where the zygote finds its end of the connection."""
SINGLE_THREADED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "MIMALLOC_PURGE_DELAY": "0",
}
"""What keeps imports from starting threads, and Arrow's allocators from keeping freed memory."""
_PRELOADED = ("numpy", "pyarrow", "cloudpickle", "thresher.runtime.worker_process")
_START = "import sys; sys.path[:] = {path!r}; from thresher.runtime.zygote import main; main({driver})"
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


# -- the driver's side ---------------------------------------------------------------------------------------------------


class Zygote:
    """The driver's handle on its zygote."""

    def __init__(self) -> None:
        """Start the process; it has a process group of its own, so that Ctrl-C reaches the driver alone."""
        mine, its = socket_pair()
        try:
            self.pid = _spawn(its.fileno())
        finally:
            its.close()
        mine.setblocking(False)
        self.channel: Channel[FromZygote] = Channel(mine, FromZygote)

    def load(self, setup: bytes) -> None:
        """Tell what workers are made of."""
        self.channel.queue(Load(setup))

    def fork(self, request: Fork, sock: socket.socket, arena: int) -> None:
        """Ask for a worker; the socket is handed over."""
        self.channel.queue(request, (sock.detach(), os.dup(arena)))

    def close(self, *, kill: bool = False) -> None:
        """End the process; workers that are left end with it."""
        self.channel.close()
        if kill:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # somebody else in this process reaps children
            os.waitpid(self.pid, 0)


def _spawn(fd: int) -> int:
    here = os.getcwd()
    path = [entry or here for entry in sys.path]
    flags = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    flags += [f"-W{option}" for option in sys.warnoptions]
    code = _START.format(path=path, driver=os.getpid())
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    if _is_open(2):
        actions.append((os.POSIX_SPAWN_DUP2, 2, 1))  # results go to stdout, and prints of stages are no results
    else:
        actions += [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    actions.append((os.POSIX_SPAWN_DUP2, fd, SOCKET_FD))
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", *flags, "-c", code],
        {**os.environ, **SINGLE_THREADED},
        file_actions=actions,
        setpgroup=0,
        setsigmask=[],
    )


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


# -- the process itself ----------------------------------------------------------------------------------------------------


def main(driver_pid: int) -> None:
    """Serve the driver until it is gone."""
    end_with_parent(driver_pid, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name_process("thresher-zygote")
    channel: Channel[ToZygote] = Channel(socket.socket(fileno=SOCKET_FD), ToZygote)
    for module in _PRELOADED:
        __import__(module)
    server = _Server(channel)
    with contextlib.suppress(PeerGone):
        server.serve()
    server.end()


class _Server:
    """Forks workers, and tells when they end."""

    def __init__(self, channel: Channel[ToZygote]) -> None:
        self._channel = channel
        self._setup: Any = None
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
                    if isinstance(message, Load):
                        self._load(message.setup)
                    else:
                        poll.register(self._fork(message), select.POLLIN)
            self._channel.flush()

    def _bury(self, fd: int) -> None:
        """A worker has ended. What its stages started and left behind ends too, while the group's number is still taken."""
        worker, pid = self._workers.pop(fd)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self._channel.queue(Exited(worker, _exit_status(fd)))

    def end(self, *_: object) -> None:
        """The driver is gone: end the workers and all that they started."""
        for _, pid in self._workers.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        os._exit(0)

    def _load(self, setup: bytes) -> None:
        import gc

        from thresher.runtime.setup_pickle import load_setup
        from thresher.runtime.worker_process import set_up_node_apart

        try:
            self._setup = load_setup(setup)
            self._error = set_up_node_apart(self._setup)
        except BaseException:  # an import of a user's module may raise anything, SystemExit included
            self._error = traceback.format_exc()
        gc.collect()
        gc.freeze()

    def _fork(self, request: Fork) -> int:
        """Start a worker; the descriptor of its process."""
        sock, arena = self._channel.take_fd(), self._channel.take_fd()
        signal.signal(signal.SIGTERM, self.end)
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                end_with_parent(zygote, signal.SIGKILL)
                os.setpgid(0, 0)
                self._leave_behind()
                from thresher.runtime.worker_process import run_worker

                run_worker(request, socket.socket(fileno=sock), arena, self._setup, self._error)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(sock)
        os.close(arena)
        fd = os.pidfd_open(pid)
        self._workers[fd] = (request.worker, pid)
        self._channel.queue(Forked(request.worker, pid))
        return fd

    def _leave_behind(self) -> None:
        """In a new worker: close what belongs to the zygote. A sibling that kept a socket open would hide its end."""
        self._channel.sock.close()
        for fd in self._workers:
            os.close(fd)


def _exit_status(fd: int) -> int:
    ended = os.waitid(os.P_PIDFD, fd, os.WEXITED)
    os.close(fd)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def end_with_parent(parent: int, with_signal: signal.Signals) -> None:
    """Let the kernel end this process when its parent dies, also if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, int(with_signal))
    if os.getppid() != parent:
        os._exit(1)


def name_process(name: str) -> None:
    """The name that `top` shows."""
    import ctypes

    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def _prctl(option: int, value: Any) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
