# SPDX-License-Identifier: Apache-2.0
"""Counts, results and commits of the units in flight, by epoch, so that a retry never counts twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thresher.core.planning.plan import Plan
from thresher.core.tally import Tally
from thresher.core.unit import STREAM, Unit
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.records import CommitRecord
from thresher.ledger.unit_output import UnitOutput
from thresher.runtime.cluster import Cluster
from thresher.runtime.error_watch import ErrorWatch
from thresher.runtime.work_list import WorkList
from thresher.scheduler.actions import Commit, Dispatch, Release, Requeue, TaskRef
from thresher.scheduler.events import Emitted, TaskDone, TaskEmitted, TaskFailed, TaskParked, UnitCommitted, WorkerLost


class Accounts:
    """The accounts of one attempt. The driver passes it each event and action that `events` and `actions` name."""

    def __init__(
        self, plan: Plan, cluster: Cluster, work: WorkList, recorder: LedgerRecorder, errors: ErrorWatch
    ) -> None:
        self._cluster = cluster
        self._work = work
        self._recorder = recorder
        self._errors = errors
        self._units = UnitTracker()
        self._collects = plan.sink is None
        self._ends: list[bool] = [op.next is None and not op.writes for op in plan.ops]
        self._op_of: dict[int, int] = {}
        self._results: list[tuple[tuple[int, int], tuple[int, ...], Any]] = []
        self._first_commit = True
        self.after_commit: Callable[[], None] | None = None
        """Called after every commit."""
        self.events: dict[type, Callable[[Any], None]] = {
            TaskDone: self._task_done,
            TaskEmitted: self._count,
            TaskParked: self._count,
            TaskFailed: self._task_failed,
            UnitCommitted: self._unit_committed,
            WorkerLost: self._worker_lost,
        }
        """Functions by the type of event."""
        self.actions: dict[type, Callable[[Any], None]] = {
            Dispatch: self._dispatched,
            Requeue: self._units.requeued,
            Release: self._units.released,
        }
        """Functions by the type of action, other than a commit."""

    # -- commits ------------------------------------------------------------------------------------------------------

    def before_first_commit(self) -> None:
        """Delete old output now, and not before, for `mode="overwrite"` and `fresh`."""
        if self._first_commit:
            self._first_commit = False
            self._recorder.before_first_commit()

    def commit(self, action: Commit) -> UnitCommitted | None:
        """Commit a unit: in the worker that holds its output, or here; return the event if it was here."""
        if self._first_commit:
            self.before_first_commit()
        state = self._units.peek(action.unit)
        if action.worker is not None:
            self._cluster.commit(action, state.tally)
            return None
        record = self._recorder.commit_here(self._work.unit(action.unit), action.epoch, state)
        return UnitCommitted(action.unit, action.epoch, record)

    def record_here(self, event: UnitCommitted, state: UnitAccount) -> UnitCommitted:
        """Record a unit that an external engine ran and whose results it returned."""
        self._units.add(event.unit, state)
        record = self._recorder.commit_here(self._work.unit(event.unit), event.epoch, state)
        return UnitCommitted(event.unit, event.epoch, record, event.whole)

    def sync(self) -> None:
        """Make the ledger durable."""
        self._recorder.sync()

    def _unit_committed(self, event: UnitCommitted) -> None:
        state = self._units.close(event.unit)
        unit, stream = self._work.committed(event.unit)
        self._results.extend((unit.order, position, payload) for position, payload in state.results)
        self._recorder.committed(unit, event.tally)
        if event.whole:
            for number, stage in event.tally.tally.stages.items():
                self._errors.note(number, stage)
        self._cluster.mark_done([event.unit])
        if stream is not None:
            self._stream_done(stream)
        if self.after_commit is not None:
            self.after_commit()

    def _stream_done(self, stream: Unit) -> None:
        """Record a stream whose units are all committed, so that a resumed run does not unpack it again."""
        state = self._units.close(stream.id)
        self._recorder.committed(stream, self._recorder.commit_here(stream, state.epoch, state))

    # -- counts and results -------------------------------------------------------------------------------------------

    def _dispatched(self, action: Dispatch) -> None:
        self._units.dispatched(action)
        if self._collects:
            for ref in action.tasks:
                self._op_of[ref.task] = action.op

    def _count(self, event: TaskDone | TaskEmitted | TaskParked) -> None:
        state = self._units.state_of(event.task)
        tally = event.tally
        if state is not None and tally is not None:
            state.tally.add(tally)
            for number, stage in tally.stages.items():
                if stage.quarantined:
                    self._errors.note(number, stage)
        for output in event.outputs:
            if output.unit:
                self._work.cut(output.unit)
        if self._collects:
            self._collect(event, state)

    def _collect(self, event: TaskDone | TaskEmitted | TaskParked, state: UnitAccount | None) -> None:
        at_the_end = self._ends[self._op_of.get(event.task, 0)]
        positions = self._units.emitted(event.task, event.outputs, are_results=at_the_end)
        if state is not None:
            state.quarantined.extend(self._cluster.take_quarantined(event.task))
        if not at_the_end:
            return
        for output, position in zip(event.outputs, positions, strict=True):
            if output.task:
                payload = self._cluster.take_result(output.task)
                if state is not None:
                    state.results.append((position, payload))
                    state.tally.written += self._cluster.result_items(payload)

    def _task_done(self, event: TaskDone) -> None:
        self._count(event)
        unit_id = self._units.ended(event.task)
        self._op_of.pop(event.task, None)
        if unit_id is not None and event.task < 0 and unit_id.endswith(STREAM):
            stream = self._work.stream_read(unit_id)
            if stream is not None:
                self._stream_done(stream)

    def _task_failed(self, event: TaskFailed) -> None:
        self._units.ended(event.task)

    def _worker_lost(self, event: WorkerLost) -> None:
        if event.condemned:
            self._errors.condemned(event.condemned, event.reason)

    def results(self) -> list[Any]:
        """Return the output tasks in input order, still encoded."""
        return [payload for _, _, payload in sorted(self._results, key=lambda result: result[:2])]


@dataclass
class UnitAccount:
    """Counts and results of one unit in one epoch."""

    epoch: int
    """Counts and results of other epochs are discarded."""
    tally: Tally = field(default_factory=lambda: Tally(stages={}))
    """Counts so far."""
    quarantined: list[bytes] = field(default_factory=list)
    """Quarantine lines that go to no unit's output."""
    results: list[tuple[tuple[int, ...], Any]] = field(default_factory=list)
    """Output tasks with their positions in lineage order."""


