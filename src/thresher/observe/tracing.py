# SPDX-License-Identifier: Apache-2.0
"""Spans of one attempt of a run, folded from its event log: the run, its stages, and a bounded number of tasks."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from thresher.observe.follow import FollowedRun
from thresher.observe.progress import StageSnapshot
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec

TASKS = 100
"""Tasks of each call that get a span, unless another number is asked for."""

Value = str | int | float
"""Value of an attribute."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span, as OpenTelemetry knows it."""

    name: str
    """Name of the run or of the stage."""
    span_id: str
    """16 hexadecimal digits."""
    parent_id: str = ""
    """Id of the span that it is a part of; empty for the run."""
    start_ns: int
    """Start, in nanoseconds since 1970."""
    end_ns: int
    """End, in nanoseconds since 1970."""
    attributes: dict[str, Value] = {}
    """What else is known about it."""
    error: str | None = None
    """Kind of the error; `None` if there was none."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """All spans of one attempt."""

    trace_id: str
    """32 hexadecimal digits, the same each time that the attempt is exported."""
    spans: tuple[Span, ...]
    """The run first, then its stages, then tasks in the order of their start."""


@dataclass(frozen=True)
class TracedAttempt:
    """What the event log does not say about an attempt."""

    run_id: str
    """Id of the run."""
    number: int
    """Number of the attempt, from 1 on."""
    start_s: float
    """Start, in seconds since 1970."""
    status: str | None = None
    """Final status; `None` if it has none, so that the log decides."""


def trace_attempt(folder: Path | str, attempt: TracedAttempt, most_tasks: int = TASKS) -> Trace | None:
    """Return the spans of an attempt whose log lies in a folder; `None` if there is no log.

    Of the tasks of each call, failed ones come first and then the slowest, `most_tasks` at most.
    """
    tasks = TaskTimes(most_tasks)
    followed = FollowedRun(folder, tasks.update)
    snapshot = followed.read()
    if snapshot is None or followed.info is None:
        return None
    trace_id = hashlib.sha256(f"{attempt.run_id}/{attempt.number}".encode()).hexdigest()[:32]
    spans = _Spans(trace_id, attempt.start_s)
    status = attempt.status or snapshot.status
    run = spans.span(
        followed.info.name,
        "run",
        (0.0, followed.t),
        attributes={
            "thresher.run.id": attempt.run_id,
            "thresher.run.attempt": attempt.number,
            "thresher.run.status": status,
            "thresher.executor": followed.info.executor,
            "thresher.units": snapshot.units_done,
            "thresher.errors": snapshot.errors,
            "thresher.memory.peak_bytes": snapshot.memory_peak_bytes,
            **{f"thresher.records.{kind}": n for kind, n in snapshot.counts.items()},
        },
        error=status if status in ("failed", "stopped") else None,
    )
    stages = {stage.name: _stage_span(spans, run, stage, followed.ops, tasks) for stage in snapshot.stages}
    found = [_task_span(spans, run, stages, followed.ops[task.op], task) for task in tasks.chosen()]
    return Trace(trace_id=trace_id, spans=(run, *stages.values(), *found))


class TracedTask(NamedTuple):
    """One execution of a task."""

    task: int  # its id
    op: int  # the call that it is part of
    worker: int
    unit: str
    epoch: int
    start_s: float
    end_s: float
    busy_s: float
    error: str | None


@dataclass
class _Held:
    """A task that a worker has."""

    op: int
    worker: int
    ref: act.TaskRef
    sent_s: float
    start_s: float | None = None
    busy_s: float = 0.0


class TaskTimes:
    """When tasks ran, from events and actions: of each op as a whole, and of its failed and slowest tasks alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[int, _Held] = {}
        self._free_s: dict[int, float] = {}  # worker -> end of its last task
        self._chosen: dict[int, list[tuple[bool, float, int, TracedTask]]] = {}
        self._number = 0
        self.times: dict[int, tuple[float, float]] = {}
        """By op: start of its first task and end of its last one."""

    def update(self, t: float, item: Any) -> None:
        """Take in an event or action."""
        match item:
            case act.Dispatch():
                for ref in item.tasks:
                    self._held[ref.task] = _Held(item.op, item.worker, ref, t)
            case ev.TaskEmitted() | ev.TaskParked():
                self._ran(t, item)
            case ev.TaskDone():
                self._ran(t, item)
                self._end(t, item.task, None)
            case ev.TaskFailed():
                self._end(t, item.task, item.error or "task-failed")
            case act.Requeue():
                for task in item.tasks:
                    self._held.pop(task, None)
            case ev.WorkerLost():
                self._lost(t, item.worker)

    def chosen(self) -> list[TracedTask]:
        """Return the failed and slowest tasks of all ops, in the order of their start."""
        found = [entry[3] for heap in self._chosen.values() for entry in heap]
        return sorted(found, key=lambda task: (task.start_s, task.end_s, task.task))

    def chosen_of(self, op: int) -> int:
        """Return the number of chosen tasks of an op."""
        return len(self._chosen.get(op, ()))

    def _ran(self, t: float, event: ev.TaskEmitted | ev.TaskParked | ev.TaskDone) -> None:
        held = self._held.get(event.task)
        if held is not None:
            if held.start_s is None:
                held.start_s = max(held.sent_s, t - event.busy_s)
            held.busy_s += event.busy_s

    def _lost(self, t: float, worker: int) -> None:
        """End the task that a lost worker ran; those that waited behind it have not begun."""
        held = [task for task, one in self._held.items() if one.worker == worker]
        if held:
            self._end(t, held[0], "worker-lost")
        for task in held[1:]:
            del self._held[task]

    def _end(self, t: float, task: int, error: str | None) -> None:
        held = self._held.pop(task, None)
        if held is None:
            return
        start_s = held.start_s
        if start_s is None:  # it has reported nothing: it began when its worker was free
            start_s = max(held.sent_s, self._free_s.get(held.worker, 0.0))
        self._free_s[held.worker] = t
        first_s, last_s = self.times.get(held.op, (start_s, t))
        self.times[held.op] = (min(first_s, start_s), max(last_s, t))
        ref = held.ref
        done = TracedTask(task, held.op, held.worker, ref.unit, ref.epoch, start_s, t, held.busy_s, error)
        self._number += 1
        heap = self._chosen.setdefault(held.op, [])
        entry = (error is not None, t - start_s, -self._number, done)
        if len(heap) < self._most:
            heapq.heappush(heap, entry)
        elif heap:
            heapq.heappushpop(heap, entry)


