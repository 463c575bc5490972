# SPDX-License-Identifier: Apache-2.0
"""Recorded runs: replay an event log to check the scheduler, or measure the profile of the run in one pass.

A replay checks that a new scheduler gives the logged actions for the logged events. For the profile: a worker runs one
item at a time, in the order in which they were sent. So the time that a task occupied its worker is the time from when
it was sent, or from the end of the previous item, to its own end. The part that was not spent in stages is overhead. It
may be negative if a worker commits in the middle of a task; this time counts for the commit.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

import msgspec

from thresher.errors import CheckFailedError, UsageError
from thresher.observe.event_log import decode_line, read_log
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec, RunSpec
from thresher.scheduler.step import Scheduler
from thresher.simulate.profile import (
    DRIVER_EVENT_S,
    CommitSample,
    FileSample,
    OpProfile,
    RunProfile,
    TaskSample,
    op_key,
)
from thresher.simulate.workload import SimulatedOutput

DRIVER_MOST_S = 0.0005
"""Events with a larger distance did not wait for the driver."""
DRIVER_LEAST_EVENTS = 50
"""Minimum number of consecutive events for which their distance is used."""
WARM_LEAST = 4
"""Minimum number of tasks that must remain when the first one of each worker is left out."""


class LogError(ValueError):
    """A log that cannot be read: the start line is missing, or a line is not valid."""


@dataclass(frozen=True)
class Difference:
    """The first difference between a log and its replay."""

    n: int  # line number in the log
    logged: str  # item in the log
    replayed: str  # action of the replay

    def __str__(self) -> str:
        return f"line {self.n}: the log says {self.logged}, the replay decides {self.replayed}"


def replay(lines: Iterable[bytes]) -> Difference | None:
    """Return the first difference between a log and its replay; None if there is none.

    A truncated log (the driver was killed) is compared up to its end.
    """
    found = _read(lines)
    scheduler = Scheduler(next(found).item)
    decided = deque(scheduler.start())
    for line in found:
        if isinstance(line.item, act.Action):
            action = decided.popleft() if decided else None
            if action != line.item:
                return Difference(line.n, repr(line.item), "nothing" if action is None else repr(action))
        elif isinstance(line.item, RunSpec):
            raise LogError(f"line {line.n} is a second start line; replay one attempt at a time")
        elif decided:
            return Difference(line.n, repr(line.item), repr(decided[0]))
        else:
            decided.extend(scheduler.step(line.item))
    return None


def _read(lines: Iterable[bytes]) -> Iterator[Any]:
    """Yield the decoded lines of a log. Raise LogError if one is not valid, or the first is not the start line."""
    number = -1
    for number, line in enumerate(lines):
        try:
            found = decode_line(line)
        except msgspec.MsgspecError as error:
            raise LogError(f"line {number} is not a line of an event log ({error}): {line[:120]!r}") from error
        if number == 0 and not isinstance(found.item, RunSpec):
            raise LogError(f"line {number} should be the start line with the run's spec: {line[:120]!r}")
        yield found
    if number < 0:
        raise LogError("the log is empty; it should begin with a start line")


class _Task:
    """A dispatched task that has not ended."""

    __slots__ = ("busy_s", "cold", "held_s", "op", "outputs", "sent_s", "stages", "unit", "units")

    def __init__(self, op: int, unit: str, sent_s: float) -> None:
        self.op = op
        self.unit = unit
        self.sent_s = sent_s
        self.busy_s = 0.0
        self.held_s = 0.0  # time that it occupied its worker
        self.cold = False  # the first of its op in its worker
        self.outputs: list[SimulatedOutput] = []
        self.units: dict[str, int] = {}  # unit of a stream -> its number
        self.stages: dict[int, list[float]] = {}  # number of the stage -> time, bytes


class _Op:
    """Measurements of an op so far."""

    def __init__(self) -> None:
        self.samples: list[tuple[bool, float, TaskSample]] = []  # cold, time it occupied its worker, the rest
        self.start_s: list[float] = []  # setup times of dedicated workers
        self.late_ends = 0  # tasks that had emitted everything before their end was reported


class LogFold:
    """A fold over the lines of a log; `profile` returns the result."""

    def __init__(self, spec: RunSpec, stages: tuple[str, ...]) -> None:
        self._spec = spec
        self._stages = stages
        self._ops = [_Op() for _ in spec.ops]
        self._tasks: dict[int, _Task] = {}
        self._nbytes: dict[int, int] = {}
        self._units: dict[str, Any] = {}
        self._free_s: dict[int, float] = {}  # worker -> end of its last item
        self._started: dict[int, tuple[float, int | None]] = {}
        self._seen: set[tuple[int, int]] = set()
        self._commit_sent: dict[str, tuple[int, float]] = {}
        self._commits: list[CommitSample] = []
        self._starts: list[float] = []
        self._gaps: list[float] = []
        self._listed_s = -1.0
        self._input_ended = False
        self._later: set[str] = set()  # units of phases after the first
        self._last_event_s = -1.0
        self._memory = 0
        self._up = 0
        self._docs = 0
        self.end_s = 0.0
        """Time of the last line."""

    def take(self, t: float, item: Any) -> None:
        """Process one line."""
        self.end_s = t
        if isinstance(item, ev.Event):
            if self._last_event_s >= 0 and 0 < t - self._last_event_s < DRIVER_MOST_S:
                self._gaps.append(t - self._last_event_s)
            self._last_event_s = t
        handler = _HANDLERS.get(type(item))
        if handler is not None:
            handler(self, t, item)

    # -- actions ------------------------------------------------------------------------------------------------------

    def _dispatch(self, t: float, action: act.Dispatch) -> None:
        for ref in action.tasks:
            self._tasks[ref.task] = _Task(action.op, ref.unit, t)

    def _resume(self, t: float, action: act.Resume) -> None:
        if action.task in self._tasks:
            self._tasks[action.task].sent_s = t

    def _commit(self, t: float, action: act.Commit) -> None:
        if action.worker is not None:
            self._commit_sent[action.unit] = (action.worker, t)

    def _start_worker(self, t: float, action: act.StartWorker) -> None:
        self._started[action.worker] = (t, action.op)

    # -- events -------------------------------------------------------------------------------------------------------

    def _ready(self, t: float, event: ev.WorkerReady) -> None:
        started_s, op = self._started.get(event.worker, (t, None))
        self._free_s[event.worker] = t
        self._up += 1
        (self._starts if op is None else self._ops[op].start_s).append(t - started_s)

    def _listed(self, t: float, event: ev.UnitsListed) -> None:
        if self._listed_s < 0 and event.units:
            self._listed_s = t
        for unit in event.units:
            self._units[unit.unit] = unit
        if self._input_ended:
            self._later.update(unit.unit for unit in event.units)
        self._input_ended |= event.input_ends

    def _emitted(self, t: float, event: ev.TaskEmitted | ev.TaskParked | ev.TaskDone) -> None:
        task = self._tasks.get(event.task)
        if task is None:
            return
        task.busy_s += event.busy_s
        for output in event.outputs:
            number = task.units.setdefault(output.unit, len(task.units)) if output.unit else 0
            task.outputs.append(SimulatedOutput(output.nbytes if output.task else -1, number, output.closes))
            if output.task:
                self._nbytes[output.task] = output.nbytes
        self._count(task, event.tally)

    def _count(self, task: _Task, tally: Any) -> None:
        """Add a tally, which is a list in a log: records read, written, stages by number, bytes of a stream."""
        if not isinstance(tally, list):
            return
        self._docs += tally[0]
        for number, stage in tally[2].items():
            found = task.stages.setdefault(int(number), [0.0, 0.0])
            found[0] += stage[10]
            found[1] += stage[2]

    def _occupied_s(self, t: float, worker: int, sent_s: float) -> float:
        """Return how long an item that ends now occupied its worker."""
        began_s = max(sent_s, self._free_s.get(worker, 0.0))
        self._free_s[worker] = t
        return max(0.0, t - began_s)

    def _parked(self, t: float, event: ev.TaskParked) -> None:
        self._emitted(t, event)
        task = self._tasks.get(event.task)
        if task is not None:
            task.held_s += self._occupied_s(t, event.worker, task.sent_s)

    def _done(self, t: float, event: ev.TaskDone) -> None:
        self._emitted(t, event)
        task = self._tasks.pop(event.task, None)
        if task is None:
            return
        self._ops[task.op].late_ends += bool(task.outputs) and not event.outputs
        held_s = task.held_s + self._occupied_s(t, event.worker, task.sent_s)
        cold = (event.worker, task.op) not in self._seen
        self._seen.add((event.worker, task.op))
        nbytes = self._nbytes.pop(event.task, 0)
        if event.task < 0 and task.unit in self._units:
            nbytes = self._units[task.unit].nbytes
        names = {self._stages[n]: (v[0], int(v[1])) for n, v in task.stages.items() if n < len(self._stages)}
        sample = TaskSample(nbytes, task.busy_s, tuple(task.outputs), names)
        self._ops[task.op].samples.append((cold, held_s, sample))

    def _failed(self, t: float, event: ev.TaskFailed) -> None:
        self._tasks.pop(event.task, None)
        self._free_s[event.worker] = t

    def _committed(self, t: float, event: ev.UnitCommitted) -> None:
        sent = self._commit_sent.pop(event.unit, None)
        if sent is not None:
            unit = self._units.get(event.unit)
            self._commits.append(
                CommitSample(unit.nbytes if unit is not None else 0, self._occupied_s(t, sent[0], sent[1]))
            )

    def _sampled(self, t: float, event: ev.MemorySample) -> None:
        self._memory = max(self._memory, event.used_bytes)

    # -- the end ------------------------------------------------------------------------------------------------------

    def profile(self, wall_s: float) -> RunProfile:
        """Return the profile; `wall_s` is the time of the whole run."""
        gaps = sorted(self._gaps)
        driver_s = median(gaps) if len(gaps) >= DRIVER_LEAST_EVENTS else DRIVER_EVENT_S
        starts = sorted(self._starts)
        used = [(op, found) for op, found in zip(self._spec.ops, self._ops, strict=True) if found.samples]
        return RunProfile(
            stages=self._stages,
            ops={op_key(op): _op_profile(op, found, driver_s) for op, found in used},
            files=self._files(),
            docs=self._docs,
            commits=tuple(self._commits) or (CommitSample(0, 0.0),),
            start_s=starts[0] if starts else 0.05,
            start_gap_s=(starts[-1] - starts[0]) / (len(starts) - 1) if len(starts) > 1 else 0.0,
            listing_s=max(0.0, self._listed_s),
            outside_s=max(0.0, wall_s - self.end_s),
            driver_event_s=driver_s,
            worker_bytes=self._memory // (self._up + 1),
            workers=self._spec.shared_workers,
        )

    def _files(self) -> tuple[FileSample, ...]:
        sizes: dict[tuple[int, int, bool], list[Any]] = {}
        for unit in self._units.values():
            later = unit.unit in self._later
            if unit.nbytes or not later:  # joins of files have no bytes
                sizes.setdefault((unit.entry, unit.order[0], later), []).append(unit)
        return tuple(
            FileSample(sum(u.nbytes for u in units), len(units), op_key(self._spec.ops[entry]), units[0].stream, later)
            for (entry, _, later), units in sorted(sizes.items(), key=lambda item: item[0][1])
        )


def _op_profile(op: OpSpec, found: _Op, driver_s: float) -> OpProfile:
    """Return the profile of an op: samples of warm tasks if there are enough, and the extra time of cold ones."""
    warm = [(held_s, sample) for cold, held_s, sample in found.samples if not cold]
    cold = [(held_s, sample) for is_cold, held_s, sample in found.samples if is_cold]
    if len(warm) < WARM_LEAST:
        warm, cold = warm + cold, []
    overhead_s = sum(held_s - sample.busy_s for held_s, sample in warm) / len(warm)
    nbytes = sum(sample.in_bytes for _, sample in warm)
    busy_s = sum(sample.busy_s for _, sample in warm)
    cold_s = 0.0
    for held_s, sample in cold:
        expected_s = busy_s * sample.in_bytes / nbytes if nbytes else busy_s / len(warm)
        cold_s += max(0.0, held_s - overhead_s - expected_s) / len(cold)
    return OpProfile(
        op.name,
        tuple(sample for _, sample in warm),
        overhead_s - driver_s,
        cold_s,
        sum(found.start_s) / len(found.start_s) if found.start_s else None,
        at_once=not op.source and not found.late_ends,
    )


def load_profile(run_dir: str) -> RunProfile:
    """Return the profile of the last attempt of a run with an event log."""
    folder = os.path.join(run_dir, "events")
    attempts = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if not attempts:
        raise UsageError(
            f"--profile {run_dir}: the run has no event log. Give a run that was not started with --no-ledger"
        )
    lines = read_log(os.path.join(folder, attempts[-1]))
    try:
        first = next(lines, b"")
        stages = tuple(json.loads(first)["start"]["plan"]["stages"]) if first else ()
        profile = measure(chain([first] if first else [], lines), stages, _wall_s(run_dir, len(attempts)))
    except (LogError, KeyError, TypeError, ValueError) as error:
        raise CheckFailedError(f"--profile {run_dir}: attempt {attempts[-1]} cannot be read: {error}") from None
    if not profile.ops:
        raise UsageError(
            f"--profile {run_dir}: no task ended in attempt {attempts[-1]}, so there is nothing to measure. Give a run "
            "that did something"
        )
    return profile


def _wall_s(run_dir: str, attempts: int) -> float | None:
    """Return the time of the run, if one attempt did all of it."""
    try:
        with open(os.path.join(run_dir, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError):
        return None
    wall_s = report.get("wall_s")
    return float(wall_s) if attempts == 1 and report.get("status") == "finished" and wall_s else None


def measure(lines: Iterable[bytes], stages: tuple[str, ...], wall_s: float | None = None) -> RunProfile:
    """Return the profile of one attempt. Raise LogError for lines that are not an event log."""
    found = _read(lines)
    fold = LogFold(next(found).item, stages)
    for line in found:
        fold.take(line.t, line.item)
    return fold.profile(fold.end_s if wall_s is None else wall_s)


_HANDLERS: dict[type, Any] = {
    act.Dispatch: LogFold._dispatch,
    act.Resume: LogFold._resume,
    act.Commit: LogFold._commit,
    act.StartWorker: LogFold._start_worker,
    ev.WorkerReady: LogFold._ready,
    ev.UnitsListed: LogFold._listed,
    ev.TaskEmitted: LogFold._emitted,
    ev.TaskParked: LogFold._parked,
    ev.TaskDone: LogFold._done,
    ev.TaskFailed: LogFold._failed,
    ev.UnitCommitted: LogFold._committed,
    ev.MemorySample: LogFold._sampled,
}
