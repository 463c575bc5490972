# SPDX-License-Identifier: Apache-2.0
"""The interface between a virtual cluster and the source of its durations, sizes and failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec

from thresher.scheduler.actions import TaskRef
from thresher.scheduler.model import UnitSpec

Path = tuple[int, ...]  # ordinals from the unit's root down


class RuleBroken(AssertionError):
    """The scheduler gave an action that no cluster could perform."""


class SimulatedOutput(msgspec.Struct, frozen=True, gc=False):
    """One batch that a task emits."""

    nbytes: int  # size; -1: no batch, the entry only closes a unit
    unit: int = 0  # in a stream: number of its unit, from 0
    closes: bool = False  # in a stream: the last of its unit


class SimulatedWork(NamedTuple):
    """Time and outputs of one task."""

    held_s: float  # time that it occupies its worker
    busy_s: float  # time inside its stages, as workers report it
    outputs: tuple[SimulatedOutput, ...] = ()  # emitted batches
    steps_s: tuple[float, ...] = ()  # time before each output and after the last; (): before each, in equal parts


class RunningTask:
    """One task of a call that has begun."""

    __slots__ = ("emitted", "ordinal", "path", "ref", "stream", "unit", "work")

    def __init__(self, ref: TaskRef, path: Path, stream: UnitSpec | None) -> None:
        self.ref = ref
        self.path = path
        self.stream = stream  # the stream that it reads, if any
        self.work = SimulatedWork(0.0, 0.0)
        self.emitted = 0  # outputs so far, without those of committed units
        self.unit = 0  # number of the unit of the last output
        self.ordinal = 0  # outputs of that unit so far

    def next_path(self, unit: int) -> Path:
        """Return the path of the next output: ordinals count from 0 in every unit of a stream."""
        if unit != self.unit:
            self.unit, self.ordinal = unit, 0
        self.ordinal += 1
        return (*self.path, self.ordinal - 1)


class Workload(ABC):
    """The source of durations, sizes and failures. By default, the driver takes no time and nothing fails."""

    driver_event_s = 0.0  # time of the driver for one event
    driver_adds_load = False  # the driver takes its time from calls on the first machine if no core is free there
    latency_s = 0.0  # delay of an action to a worker, and of an event from it
    start_gap_s = 0.0  # delay between two workers of one machine that start together
    record_s = 0.0  # time to record a unit that no sink received anything of
    limits_cores = False  # calls slow each other down if more of them run than the machine has cores
    worker_limit_bytes = 0  # memory above which a worker sends WorkerMemory; 0: never

    @abstractmethod
    def start_s(self, op: int | None) -> float:
        """Return the setup time of a worker; None: of a shared one."""

    @abstractmethod
    def tasks_per_call(self, op: int) -> int:
        """Return the maximum number of tasks that one call takes."""

    @abstractmethod
    def is_gradual(self, op: int) -> bool:
        """Return True if a call for a single task emits batches one by one, and not all of them at its end."""

    def ends_at_once(self, op: int) -> bool:
        """Return True if a task ends with its last output, whatever its credit. Otherwise it may park there."""
        return False

    @abstractmethod
    def draw(self, op: int, task: RunningTask, in_bytes: int, *, gradual: bool) -> SimulatedWork:
        """Return the work of a task with `in_bytes` of input."""

    def cold_s(self, op: int) -> float:
        """Return the extra time of the first call of an op in a worker."""
        return 0.0

    @abstractmethod
    def commit_s(self, in_bytes: int) -> float:
        """Return the time of the commit of a unit with `in_bytes` of input; 0: unknown."""

    def leak_bytes(self, op: int) -> int:
        """Return the memory that a worker keeps after a task."""
        return 0

    def setup_fails(self) -> bool:
        """Return True if the worker that starts now cannot be set up."""
        return False

    def task_fails(self, op: int, task: RunningTask) -> bool:
        """Return True if the task fails now."""
        return False

    def commit_fails(self, unit: str) -> bool:
        """Return True if the commit fails now."""
        return False
