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

from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.sizes import show_size
from thresher.core.stage import overrides
from thresher.runtime import messages as msg
from thresher.runtime.accelerators import show_devices
from thresher.runtime.arena import OwnArena
from thresher.runtime.attended_worker import AttendedWorkerProcess
from thresher.runtime.death_notes import keep_notes_in
from thresher.runtime.launch import FIRST_FD
from thresher.runtime.memory import MemoryKeeper, choose_pool_when_imported, private_bytes, watch_for_out_of_memory
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.preload import has_kernels
from thresher.runtime.process_control import (
    Ended,
    end_when_asked,
    end_with_parent,
    ignore_asking,
    limit_private_memory,
    name_process,
)
from thresher.runtime.setup_pickle import load_setup
from thresher.runtime.wire import Channel, PeerGone
from thresher.runtime.worker import SetupFailed, Worker, set_up_node
from thresher.runtime.worker_process import WorkerProcess

YIELDING = 5
"""How much nicer a worker is beside those that keep accelerators busy."""

RECORD_COPIES = 16
"""A worker may map so many times the largest record that must be worked on. Accented text that a stage rewrites takes
about seven, and the limit counts what allocators have mapped and given back."""


def main(zygote: int, request: tuple[Any, ...], error: str) -> None:
    """A worker that was not forked: the descriptors are those of its socket, its arena and its setup."""
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
            except BaseException:  # an import of a user's module may raise anything, SystemExit included
                error = traceback.format_exc()
    run_worker(fork, socket.socket(fileno=FIRST_FD), FIRST_FD + 1, setup, error)
    os._exit(0)


def run_worker(request: msg.Fork, sock: socket.socket, arena_fd: int, setup: Any, error: str) -> None:
    """The life of a worker process, from its fork to its end."""
    channel: Channel[msg.ToWorker] = Channel(sock, msg.ToWorker)
    _settle_in(request)
    worker = None if error else Worker(dataclasses.replace(setup, metadata=_metadata(request)))
    try:
        end_when_asked()
        if worker is not None:
            error = _set_up(worker, request)
        if worker is None or error:
            channel.queue(msg.CannotStart(error))
            channel.flush()
        else:
            channel.queue(msg.Started(private_bytes()))
            channel.flush()
            arena = OwnArena(request.worker, arena_fd, request.keep_bytes)
            keep_notes_in(arena.note_page)
            keeper = MemoryKeeper(request.share_bytes)
            watch_for_out_of_memory(keeper)
            body = AttendedWorkerProcess if request.devices else WorkerProcess
            process = body(channel, worker, arena, request.spill_to, keeper)
            process.serve()
            ignore_asking()
            process.end()
    except (PeerGone, Ended):
        pass
    finally:
        ignore_asking()
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
    """Set up the stages of a worker that serves one op; the error, if there is one."""
    try:
        if request.op is not None:
            worker.prepare(worker.plan.ops[request.op])
    except SetupFailed as failed:
        if request.is_limited and isinstance(failed.__cause__, MemoryError):
            return (
                f"{failed}\nA worker of this stage may take {show_size(request.share_bytes)} for itself; "
                "say what the stage needs with Resources(memory_gb=…), or give the run more memory"
            )
        return str(failed)
    if request.is_limited:
        # What the setup has loaded is not taken from it, and the largest record must have room.
        limit_private_memory(max(request.share_bytes, RECORD_COPIES * worker.plan.settings.max_record_bytes))
    return ""


def _settle_in(request: msg.Fork) -> None:
    """What a fork leaves to be done."""
    name_process(f"thresher-w{request.worker}")
    show_devices(request.visible)
    if request.yields:
        os.nice(YIELDING)
    if request.is_limited:
        limit_private_memory(request.share_bytes)
    faulthandler.enable()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text file, as Python opened it
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()  # forked siblings would draw the same numbers; Python's own generator sees to that itself


def set_up_node_apart(setup: WorkerSetup) -> str:
    """Run `setup_on_node` in a process of its own, so that the zygote stays single-threaded; the error, if any."""
    if not has_kernels(setup.plan) and not any(overrides(stage, "setup_on_node") for stage in setup.plan.stages):
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
