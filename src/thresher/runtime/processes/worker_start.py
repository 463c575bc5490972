# SPDX-License-Identifier: Apache-2.0
"""Start of a worker process, and the setup of the machine before the first one."""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import signal
import socket
import sys
from typing import Any

from thresher.core.arguments.sizes import show_size
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import overrides
from thresher.credentials import traceback_of
from thresher.errors import RefusedError
from thresher.runtime.crashes.crash_notes import keep_notes_in
from thresher.runtime.memory.usage import (
    MemoryKeeper,
    choose_pool_when_imported,
    private_bytes,
    watch_for_out_of_memory,
)
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.overlap.overlapped_worker import OverlappedWorkerProcess
from thresher.runtime.payloads.arena import OwnArena
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.accelerators import show_devices
from thresher.runtime.processes.control import (
    Ended,
    end_with_parent,
    ignore_sigterm,
    limit_private_memory,
    name_process,
    stop_on_sigterm,
)
from thresher.runtime.processes.launch import FIRST_FD
from thresher.runtime.processes.preload import has_kernels
from thresher.runtime.processes.setup_pickle import load_setup
from thresher.runtime.processes.wire import Channel, PeerGone
from thresher.runtime.processes.worker_process import WorkerProcess
from thresher.runtime.worker.worker import SetupFailed, Worker, set_up_node

LOW_PRIORITY = 5
"""Niceness of a worker that runs beside workers with accelerators."""

RECORD_COPIES = 16
"""A worker may map so many times the size of the largest supported record. Accented text that a stage rewrites takes
about seven times its size, and the limit also counts freed memory that allocators keep mapped."""


def main(zygote: int, request: tuple[Any, ...], error: str) -> None:
    """Run a worker that was spawned; its descriptors are its socket, its arena and its setup."""
    end_with_parent(zygote, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fork = msg.Fork(*request)
    show_devices(fork.visible)
    choose_pool_when_imported()
    setup: Any = None
    if not error:
        with open(FIRST_FD + 2, "rb") as file:
            file.seek(0)
            try:
                setup = load_setup(file.read())
            except BaseException as failure:  # an import of a user's module may raise anything, SystemExit included
                error = traceback_of(failure)
    run_worker(fork, socket.socket(fileno=FIRST_FD), FIRST_FD + 1, setup, error)
    os._exit(0)


def run_worker(request: msg.Fork, sock: socket.socket, arena_fd: int, setup: Any, error: str) -> None:
    """Run a worker process to its end."""
    channel: Channel[msg.ToWorker] = Channel(sock, msg.ToWorker)
    _initialize_process(request)
    worker = None if error else Worker(dataclasses.replace(setup, metadata=_metadata(request)))
    try:
        stop_on_sigterm()
        if worker is not None:
            error = _set_up(worker, request)
        if worker is None or error:
            channel.queue(msg.CannotStart(error))
            channel.flush()
        else:
            channel.queue(msg.Started(private_bytes()))
            channel.flush()
            arena = OwnArena(request.worker, arena_fd, request.keep_bytes, request.spill_to)
            keep_notes_in(arena.note_page)
            keeper = MemoryKeeper(request.share_bytes)
            watch_for_out_of_memory(keeper)
            body = OverlappedWorkerProcess if request.devices else WorkerProcess
            process = body(channel, worker, arena, keeper)
            process.serve()
            ignore_sigterm()
            process.end()
    except (PeerGone, Ended):
        pass
    finally:
        ignore_sigterm()
        if worker is not None:
            worker.teardown()
    sys.stdout.flush()
    sys.stderr.flush()


def _metadata(request: msg.Fork) -> WorkerMetadata:
    return WorkerMetadata(
        worker_id=str(request.worker),
        node=NodeInfo(request.node),
        devices=request.devices,
        rank=request.rank,
        num_workers=request.num_workers,
    )


def _set_up(worker: Worker, request: msg.Fork) -> str:
    """Set up the stages of a worker that serves one op; return the error, if any."""
    try:
        if request.op is not None:
            worker.prepare(worker.plan.ops[request.op])
    except SetupFailed as failed:
        if request.is_limited and isinstance(failed.__cause__, MemoryError):
            return (
                f"{failed}\nA worker of this stage may use {show_size(request.share_bytes)} of private memory; "
                "declare what the stage needs with Resources(memory_gb=…), or give the run more memory"
            )
        return str(failed)
    if request.is_limited:
        # The limit excludes what the setup has loaded, and leaves room for the largest record.
        limit_private_memory(max(request.share_bytes, RECORD_COPIES * worker.plan.settings.max_record_bytes))
    return ""


def _initialize_process(request: msg.Fork) -> None:
    """Initialize the process state that a fork does not."""
    name_process(f"thresher-w{request.worker}")
    show_devices(request.visible)
    if request.yields:
        os.nice(LOW_PRIORITY)
    if request.is_limited:
        limit_private_memory(request.share_bytes)
    faulthandler.enable()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text file, as Python opened it
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()  # forked siblings would draw the same numbers; Python reseeds its own generator


def set_up_node_in_subprocess(setup: WorkerSetup) -> str:
    """Run `setup_on_node` in its own process, so that the zygote stays single-threaded; return the error, if any."""
    if not has_kernels(setup.plan) and not any(overrides(stage, "setup_on_node") for stage in setup.plan.stages):
        return ""
    zygote = os.getpid()
    report = os.memfd_create("thresher-node", os.MFD_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        status = 0
        try:
            end_with_parent(zygote, signal.SIGKILL)
            set_up_node(setup)
        except RefusedError as error:  # a mistake of the user: the traceback is of no interest
            status = 1
            os.write(report, str(error).encode("utf-8", "replace"))
        except BaseException as error:
            status = 1
            text = str(error) if isinstance(error, SetupFailed) else traceback_of(error)
            os.write(report, text.encode("utf-8", "replace"))
        sys.stdout.flush()
        os._exit(status)
    _, status = os.waitpid(pid, 0)
    text = os.pread(report, os.fstat(report).st_size, 0).decode("utf-8", "replace")
    os.close(report)
    if status == 0:
        return ""
    return text or f"the process that ran setup_on_node ended with status {os.waitstatus_to_exitcode(status)}"