class UnitTracker:
    """States of all units in flight, and the unit of each running task."""

    def __init__(self) -> None:
        self._states: dict[str, UnitAccount] = {}
        self._tasks: dict[int, tuple[TaskRef, tuple[int, ...]]] = {}
        self._positions: dict[int, tuple[int, ...]] = {}
        self._children: dict[int, int] = {}

    def dispatched(self, action: Dispatch) -> None:
        """Register the unit and epoch of dispatched tasks."""
        for ref in action.tasks:
            self._tasks[ref.task] = (ref, self._positions.get(ref.task, ()))
            self._children.pop(ref.task, None)
            state = self._states.get(ref.unit)
            if state is None or state.epoch < ref.epoch:
                self._states[ref.unit] = UnitAccount(ref.epoch)

    def requeued(self, action: Requeue) -> None:
        """Start a unit again under a new epoch."""
        if action.unit:
            state = self._states.get(action.unit)
            if state is None or state.epoch < action.epoch:
                self._states[action.unit] = UnitAccount(action.epoch)

    def state_of(self, task: int) -> UnitAccount | None:
        """Return the state that a task counts towards; `None` if its epoch is outdated."""
        found = self._tasks.get(task)
        if found is None:
            return None
        state = self._states.get(found[0].unit)
        return state if state is not None and state.epoch == found[0].epoch else None

    def emitted(self, task: int, outputs: tuple[Emitted, ...], *, are_results: bool) -> list[tuple[int, ...]]:
        """Return the positions of new tasks in lineage order. Positions of tasks that go on to another op are kept
        until the task is released, since it may be dispatched more than once."""
        found = self._tasks.get(task)
        base = found[1] if found is not None else ()
        first = self._children.get(task, 0)
        self._children[task] = first + len(outputs)
        positions = [(*base, first + number) for number in range(len(outputs))]
        if not are_results:
            for output, position in zip(outputs, positions, strict=True):
                self._positions[output.task] = position
        return positions

    def ended(self, task: int) -> str | None:
        """Forget a task that ended; return its unit if its epoch is current."""
        state = self.state_of(task)
        found = self._tasks.pop(task, None)
        self._children.pop(task, None)
        return found[0].unit if found is not None and state is not None else None

    def released(self, action: Release) -> None:
        """Forget tasks that will not be dispatched again."""
        for task in action.tasks:
            self._positions.pop(task, None)

    def add(self, unit: str, state: UnitAccount) -> None:
        """Add the state of a unit that an external engine ran."""
        self._states[unit] = state

    def close(self, unit: str) -> UnitAccount:
        """Remove and return the state of a committed unit."""
        return self._states.pop(unit, None) or UnitAccount(0)

    def peek(self, unit: str) -> UnitAccount:
        """Return the state of a unit that is about to be committed."""
        return self._states.get(unit) or UnitAccount(0)


class LedgerRecorder:
    """Records the commits of a run."""

    def __init__(self, run: OpenRun, *, writes: bool) -> None:
        """`writes`: True if there are output files, so that a commit may have to clean up after a crashed attempt."""
        self._run = run
        self._writes = writes
        self.on_commit: Callable[[Unit, CommitRecord], None] | None = None
        """Called with every recorded commit."""

    def before_first_commit(self) -> None:
        """Delete old output now, and not before, for `mode="overwrite"` and `fresh`."""
        self._run.before_first_commit()

    def commit_here(self, unit: Unit, epoch: int, state: UnitAccount) -> CommitRecord:
        """Commit a unit of which no worker holds any output: none was written."""
        if not self._writes and not state.quarantined:
            return _record(unit, self._run.attempt, state.tally)
        output = UnitOutput(self._run.target, None, unit, epoch)
        output.quarantine(state.quarantined)
        return output.commit(state.tally)

    def committed(self, unit: Unit, record: Any) -> None:
        """Add a commit to the ledger; `record` is the commit record of the worker."""
        known = self._run.fold(unit.id, record)
        if self.on_commit is not None:
            self.on_commit(unit, known)

    def sync(self) -> None:
        """Make the ledger durable."""
        self._run.sync()


def _record(unit: Unit, attempt: int, tally: Tally) -> CommitRecord:
    totals = tally.totals()
    return CommitRecord(
        unit=unit.id,
        attempt=attempt,
        read=totals["read"],
        written=totals["written"],
        dropped=totals["dropped"],
        quarantined=totals["quarantined"],
        order=unit.order,
        tally=tally,
        phase=unit.phase,
    )
