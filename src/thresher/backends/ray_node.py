# SPDX-License-Identifier: Apache-2.0
"""One agent on each node: holds the CPUs that the run may use there, sets the node up, and looks after its workers.

Workers themselves ask Ray for no CPU, only for accelerators and named resources. CPUs are soft in Thresher, every stage
gets its worker even on one core; the agent's booking keeps Ray's view of the node true for other jobs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

import ray

from thresher.backends.ray_worker import FAULT, NEW, Surroundings
from thresher.core.resources import NodeInfo
from thresher.runtime.accelerators import found_accelerators
from thresher.runtime.death_notes import Note
from thresher.runtime.memory import TreeMeter, available_memory
from thresher.runtime.note_watch import NoteWatch
from thresher.runtime.setup_pickle import load_setup
from thresher.runtime.worker import set_up_node

LOOK_S = 0.05
"""How often the agent looks for calls that take too long."""
PREFIX = "thresher-node-"
FAULTS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Floating-point exception": signal.SIGFPE,
}
"""How Python calls what it crashes with."""


@dataclass(frozen=True)
class NodeReport:
    """What an agent measured."""

    used_bytes: int
    """Memory of the run on this node, the object store included."""
    workers: dict[int, int] = field(default_factory=dict)
    """What each worker has for itself."""


@dataclass(frozen=True)
class Autopsy:
    """What an agent knows about a worker that has died."""

    note: Note | None
    """What it was at."""
    overdue: bool = False
    """The agent ended it, because a call took too long."""
    crashed_with: int = 0
    """The signal that its own code caused; 0: it was killed, or nobody knows."""


@dataclass(frozen=True)
class NodeMeans:
    """What only a process on the node can find out."""

    memory_bytes: int
    """Host memory that may be used, of the machine or of its control group."""
    gpus: tuple[int, ...] = ()
    """Memory of each accelerator that NVML finds."""


class RayNode:
    """The body of an agent."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._folder = _make_folder()
        self._watch = NoteWatch()
        self._lock = threading.Lock()
        self._pids: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._killed: set[int] = set()
        self._meter = TreeMeter()

    def means(self) -> NodeMeans:
        """What the node has."""
        return NodeMeans(available_memory(), tuple(device.memory_bytes for device in found_accelerators()))

    def prepare(self, setup: bytes, *, watches_time: bool) -> Surroundings:
        """Set the node up, once, before its first worker; `watches_time`: whether any stage has a `timeout_s`."""
        if watches_time:
            self._watch.watches_time = True
            threading.Thread(target=self._look, name="clock", daemon=True).start()
        error = ""
        try:
            set_up_node(load_setup(setup).plan, NodeInfo(self._name))
        except BaseException:  # a user's code may raise anything
            error = traceback.format_exc()
        return Surroundings(self._folder, error)

    def report(self) -> NodeReport:
        """Memory, measured now. The object store belongs to the raylet, which is the parent of this process."""
        with self._lock:
            self._find_workers()
            pids = dict(self._pids)
        used = self._meter.measure_each([os.getpid(), *pids.values()], time.monotonic())
        workers = {worker: used[pid] for worker, pid in pids.items()}
        return NodeReport(sum(used.values()) + shared_bytes(os.getppid()), workers)

    def autopsy(self, worker: int) -> Autopsy:
        """What a worker was at that has died."""
        with self._lock:
            self._find_workers()
            pid = self._pids.pop(worker, None)
            if pid is None:
                return Autopsy(None)
            note = self._watch.note_of_dead(worker, expected=False)
            os.close(self._files.pop(worker))
            path = os.path.join(self._folder, f"{worker}-{pid}")
            crashed_with = fault_in(path + FAULT)
            for left in (path, path + FAULT):
                with contextlib.suppress(OSError):
                    os.unlink(left)
            return Autopsy(note, worker in self._killed, crashed_with)

    def forget(self, worker: int) -> None:
        """A worker has ended as it was told."""
        self.autopsy(worker)

    def close(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _find_workers(self) -> None:
        """Workers make themselves known by the file of their notes."""
        with contextlib.suppress(FileNotFoundError):  # the end of the run
            for entry in os.listdir(self._folder):
                if entry.endswith((FAULT, NEW)):
                    continue
                worker, pid = map(int, entry.split("-"))
                if worker not in self._pids:
                    file = os.open(os.path.join(self._folder, entry), os.O_RDONLY | os.O_CLOEXEC)
                    self._pids[worker], self._files[worker] = pid, file
                    self._watch.watch(worker, file)

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                self._find_workers()
                for worker in self._watch.overdue(time.monotonic_ns()):
                    self._killed.add(worker)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._pids[worker], signal.SIGKILL)


RayNodeActor: Any = ray.remote(max_concurrency=4)(RayNode)  # type: ignore[call-overload]  # Ray's types miss it
"""A node is set up while its memory is asked for."""


def fault_in(path: str) -> int:
    """The signal that a process crashed with, from what Python wrote about it; 0: nothing was written."""
    try:
        with open(path, errors="replace") as file:
            text = file.read()
    except OSError:
        return 0
    if text:
        sys.stderr.write(text)  # into Ray's logs
    return next((int(number) for name, number in FAULTS.items() if name in text.split("\n", 1)[0]), 0)


def shared_bytes(pid: int) -> int:
    """Shared memory that a process maps and that is there; 0 for one that cannot be looked at."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"RssShmem:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _make_folder() -> str:
    """A folder in memory for the notes; those of agents that were killed are removed."""
    where = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    for entry in os.listdir(where):
        owner = entry.removeprefix(PREFIX).split("-")[0]
        if entry.startswith(PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            shutil.rmtree(os.path.join(where, entry), ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=where)