class _Spans:
    """Makes spans of one trace."""

    def __init__(self, trace_id: str, start_s: float) -> None:
        self._trace_id = trace_id
        self._start_ns = round(start_s * 1e9)

    def span(
        self,
        name: str,
        key: str,
        times_s: tuple[float, float],
        attributes: dict[str, Value],
        *,
        parent: Span | None = None,
        error: str | None = None,
    ) -> Span:
        """Return a span; `key` tells it apart from the others of the trace, so that its id is the same each time."""
        start_ns, end_ns = (self._start_ns + round(t * 1e9) for t in times_s)
        return Span(
            name=name,
            span_id=hashlib.sha256(f"{self._trace_id}/{key}".encode()).hexdigest()[:16],
            parent_id="" if parent is None else parent.span_id,
            start_ns=start_ns,
            end_ns=max(start_ns, end_ns),
            attributes=attributes,
            error=error,
        )


def _stage_span(spans: _Spans, run: Span, stage: StageSnapshot, ops: Sequence[OpSpec], tasks: TaskTimes) -> Span:
    """Return the span of a stage: from the first to the last task of its calls, or the run where there are none."""
    mine = [op.index for op in ops if stage.name in op.stages]
    times = [tasks.times[op] for op in mine if op in tasks.times]
    run_s = (run.end_ns - run.start_ns) / 1e9
    leading = [op.index for op in ops if op.stages and op.stages[0] == stage.name]
    return spans.span(
        stage.name,
        f"stage/{stage.name}",
        (min(start for start, _ in times), max(end for _, end in times)) if times else (0.0, run_s),
        parent=run,
        attributes={
            "thresher.stage": stage.name,
            "thresher.documents.in": stage.in_docs,
            "thresher.documents.out": stage.out_docs,
            "thresher.bytes.in": stage.in_bytes,
            "thresher.bytes.out": stage.out_bytes,
            "thresher.dropped": stage.dropped,
            "thresher.quarantined": stage.quarantined,
            "thresher.tasks": stage.tasks,
            "thresher.tasks.exported": sum(map(tasks.chosen_of, leading)),
            "thresher.retries": stage.retries,
            "thresher.busy_s": round(stage.busy_s, 6),
            **{f"thresher.dropped.{rule}": n for rule, n in stage.drop_reasons.items()},
            **{f"thresher.errors.{reason}": n for reason, n in stage.errors.items()},
        },
    )


def _task_span(spans: _Spans, run: Span, stages: dict[str, Span], op: OpSpec, task: TracedTask) -> Span:
    names = op.stages or (op.name,)
    return spans.span(
        f"{names[0]} task",
        f"task/{task.task}/{task.start_s}/{task.end_s}",
        (task.start_s, task.end_s),
        parent=stages.get(names[0], run),
        attributes={
            "thresher.stage": ", ".join(names),
            "thresher.unit": task.unit,
            "thresher.unit.epoch": task.epoch,
            "thresher.task": task.task,
            "thresher.worker": task.worker,
            "thresher.busy_s": round(task.busy_s, 6),
        },
        error=task.error,
    )
