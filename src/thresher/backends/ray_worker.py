# SPDX-License-Identifier: Apache-2.0
"""A worker as a Ray actor: the same loop as in a process of its own, with Ray between it and the driver."""

from __future__ import annotations

import ctypes
import dataclasses
import faulthandler
import gc
import mmap
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import IO, Any

import ray

from thresher.backends.ray_link import Frame, Lent, ObjectStore, Parts, RayLink
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.runtime import messages as msg
from thresher.runtime.accelerators import show_devices
from thresher.runtime.attended_worker import AttendedWorkerProcess
from thresher.runtime.death_notes import NOTE_BYTES, keep_notes_in
from thresher.runtime.memory import MemoryKeeper, choose_memory_pool, private_bytes, watch_for_out_of_memory
from thresher.runtime.preload import import_modules
from thresher.runtime.process_control import Ended, name_process
from thresher.runtime.setup_pickle import load_setup
from thresher.runtime.wire import PeerGone
from thresher.runtime.worker import SetupFailed, Worker
from thresher.runtime.worker_process import WorkerProcess

FAULT, NEW = ".fault", ".new"
"""How names of files end that hold what a worker crashed with, and of those that are not whole yet."""


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What a worker finds where it is started."""

    notes: str
    """The folder where workers of its node write what they are at."""
    error: str = ""
    """Why the node could not be set up; empty: it was."""


@dataclasses.dataclass(frozen=True)
class Script:
    """The user's program, as far as stages may ask for it."""

    path: tuple[str, ...]
    """Where to look for modules."""
    argv: tuple[str, ...]
    """Its arguments."""


class RayWorker:
    """The body of an actor. Stages run in a thread of their own; Ray's threads carry messages and payloads.

    An actor is nobody until it is told to begin: its process can start before it is known what it will be.
    """

    def __init__(self) -> None:
        """`begin` makes it a worker."""
        self._link = RayLink()
        self._store = ObjectStore(self._link)
        self._fault: IO[str] | None = None
        self._thread = threading.Thread(target=self._live, name="stages", daemon=True)

    # -- called by the driver -----------------------------------------------------------------------------------------

    @ray.method(concurrency_group="in")
    def begin(self, request: msg.Fork, setup: bytes, surroundings: Surroundings, script: Script) -> None:
        """Be this worker. `setup`: a `WorkerSetup`, as `setup_pickle` writes it."""
        self._request, self._setup, self._surroundings, self._script = request, setup, surroundings, script
        self._store.number = request.worker
        self._thread.start()

    @ray.method(concurrency_group="in", num_returns=0)
    def tell(self, number: int, frame: bytes, refs: Lent) -> None:
        """Messages of the driver, numbered, and the payloads that they speak of."""
        self._link.deliver(number, frame, refs)

    @ray.method(concurrency_group="frames", num_returns="streaming")
    def frames(self) -> Iterator[Frame]:
        """Messages for the driver, as long as this worker lives."""
        yield from self._link.frames()

    @ray.method(concurrency_group="objects", num_returns="streaming")
    def objects(self) -> Iterator[Parts]:
        """Payloads, in the order in which messages speak of them."""
        yield from self._store.objects()

    @ray.method(concurrency_group="in", num_returns=0)
    def lose(self, workers: list[int]) -> None:
        """The nodes of these workers are gone."""
        self._link.lost.update(workers)

    @ray.method(concurrency_group="in", num_returns=0)
    def end_now(self) -> None:
        """End in the middle of whatever the stages do, at the next step of Python; they are torn down."""
        if self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(Ended))

    # -- the thread of the stages -------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._run()
        except (PeerGone, Ended):
            pass
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # a fault of ours: the driver sees a lost worker
        finally:
            self._link.close()
            self._store.close()

    def _run(self) -> None:
        error = self._settle_in()
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
            body = AttendedWorkerProcess if self._request.devices else WorkerProcess
            process = body(self._link, worker, self._store, "", keeper)
            process.serve()
            process.end()
        finally:
            if worker is not None:
                worker.teardown()
            sys.stdout.flush()
            sys.stderr.flush()

    def _settle_in(self) -> str:
        """What there is to do before anything of the user's is loaded; why that failed, if it did."""
        name_process(f"thresher-w{self._request.worker}")
        if not self._request.devices:
            show_devices("")  # where a worker has devices, Ray shows it exactly those
        self._fault = _fault_file(self._surroundings.notes, self._request.worker)
        faulthandler.enable(self._fault)
        sys.path.extend(entry for entry in self._script.path if entry not in sys.path)
        sys.argv = list(self._script.argv)
        choose_memory_pool()
        keep_notes_in(_note_page(self._surroundings.notes, self._request.worker))
        return self._surroundings.error

    def _make_worker(self) -> tuple[Worker | None, str]:
        request = self._request
        try:
            setup = load_setup(self._setup)
            import_modules(setup.plan)
            gc.collect()
            gc.freeze()  # what Ray and the stages have loaded is looked through no more
        except BaseException:  # an import of a user's module may raise anything, SystemExit included
            return None, traceback.format_exc()
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
"""Each group is a thread: messages come, messages go and payloads go without waiting for each other."""


def _note_page(folder: str, worker: int) -> memoryview:
    """A page that can be read by the node's agent after this process has died."""
    path = os.path.join(folder, f"{worker}-{os.getpid()}")
    with open(path + NEW, "w+b", buffering=0) as file:
        os.ftruncate(file.fileno(), NOTE_BYTES)
        os.rename(path + NEW, path)  # whoever finds it finds it whole
        return memoryview(mmap.mmap(file.fileno(), NOTE_BYTES))


def _fault_file(folder: str, worker: int) -> IO[str]:
    """Where it is written what this process crashes with; its parent is Ray, which does not say it."""
    return open(os.path.join(folder, f"{worker}-{os.getpid()}{FAULT}"), "w")
