# SPDX-License-Identifier: Apache-2.0
"""Executor that runs everything in this process, one task after the other: for debugging (`pdb`) and small jobs."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from thresher.core.arguments.options import (
    EXECUTION_MODES,
    check_amounts,
    check_choice,
    check_flag,
    check_positive,
    merge_options,
)
from thresher.core.planning.plan import Plan
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.credentials import message_of, redacted, traceback_of
from thresher.errors import RunFailedError, ThresherError
from thresher.runtime.cluster import Cluster, MemoryReading
from thresher.runtime.executor import Executor, Limits, WorkerPolicy
from thresher.runtime.orders import Produced, TaskOrder, TaskReport, WorkerSetup
from thresher.runtime.processes.accelerators import Accelerator, declared_accelerators, found_accelerators
from thresher.runtime.worker.call_queue import Call, CallQueue, run_flow
from thresher.runtime.worker.stage_call import ABORTED, TaskAborted
from thresher.runtime.worker.worker import SetupFailed, Worker, set_up_node
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import NO_LIMIT, RunSpec
from thresher.scheduler.workers.placement import placement_errors
from thresher.stage_errors import ControlSignal


class SerialCall(Call, eq=False, kw_only=True):
    """A call whose tasks are objects of this process."""

    worker: int = 0
    """The number of its worker; all workers are the same object."""


class SerialCluster:
    """Runs one queued order per `poll`."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._units: dict[str, Unit] = {}
        self._payloads: dict[int, Task] = {}
        self._initial: dict[str, Task] = {}
        self._done: set[str] = set()
        self._calls: CallQueue[SerialCall] = CallQueue()
        self._at_once: list[bool] = []
        """By op: True if no time passes between two outputs of a task."""
        self._events: list[ev.AnyEvent] = []
        self._next_task = 1
        self._quarantined: dict[int, list[bytes]] = {}

    # -- the `Cluster` interface ---------------------------------------------------------------------------------------

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Create the only worker."""
        self._worker = Worker(setup)
        self._at_once = [not setup.plan.emits_gradually(op) for op in setup.plan.ops]
        try:
            set_up_node(setup)
        except SetupFailed as failed:
            raise RunFailedError(str(failed)) from None

    def add_units(self, units: Sequence[Unit], tasks: dict[str, Task] | None = None) -> None:
        """Store units and their initial tasks."""
        self._units.update((unit.id, unit) for unit in units)
        self._initial.update(tasks or {})

    def mark_done(self, unit_ids: Sequence[str]) -> None:
        """Record units as committed."""
        self._done.update(unit_ids)

    def perform(self, action: act.AnyAction) -> None:
        """Queue what is to be run, perform everything else at once."""
        if isinstance(action, act.StartWorker):
            self._start_worker(action)
        elif isinstance(action, act.Dispatch):
            self._calls.waiting.extend(self._calls_of(action))
        elif isinstance(action, act.Resume):
            self._calls.resume(action.task, action.credit)
        elif isinstance(action, act.GrantCredit):
            self._calls.earn(action.task, action.credit)
        elif isinstance(action, act.Release):
            for task in action.tasks:
                self._payloads.pop(task, None)
        elif isinstance(action, act.Requeue):
            self._take_back(action)

    def commit(self, action: act.Commit, tally: Tally) -> None:
        """Commit a unit."""
        assert self._worker is not None
        try:
            record = self._worker.commit(self._units[action.unit], action.epoch, tally)
        except ControlSignal:
            raise
        except BaseException as error:
            text = message_of(error) if isinstance(error, OSError | ThresherError) else traceback_of(error)
            self._events.append(ev.CommitFailed(action.unit, action.epoch, text, retryable=False))
        else:
            self._events.append(ev.UnitCommitted(action.unit, action.epoch, record))

    def poll(self, timeout_s: float) -> list[ev.AnyEvent]:
        """Run one call until it ends or is parked."""
        call = self._calls.next() if not self._events else None
        if call is not None:
            self._advance(call)
        events, self._events = self._events, []
        return events

    def take_result(self, task: int) -> Any:
        """Return the task itself."""
        return self._payloads.pop(task)

    def result_items(self, payload: Any) -> int:
        """Return the number of records in a result, which is a task here."""
        return int(payload.num_items)

    def take_quarantined(self, task: int) -> list[bytes]:
        """Return the quarantine lines from the report of a task."""
        return self._quarantined.pop(task, [])

    def decode_result(self, payload: Any) -> Task:
        """Return the result, which is never encoded here."""
        assert isinstance(payload, Task)
        return payload

    def memory(self) -> MemoryReading:
        """Return the resident memory of this process."""
        with open("/proc/self/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[1])
        return MemoryReading(pages * os.sysconf("SC_PAGE_SIZE"))

    def close(self, *, kill: bool = False) -> None:
        """Tear the stages down."""
        worker, self._worker = self._worker, None
        self._calls = CallQueue()
        if worker is not None:
            worker.teardown()

    # -- running -------------------------------------------------------------------------------------------------------

    def _start_worker(self, action: act.StartWorker) -> None:
        """Set up the stages of an op with dedicated workers when its first worker starts; all workers are the same
        object."""
        assert self._worker is not None
        started = time.monotonic()
        if action.op is not None:
            metadata = WorkerMetadata(str(action.worker), NodeInfo(action.node), action.devices)
            try:
                self._worker.prepare(self._worker.plan.ops[action.op], metadata)
            except SetupFailed as failed:
                self._events.append(ev.WorkerSetupFailed(action.worker, str(failed)))
                return
        self._events.append(ev.WorkerReady(action.worker, setup_s=time.monotonic() - started))

    def _calls_of(self, action: act.Dispatch) -> Iterator[SerialCall]:
        assert self._worker is not None
        size = self._worker.tasks_per_call[action.op]
        for start in range(0, len(action.tasks), size):
            refs = action.tasks[start : start + size]
            # A call for several tasks cannot pause halfway, so it never parks.
            credit = refs[0].credit if size == 1 else NO_LIMIT
            yield SerialCall(action.op, refs, credit, unit=self._units[refs[0].unit], worker=action.worker)

    def _start(self, call: SerialCall) -> Iterator[Produced]:
        assert self._worker is not None
        unit, inputs = call.unit, map(self._input_of, call.tasks)
        done = frozenset(self._done) if unit.stream else frozenset()
        tasks = [task for task in inputs if task is not None]
        call.order = TaskOrder(call.op, unit, call.tasks[0].epoch, tasks, done)
        call.outputs = [[] for _ in call.tasks]
        call.flow = self._worker.start(call.order)
        return call.flow

    def _input_of(self, ref: act.TaskRef) -> Task | None:
        return self._initial.get(ref.unit) if ref.task < 0 else self._payloads[ref.task]

    def _advance(self, call: SerialCall) -> None:
        assert self._worker is not None
        call.is_begun = True
        try:
            ended = run_flow(call, call.flow or self._start(call), self._emit, at_once=self._at_once[call.op])
        except ControlSignal:
            raise
        except BaseException as error:
            self._failed(call, error)
            return
        if ended:
            self._end(call)
        else:
            self._park(call)

    def _failed(self, call: SerialCall, error: BaseException) -> None:
        if isinstance(error, TaskAborted):
            for ref in call.tasks:  # something was emitted, so the unit restarts as a whole
                self._events.append(ev.TaskEmitted(ref.task, call.worker, ()))
            self._fail(call, ABORTED, str(error), fatal=False)
        elif isinstance(error, ThresherError):
            self._fail(call, "", str(error), fatal=True)
        elif isinstance(error, SetupFailed | OSError):
            self._fail(call, type(error).__name__, message_of(error), fatal=True)
        else:  # a bug of ours or of a reader or writer
            self._fail(call, type(error).__name__, traceback_of(error), fatal=False)

    def _emit(self, call: SerialCall, produced: Produced, is_last: bool) -> None:
        unit = produced.unit
        if unit is not None:
            self._units.setdefault(unit.id, unit)
        unit_id, place = (unit.id, unit.order) if unit is not None else ("", (0, 0))
        number = nbytes = 0
        if produced.task is not None:
            number, nbytes = self._next_task, max(1, produced.task.nbytes)
            self._next_task += 1
            self._payloads[number] = produced.task
            call.spend(nbytes)
        call.outputs[produced.parent].append(ev.Emitted(number, nbytes, unit_id, place, produced.closes))

    def _park(self, call: SerialCall) -> None:
        assert self._worker is not None
        assert call.order is not None
        self._calls.park(call)
        (report,), (outputs,) = self._worker.report(call.order), call.take_outputs()
        task = call.tasks[0].task
        tally = self._tally_of(task, report)
        self._events.append(ev.TaskParked(task, call.worker, tuple(outputs), tally, report.busy_s))

    def _end(self, call: SerialCall) -> None:
        assert self._worker is not None
        assert call.order is not None
        reports = self._worker.finish(call.order)
        for ref, outputs, report in zip(call.tasks, call.take_outputs(), reports, strict=True):
            tally = self._tally_of(ref.task, report)
            self._events.append(ev.TaskDone(ref.task, call.worker, tuple(outputs), report.busy_s, tally))

    def _tally_of(self, task: int, report: TaskReport) -> Tally:
        if report.quarantined:
            self._quarantined.setdefault(task, []).extend(report.quarantined)
        return report.tally

    def _fail(self, call: SerialCall, error: str, message: str, *, fatal: bool) -> None:
        self._drop(call)
        for ref in call.tasks:
            self._events.append(ev.TaskFailed(ref.task, call.worker, error, redacted(message), fatal))

    def _drop(self, call: SerialCall) -> None:
        """Drop a call in any state, with its outputs that were not reported."""
        assert self._worker is not None
        if call.is_begun:
            self._calls.suspended.discard(call.op)
        if call.order is not None:
            self._worker.forget(call.order)
        for emitted in itertools.chain(*call.outputs):
            self._payloads.pop(emitted.task, None)
        call.forget()

    def _take_back(self, action: act.Requeue) -> None:
        assert self._worker is not None
        dropped, _ = self._calls.take_back(action.tasks)
        for call in dropped:
            self._drop(call)
        if action.unit:
            self._worker.discard(action.unit, action.epoch)


class SerialExecutor(Executor):
    """Runs a pipeline in this process."""

    name = "serial"
    options = ("custom_resources", "execution_mode", "fusion", "gpus", "logging_interval")
    cannot: ClassVar[Mapping[str, str]] = {
        "address": "everything runs in this process",
        "workers": "everything runs in this process",
        "cpu_allocation_percentage": "everything runs in this process",
        "memory": "it keeps no account of memory",
        "timeout_s": "it has no second process that could end a call",
        "runtime_env": "everything runs in this process",
    }

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `execution_mode`: `streaming` or `batch`. `logging_interval`: seconds. `fusion`: run neighbouring stages in one
        call.
        `gpus` (a count, or a list such as `[{"memory_gb": 40}]`), `custom_resources`: resources that stages may
        request.
        """
        given = merge_options("SerialExecutor", options, config, self.options, self.cannot)
        self._mode = check_choice("execution_mode", given.get("execution_mode", "streaming"), EXECUTION_MODES)
        self._fusion = check_flag("fusion", given.get("fusion", True))
        self.logging_interval_s = check_positive("logging_interval", given.get("logging_interval", 10.0), "seconds")
        self._custom = check_amounts("custom_resources", given.get("custom_resources", {}))
        self._declared = given.get("gpus") is not None
        self._accelerators = declared_accelerators(given["gpus"]) if self._declared else None

    def limits(self) -> Limits:
        """Return one worker without a memory limit."""
        return Limits(
            shared_workers=1,
            barrier=self._mode == "batch",
            fusion=self._fusion,
            custom=self._custom,
            worker_policy=WorkerPolicy(max_workers_per_stage=1),
        )

    def accelerators(self) -> tuple[Accelerator, ...]:
        """Return the declared accelerators, or those that NVML finds. All are visible; stages find theirs in their
        metadata."""
        if self._accelerators is None:
            self._accelerators = found_accelerators()
        return self._accelerators

    def run_spec(self, plan: Plan) -> RunSpec:
        """Return the plan as input of the scheduler.

        A pipeline for accelerators can be debugged on a machine without any: unless `gpus` is given, stages get the
        accelerators that are found if they suffice, and none otherwise.
        """
        spec = super().run_spec(plan)
        if self._declared or not placement_errors(spec):
            return spec
        return replace(spec, ops=tuple(replace(op, gpus=0.0, gpu_memory_bytes=0) for op in spec.ops))

    def make_cluster(self, limits: Limits) -> Cluster:
        """Return a cluster that runs in this process."""
        return SerialCluster()
