# SPDX-License-Identifier: Apache-2.0
"""A worker as a Ray actor: the same loop as in a local worker process, with Ray as the transport."""

from __future__ import annotations

import ctypes
import dataclasses
import faulthandler
import gc
import mmap
import os
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

import ray

from thresher.backends.ray_nodes.link import Frame, Lent, ObjectStore, Parts, RayLink
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.credentials import print_traceback, traceback_of
from thresher.runtime.crashes.crash_notes import NOTE_BYTES, keep_notes_in
from thresher.runtime.memory.usage import MemoryKeeper, choose_memory_pool, private_bytes, watch_for_out_of_memory
from thresher.runtime.overlap.overlapped_worker import OverlappedWorkerProcess
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.accelerators import show_devices
from thresher.runtime.processes.control import Ended, name_process
from thresher.runtime.processes.preload import import_modules
from thresher.runtime.processes.setup_pickle import load_setup
from thresher.runtime.processes.wire import PeerGone
from thresher.runtime.processes.worker_process import WorkerProcess
from thresher.runtime.worker.worker import SetupFailed, Worker

FAULT, NEW = ".fault", ".new"
"""Suffixes of files with faulthandler output, and of files that are not complete yet."""


@dataclasses.dataclass(frozen=True)
class NodeContext:
    """Facts about the node of a worker."""

    notes: str
    """Folder for the crash notes of the node's workers."""
    error: str = ""
    """Why the node setup failed; empty: it succeeded."""


@dataclasses.dataclass(frozen=True)
class Script:
    """The user's program, as far as stages may depend on it."""

    path: tuple[str, ...]
    """Module search path."""
    argv: tuple[str, ...]
    """Command line arguments."""


class RayWorker:
    """Actor class of a worker. Stages run in a thread of their own; Ray's threads transport messages and payloads.

    The process of an actor may start before it is known which worker it will be; `begin` assigns that.
    """

    def __init__(self) -> None:
        """Create an actor without work."""
        self._link = RayLink()
        self._store = ObjectStore(self._link)
        self._fault: IO[str] | None = None
        self._thread = threading.Thread(target=self._run_thread, name="stages", daemon=True)

    # -- called by the driver ------------------------------------------------------------------------------------------

    @ray.method(concurrency_group="in")
    def begin(self, request: msg.Fork, setup: bytes, node_context: NodeContext, script: Script) -> None:
        """Start work as this worker. `setup`: a `WorkerSetup` written by `setup_pickle`."""
        self._request, self._setup, self._node_context, self._script = request, setup, node_context, script
        self._store.number = request.worker
        self._thread.start()

    @ray.method(concurrency_group="in", num_returns=0)
    def deliver(self, number: int, frame: bytes, refs: Lent) -> None:
        """Deliver a numbered frame of messages and the payloads that they refer to."""
        self._link.deliver(number, frame, refs)

    @ray.method(concurrency_group="frames", num_returns="streaming")
    def frames(self) -> Iterator[Frame]:
        """Yield frames of messages for the driver until this worker ends."""
        yield from self._link.frames()

    @ray.method(concurrency_group="objects", num_returns="streaming")
    def objects(self) -> Iterator[Parts]:
        """Yield payloads, in the order in which messages refer to them."""
        yield from self._store.objects()

    @ray.method(concurrency_group="in", num_returns=0)
    def lose(self, workers: list[int]) -> None:
        """Record that the nodes of these workers are lost."""
        self._link.lost.update(workers)

    @ray.method(concurrency_group="in", num_returns=0)
    def end_now(self) -> None:
        """Interrupt the stages at the next Python instruction and tear them down."""
        if self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(Ended))

    # -- the thread of the stages --------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        try:
            self._run()
        except (PeerGone, Ended):
            pass
        except BaseException as error:
            print_traceback(error)
            os._exit(1)  # a bug in Thresher: the driver sees a lost worker
        finally:
            self._link.close()
            self._store.close()

    def _run(self) -> None:
        error = self._prepare_process()
        worker = None
        try:
            if not error:
                worker, error = self._make_worker()
            if worker is None or error:
                self._link.queue(msg.CannotStart(error))
                return
            self._link.queue(msg.Started(private_bytes()))
            self._link.flush()
            keeper = MemoryKeeper(self._request.share_bytes)
            watch_for_out_of_memory(keeper)
            body = OverlappedWorkerProcess if self._request.devices else WorkerProcess
            process = body(self._link, worker, self._store, keeper)
            process.serve()
            process.end()
        finally:
            if worker is not None:
                worker.teardown()
            sys.stdout.flush()
            sys.stderr.flush()

    def _prepare_process(self) -> str:
        """Prepare the process before user code is loaded; return the error of the node setup, if any."""
        name_process(f"thresher-w{self._request.worker}")
        if not self._request.devices:
            show_devices("")  # with devices, Ray makes exactly those visible
        self._fault = _fault_file(self._node_context.notes, self._request.worker)
        faulthandler.enable(self._fault)
        sys.path.extend(entry for entry in self._script.path if entry not in sys.path)
        sys.argv = list(self._script.argv)
        choose_memory_pool()
        keep_notes_in(_note_page(self._node_context.notes, self._request.worker))
        return self._node_context.error

    def _make_worker(self) -> tuple[Worker | None, str]:
        request = self._request
        try:
            setup = load_setup(self._setup)
            import_modules(setup.plan)
            gc.collect()
            gc.freeze()  # keep the collector from scanning what Ray and the stages have loaded
        except BaseException as error:  # an import of a user's module may raise anything, SystemExit included
            return None, traceback_of(error)
        devices = tuple(int(device) for device in ray.get_gpu_ids() if str(device).isdigit())
        metadata = WorkerMetadata(
            worker_id=str(request.worker),
            node=NodeInfo(request.node),
            devices=devices,
            rank=request.rank,
            num_workers=request.num_workers,
        )
        worker = Worker(dataclasses.replace(setup, metadata=metadata))
        try:
            if request.op is not None:
                worker.prepare(worker.plan.ops[request.op])
        except SetupFailed as failed:
            return worker, str(failed)
        return worker, ""


RayWorkerActor: Any = ray.remote(concurrency_groups={"in": 1, "frames": 1, "objects": 1})(RayWorker)  # type: ignore[call-overload]  # Ray's types miss it
"""Each group is a thread, so that incoming messages, outgoing messages and payloads never wait for each other."""


def _note_page(folder: str, worker: int) -> memoryview:
    """Return a page for crash notes that the node's agent can read after this process has crashed."""
    path = os.path.join(folder, f"{worker}-{os.getpid()}")
    with open(path + NEW, "w+b", buffering=0) as file:
        os.ftruncate(file.fileno(), NOTE_BYTES)
        os.rename(path + NEW, path)  # only complete files have this name
        return memoryview(mmap.mmap(file.fileno(), NOTE_BYTES))


def _fault_file(folder: str, worker: int) -> IO[str]:
    """Open the file for faulthandler output; the parent process is Ray's and does not report the signal."""
    return open(os.path.join(folder, f"{worker}-{os.getpid()}{FAULT}"), "w")
