# SPDX-License-Identifier: Apache-2.0
"""The life of a worker process from its fork to its end, and the set-up of the machine before the first one."""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import signal
import socket
import sys
import traceback
from typing import Any

from thresher.core.resources import WorkerMetadata
from thresher.core.stage import overrides
from thresher.runtime import messages as msg
from thresher.runtime.arena import OwnArena
from thresher.runtime.launch import FIRST_FD
from thresher.runtime.memory import choose_memory_pool
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.process_control import end_with_parent, name_process
from thresher.runtime.setup_pickle import load_setup
from thresher.runtime.wire import Channel, PeerGone
from thresher.runtime.worker import SetupFailed, Worker, set_up_node
from thresher.runtime.worker_process import WorkerProcess


def main(zygote: int, request: tuple[Any, ...], error: str) -> None:
    """A worker that was not forked: the descriptors are those of its socket, its arena and its setup."""
    end_with_parent(zygote, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    choose_memory_pool()
    setup: Any = None
    if not error:
        with open(FIRST_FD + 2, "rb") as file:
            file.seek(0)
            try:
                setup = load_setup(file.read())
            except BaseException:  # an import of a user's module may raise anything, SystemExit included
                error = traceback.format_exc()
    run_worker(msg.Fork(*request), socket.socket(fileno=FIRST_FD), FIRST_FD + 1, setup, error)
    os._exit(0)


def run_worker(request: msg.Fork, sock: socket.socket, arena_fd: int, setup: Any, error: str) -> None:
    """The life of a worker process, from its fork to its end."""
    channel: Channel[msg.ToWorker] = Channel(sock, msg.ToWorker)
    _settle_in(request.worker)
    worker: Worker | None = None
    if not error:
        worker, error = _make_worker(request, setup)
    if worker is None:
        channel.queue(msg.CannotStart(error))
        channel.flush()
        return
    channel.queue(msg.Started())
    channel.flush()
    process = WorkerProcess(channel, worker, OwnArena(request.worker, arena_fd, request.keep_bytes), request.spill_to)
    try:
        process.serve()
        process.end()
    except PeerGone:
        worker.teardown()
    sys.stdout.flush()
    sys.stderr.flush()


def _make_worker(request: msg.Fork, setup: WorkerSetup) -> tuple[Worker | None, str]:
    metadata = WorkerMetadata(worker_id=str(request.worker), rank=request.rank, num_workers=request.num_workers)
    worker = Worker(dataclasses.replace(setup, metadata=metadata))
    if request.op is None:
        return worker, ""
    try:
        worker.prepare(worker.plan.ops[request.op])
    except SetupFailed as failed:
        worker.teardown()
        return None, str(failed)
    return worker, ""


def _settle_in(number: int) -> None:
    """What a fork leaves to be done."""
    name_process(f"thresher-w{number}")
    faulthandler.enable()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text file, as Python opened it
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()  # forked siblings would draw the same numbers; Python's own generator sees to that itself


def set_up_node_apart(setup: WorkerSetup) -> str:
    """Run `setup_on_node` in a process of its own, so that the zygote stays single-threaded; the error, if any."""
    if not any(overrides(stage, "setup_on_node") for stage in setup.plan.stages):
        return ""
    zygote = os.getpid()
    report = os.memfd_create("thresher-node", os.MFD_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        status = 0
        try:
            end_with_parent(zygote, signal.SIGKILL)
            set_up_node(setup.plan)
        except BaseException:  # a user's code may raise anything
            status = 1
            os.write(report, traceback.format_exc().encode("utf-8", "replace"))
        sys.stdout.flush()
        os._exit(status)
    _, status = os.waitpid(pid, 0)
    text = os.pread(report, os.fstat(report).st_size, 0).decode("utf-8", "replace")
    os.close(report)
    if status == 0:
        return ""
    return text or f"the process that ran setup_on_node ended with status {os.waitstatus_to_exitcode(status)}"
