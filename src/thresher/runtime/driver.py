# SPDX-License-Identifier: Apache-2.0
"""The driver loop: events from the cluster go through the scheduler, and its actions go to the cluster.

Every event and action is logged and added to the metrics. The driver makes no scheduling decisions; it adds up counts
by unit and epoch, records commits, and turns time and signals into events.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from thresher.core.arguments.options import ErrorBudget
from thresher.core.planning.plan import Plan
from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.errors import RunFailedError, TooManyErrorsError
from thresher.observe.metrics import Metrics
from thresher.observe.snapshot import Snapshot
from thresher.runtime.cluster import Cluster
from thresher.runtime.error_watch import ErrorWatch
from thresher.runtime.interrupts import Interrupts
from thresher.runtime.recorder import LedgerRecorder
from thresher.runtime.unit_tracker import UnitState, UnitTracker
from thresher.runtime.work_list import WorkList
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.step import Scheduler

POLL_S = 0.25
LISTING_POLL_S = 0.02
SAMPLE_S = 0.5
NEAR_SAMPLE_S, NEAR_LIMIT = 0.1, 0.7
"""Memory is sampled more often while usage exceeds this share of the limit."""
SHOW_S = 0.25
GRACE_S = 3.0
"""Time that a run may take to finish nearly completed work after a stop request."""


class Log(Protocol):
    """Log of events and actions."""

    def write(self, n: int, t: float, item: Any) -> None:
        """Append one line."""

    def flush(self) -> None:
        """Make the written lines readable for other processes."""


class NoLog:
    """Log of a run without a ledger."""

    def write(self, n: int, t: float, item: Any) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""


class Driver:
    """Driver of one attempt, from its first event to its last action."""

    def __init__(  # noqa: PLR0913 - the one place where all parts of a run meet
        self,
        plan: Plan,
        scheduler: Scheduler,
        cluster: Cluster,
        work: WorkList,
        recorder: LedgerRecorder,
        log: Log,
        metrics: Metrics,
    ) -> None:
        self._plan = plan
        self._scheduler = scheduler
        self._cluster = cluster
        self._work = work
        self._recorder = recorder
        self._log = log
        self._metrics = metrics
        self._units = UnitTracker()
        self._verdict: TooManyErrorsError | None = None
        self._collects = plan.sink is None
        self._ends: list[bool] = [op.next is None and not op.writes for op in plan.ops]
        self._op_of: dict[int, int] = {}
        self._results: list[tuple[tuple[int, int], tuple[int, ...], Any]] = []
        self._own_events: deque[ev.AnyEvent] = deque()
        self._n = 0
        self._started = time.monotonic()
        self._sampled = self._shown = 0.0
        self._status: str | None = None
        self._failure: str | None = None
        self._first_commit = True
        self._stop_at: float | None = None
        self._stop_reason = ""
        self._near_limit = False
        self.memory_limit = 0
        self.peak_memory = 0
        self.commits_externally = False
        self.after_commit: Callable[[], None] = lambda: None
        self.show: Callable[[Snapshot], None] = lambda snapshot: None
        self.errors = ErrorWatch(plan.stages, ErrorBudget(share=1.0), Tally(stages={}))

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self, interrupts: Interrupts) -> str:
        """Run the loop to the end; return `finished` or `stopped`."""
        with rare_collections():
            self._loop(interrupts)
        self._log.flush()
        if self._failure is not None:
            raise RunFailedError(self._failure)
        assert self._status is not None
        return self._status

    def _loop(self, interrupts: Interrupts) -> None:
        self._perform_all(self._scheduler.start())
        while self._status is None:
            self._feed_units()
            busy = bool(self._own_events)
            timeout_s = 0.0 if busy else (POLL_S if self._work.complete else LISTING_POLL_S)
            for event in self._cluster.poll(timeout_s):
                self._handle(event)
            while self._own_events:
                self._handle(self._own_events.popleft())
            self._do_periodic_work(interrupts)

    def _do_periodic_work(self, interrupts: Interrupts) -> None:
        """Do the periodic work: stop requests, the error budget, memory samples and the progress display."""
        now = time.monotonic()
        if interrupts.count and self._stop_at is None:
            self._stop(interrupts.reason)
        if self._stop_at is not None and (now > self._stop_at or interrupts.count > 1):
            self._status = self._status or "stopped"
        if self._stop_at is None:
            self._verdict = self.errors.verdict(self._metrics.total)
            if self._verdict is not None:
                self._stop("too many errors")
        if now - self._sampled >= (NEAR_SAMPLE_S if self._near_limit else SAMPLE_S):
            self._sampled = now
            used = self._cluster.memory().used_bytes
            self.peak_memory = max(self.peak_memory, used)
            self._near_limit = used > NEAR_LIMIT * self.memory_limit > 0
            self._handle(ev.MemorySample(used, self.memory_limit))
            self._handle(ev.Tick(now - self._started))
            self._log.flush()
            self._recorder.sync()
        if now - self._shown >= SHOW_S:
            self._shown = now
            self.show(self._metrics.snapshot(now - self._started))

    def snapshot(self) -> Snapshot:
        """Return the current state of the run."""
        return self._metrics.snapshot(time.monotonic() - self._started)

    def _stop(self, reason: str) -> None:
        self._stop_reason = reason
        self._stop_at = time.monotonic() + GRACE_S
        self._handle(ev.StopRequested(reason))

    def _feed_units(self) -> None:
        event = self._work.next_event()
        if event is not None:
            units, tasks = self._work.units_of(event)
            if units and self.commits_externally:
                self._before_first_commit()
            self._cluster.add_units(units, tasks)
            self._handle(event)

    def _handle(self, event: ev.AnyEvent) -> None:
        if self._status is not None:
            return
        if isinstance(event, ev.UnitCommitted) and isinstance(event.tally, UnitState):
            event = self._record_here(event, event.tally)
        t = time.monotonic() - self._started
        self._n += 1
        self._log.write(self._n, t, event)
        self._metrics.update(t, event)
        if isinstance(event, ev.TaskDone | ev.TaskEmitted | ev.TaskParked):
            self._count(event)
        elif isinstance(event, ev.UnitCommitted):
            self._unit_committed(event)
        elif isinstance(event, ev.TaskFailed):
            self._units.ended(event.task)
        elif isinstance(event, ev.WorkerLost) and event.condemned:
            self.errors.condemned(event.condemned, event.reason)
        self._perform_all(self._scheduler.step(event), t)

    # -- actions ------------------------------------------------------------------------------------------------------

    def _perform_all(self, actions: list[act.AnyAction], t: float = 0.0) -> None:
        for action in actions:
            self._n += 1
            self._log.write(self._n, t, action)
            self._metrics.update(t, action)
            kind = type(action)
            if kind is act.Dispatch:
                assert isinstance(action, act.Dispatch)
                self._units.dispatched(action)
                if self._collects:
                    for ref in action.tasks:
                        self._op_of[ref.task] = action.op
                self._cluster.perform(action)
            elif kind is act.Commit:
                assert isinstance(action, act.Commit)
                self._commit(action)
            elif kind is act.Finish:
                assert isinstance(action, act.Finish)
                self._status = action.status
            elif kind is act.Fail:
                assert isinstance(action, act.Fail)
                self._status, self._failure = "failed", action.reason
            else:
                if isinstance(action, act.Requeue):
                    self._units.requeued(action)
                elif isinstance(action, act.Release):
                    self._units.released(action.tasks)
                self._cluster.perform(action)

    def _before_first_commit(self) -> None:
        if self._first_commit:
            self._first_commit = False
            self._recorder.before_first_commit()

    def _record_here(self, event: ev.UnitCommitted, state: UnitState) -> ev.UnitCommitted:
        """Record a unit that an external engine ran and whose results it returned."""
        self._units.add(event.unit, state)
        record = self._recorder.commit_here(self._work.unit(event.unit), event.epoch, state)
        return ev.UnitCommitted(event.unit, event.epoch, record, event.whole)

    def _commit(self, action: act.Commit) -> None:
        self._before_first_commit()
        state = self._units.peek(action.unit)
        if action.worker is not None and not self._collects:
            self._cluster.commit(action, state.tally)
            return
        record = self._recorder.commit_here(self._work.unit(action.unit), action.epoch, state)
        self._own_events.append(ev.UnitCommitted(action.unit, action.epoch, record))

    # -- counts and results -------------------------------------------------------------------------------------------

    def _count(self, event: ev.TaskDone | ev.TaskEmitted | ev.TaskParked) -> None:
        state = self._units.state_of(event.task)
        tally = event.tally
        if state is not None and tally is not None:
            state.tally.add(tally)
            for number, stage in tally.stages.items():
                if stage.quarantined:
                    self.errors.note(number, stage)
        for output in event.outputs:
            if output.unit:
                self._work.cut(output.unit)
        if self._collects:
            self._collect(event, state)
        if isinstance(event, ev.TaskDone):
            self._task_done(event)

    def _task_done(self, event: ev.TaskDone) -> None:
        unit_id = self._units.ended(event.task)
        self._op_of.pop(event.task, None)
        if unit_id is not None and event.task < 0:
            self._stream_done(self._work.stream_read(unit_id))

    def _stream_done(self, stream: Unit | None) -> None:
        """Record a stream whose units are all committed, so that a resumed run does not unpack it again."""
        if stream is not None:
            state = self._units.close(stream.id)
            self._recorder.committed(stream, self._recorder.commit_here(stream, state.epoch, state))

    def _collect(self, event: ev.TaskDone | ev.TaskEmitted | ev.TaskParked, state: UnitState | None) -> None:
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

    def _unit_committed(self, event: ev.UnitCommitted) -> None:
        state = self._units.close(event.unit)
        unit = self._work.unit(event.unit)
        self._results.extend((unit.order, position, payload) for position, payload in state.results)
        self._recorder.committed(unit, event.tally)
        if event.whole:
            for number, stage in event.tally.tally.stages.items():
                self.errors.note(number, stage)
        self._cluster.mark_done([event.unit])
        self._stream_done(self._work.committed(event.unit))
        self.after_commit()

    @property
    def stop_reason(self) -> str:
        """Reason of the stop request; empty if there was none."""
        return self._stop_reason

    def results(self) -> list[Any]:
        """Return the output tasks in input order, still encoded."""
        return [payload for _, _, payload in sorted(self._results, key=lambda result: result[:2])]

    def raise_if_over_budget(self) -> None:
        """Raise if failed records stopped the run."""
        if self._verdict is not None:
            raise self._verdict


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Make garbage collections rare: the loop creates many small objects without cycles, and collecting them took a
    tenth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
