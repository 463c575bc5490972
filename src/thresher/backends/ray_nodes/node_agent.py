# SPDX-License-Identifier: Apache-2.0
"""The agent of a run on each node: it holds the CPUs that the run may use there, sets the node up and watches its
workers.

Workers request no CPU from Ray, only accelerators and named resources. CPUs are soft in Thresher: every stage gets a
worker even on one core. The CPUs that the agent holds keep Ray's accounting correct for other jobs.
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
from dataclasses import dataclass, field
from typing import Any

import ray

from thresher.backends.ray_nodes.worker import FAULT, NEW, NodeContext
from thresher.core.resources import NodeInfo
from thresher.credentials import traceback_of
from thresher.runtime.crashes.crash_notes import Note
from thresher.runtime.crashes.watchdog import NoteWatch
from thresher.runtime.memory.usage import TreeMeter, available_memory
from thresher.runtime.processes.accelerators import DeviceMeter, found_accelerators
from thresher.runtime.processes.setup_pickle import load_setup
from thresher.runtime.worker.worker import SetupFailed, set_up_node
from thresher.scheduler.events import DeviceReading

PREFIX = "thresher-node-"
FAULTS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Floating-point exception": signal.SIGFPE,
}
"""Names that Python's faulthandler uses for fatal signals."""


@dataclass(frozen=True)
class NodeReport:
    """Memory measured by an agent."""

    used_bytes: int
    """Memory of the run on this node, including the object store."""
    workers: dict[int, int] = field(default_factory=dict)
    """Private memory of each worker."""
    devices: tuple[DeviceReading, ...] = ()
    """Use of the accelerators of this node, if it was measured this time."""


@dataclass(frozen=True)
class CrashReport:
    """Crash report of a worker."""

    note: Note | None
    """The task and record that it was processing."""
    overdue: bool = False
    """True if the agent killed it because a call exceeded its time limit."""
    crashed_with: int = 0
    """The fatal signal that its own code caused; 0: it was killed, or unknown."""


@dataclass(frozen=True)
class NodeResources:
    """Resources that only a process on the node can measure."""

    memory_bytes: int
    """Host memory that may be used, of the machine or of its control group."""
    gpus: tuple[int, ...] = ()
    """Memory of each accelerator that NVML finds."""


class RayNode:
    """The agent of one node."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._folder = _make_folder()
        self._watch = NoteWatch()
        self._lock = threading.Lock()
        self._pids: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._killed: set[int] = set()
        self._meter = TreeMeter()
        self._devices = DeviceMeter(name, ())

    def resources(self) -> NodeResources:
        """Return the resources of the node."""
        found = found_accelerators()
        self._devices = DeviceMeter(self._name, found)
        return NodeResources(available_memory(), tuple(device.memory_bytes for device in found))

    def prepare(self, setup: bytes, shortest_limit_s: float) -> NodeContext:
        """Set the node up once, before its first worker; `shortest_limit_s`: the shortest `timeout_s`, 0: none."""
        if shortest_limit_s:
            self._watch.measure_calls(shortest_limit_s)
            threading.Thread(target=self._kill_overdue, name="clock", daemon=True).start()
        error = ""
        try:
            set_up_node(load_setup(setup), NodeInfo(self._name))
        except SetupFailed as failed:
            error = str(failed)
        except BaseException as raised:
            error = traceback_of(raised)
        return NodeContext(self._folder, error)

    def report(self) -> NodeReport:
        """Measure memory now. The object store belongs to the raylet, the parent of this process."""
        with self._lock:
            self._find_workers()
            pids = dict(self._pids)
        now = time.monotonic()
        used = self._meter.measure_each([os.getpid(), *pids.values()], now)
        workers = {worker: used[pid] for worker, pid in pids.items()}
        return NodeReport(sum(used.values()) + shared_bytes(os.getppid()), workers, self._devices.measure(now))

    def crash_report(self, worker: int) -> CrashReport:
        """Return the crash report of a worker."""
        with self._lock:
            self._find_workers()
            pid = self._pids.pop(worker, None)
            if pid is None:
                return CrashReport(None)
            note = self._watch.note_of_dead(worker, expected=False)
            os.close(self._files.pop(worker))
            path = os.path.join(self._folder, f"{worker}-{pid}")
            crashed_with = fault_in(path + FAULT)
            for left in (path, path + FAULT):
                with contextlib.suppress(OSError):
                    os.unlink(left)
            return CrashReport(note, worker in self._killed, crashed_with)

    def forget(self, worker: int) -> None:
        """Drop the crash data of a worker that ended normally."""
        self.crash_report(worker)

    def close(self) -> None:
        """Remove the folder of crash notes."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _find_workers(self) -> None:
        """Register new workers by the files of their crash notes."""
        with contextlib.suppress(FileNotFoundError):  # the run is ending
            for entry in os.listdir(self._folder):
                if entry.endswith((FAULT, NEW)):
                    continue
                worker, pid = map(int, entry.split("-"))
                if worker not in self._pids:
                    file = os.open(os.path.join(self._folder, entry), os.O_RDONLY | os.O_CLOEXEC)
                    self._pids[worker], self._files[worker] = pid, file
                    self._watch.watch(worker, file)

    def _kill_overdue(self) -> None:
        while True:
            time.sleep(self._watch.interval_s or 0)
            with self._lock:
                self._find_workers()
                for worker in self._watch.overdue(time.monotonic_ns()):
                    self._killed.add(worker)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._pids[worker], signal.SIGKILL)


RayNodeActor: Any = ray.remote(max_concurrency=4)(RayNode)  # type: ignore[call-overload]  # Ray's types miss it
"""Concurrent, so that memory can be measured while the node is set up."""


def fault_in(path: str) -> int:
    """Return the signal that a process crashed with, from its faulthandler output; 0: nothing was written."""
    try:
        with open(path, errors="replace") as file:
            text = file.read()
    except OSError:
        return 0
    if text:
        sys.stderr.write(text)  # into Ray's logs
    return next((int(number) for name, number in FAULTS.items() if name in text.split("\n", 1)[0]), 0)


def shared_bytes(pid: int) -> int:
    """Return the resident shared memory of a process; 0 if it cannot be read."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"RssShmem:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _make_folder() -> str:
    """Create a folder in shared memory for crash notes; remove those of agents that were killed."""
    where = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    for entry in os.listdir(where):
        owner = entry.removeprefix(PREFIX).split("-")[0]
        if entry.startswith(PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            shutil.rmtree(os.path.join(where, entry), ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=where)
