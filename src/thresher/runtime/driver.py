# SPDX-License-Identifier: Apache-2.0
"""The only loop: events from the cluster go through the scheduler, and its actions go to the cluster.

Every event and action is logged and folded into the metrics on the way. The driver itself decides nothing about work;
it adds up counts by unit and epoch, records commits, and turns clock and signals into events.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from thresher.core.options import ErrorBudget
from thresher.core.plan import Plan
from thresher.core.tally import StageTally
from thresher.core.unit import Unit
from thresher.errors import RunFailedError, TooManyErrorsError
from thresher.observe.metrics import Metrics
from thresher.observe.snapshot import Snapshot
from thresher.runtime.cluster import Cluster
from thresher.runtime.interrupts import Interrupts
from thresher.runtime.unit_book import UnitBook, UnitPage
from thresher.runtime.work_list import WorkList
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.step import Scheduler

POLL_S = 0.25
LISTING_POLL_S = 0.02
SAMPLE_S = 0.5
NEAR_SAMPLE_S, NEAR_LIMIT = 0.1, 0.7
"""Memory is looked at more often while more than this part of the limit is in use."""
SHOW_S = 0.25
GRACE_S = 3.0
"""How long a run that is asked to stop may take to finish what is nearly done."""


class Log(Protocol):
    """Where events and actions are kept."""

    def write(self, n: int, t: float, item: Any) -> None:
        """Keep one line."""

    def flush(self) -> None:
        """Make what was written readable."""


class Recorder(Protocol):
    """Where commits are recorded."""

    def before_first_commit(self) -> None:
        """The first commit is about to happen."""

    def commit_here(self, unit: Unit, epoch: int, page: UnitPage) -> Any:
        """Commit a unit that no worker holds anything of; what there is to say of it."""

    def committed(self, unit: Unit, record: Any) -> None:
        """A unit was published: fold what its worker said of it into the ledger."""

    def sync(self) -> None:
        """Make what was recorded durable."""


class Driver:
    """Drives one attempt from its first event to its last action."""

    def __init__(  # noqa: PLR0913 - the one place where all parts of a run meet
        self,
        plan: Plan,
        scheduler: Scheduler,
        cluster: Cluster,
        work: WorkList,
        recorder: Recorder,
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
        self._book = UnitBook()
        self._errors: dict[str, int] = {}
        """Reasons of failed records so far."""
        self._examples: dict[str, str] = {}
        """One failed record for each reason."""
        self._condemned: dict[str, int] = {}
        """By reason: records that ended workers; they are counted as failed when their unit gets past them."""
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
        self.commits_unasked = False
        self.show: Callable[[Snapshot], None] = lambda snapshot: None
        self.error_budget = ErrorBudget(share=1.0)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self, interrupts: Interrupts) -> str:
        """Drive to the end; `finished` or `stopped`."""
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
            self._tend(interrupts)

    def _tend(self, interrupts: Interrupts) -> None:
        """What is done now and then."""
        now = time.monotonic()
        if interrupts.count and self._stop_at is None:
            self._stop(interrupts.reason)
        if self._stop_at is not None and (now > self._stop_at or interrupts.count > 1):
            self._status = self._status or "stopped"
        if self._stop_at is None and self._is_over_budget():
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
        """The run as it is now."""
        return self._metrics.snapshot(time.monotonic() - self._started)

    def _stop(self, reason: str) -> None:
        self._stop_reason = reason
        self._stop_at = time.monotonic() + GRACE_S
        self._handle(ev.StopRequested(reason))

    def _feed_units(self) -> None:
        event = self._work.next_event()
        if event is not None:
            units, tasks = self._work.units_of(event)
            if units and self.commits_unasked:
                self._before_first_commit()
            self._cluster.add_units(units, tasks)
            self._handle(event)

    def _handle(self, event: ev.AnyEvent) -> None:
        if self._status is not None:
            return
        if isinstance(event, ev.UnitCommitted) and isinstance(event.tally, UnitPage):
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
            self._book.ended(event.task)
        elif isinstance(event, ev.WorkerLost) and event.condemned:
            self._condemned[event.condemned] = self._condemned.get(event.condemned, 0) + 1
            self._examples.setdefault(event.condemned, event.reason)
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
                self._book.dispatched(action)
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
                    self._book.requeued(action)
                elif isinstance(action, act.Release):
                    self._book.released(action.tasks)
                self._cluster.perform(action)

    def _before_first_commit(self) -> None:
        if self._first_commit:
            self._first_commit = False
            self._recorder.before_first_commit()

    def _record_here(self, event: ev.UnitCommitted, page: UnitPage) -> ev.UnitCommitted:
        """A unit was run elsewhere and gave back its results: its record is made here."""
        self._book.put(event.unit, page)
        record = self._recorder.commit_here(self._work.unit(event.unit), event.epoch, page)
        return ev.UnitCommitted(event.unit, event.epoch, record, event.whole)

    def _commit(self, action: act.Commit) -> None:
        self._before_first_commit()
        page = self._book.peek(action.unit)
        if action.worker is not None and not self._collects:
            self._cluster.commit(action, page.tally)
            return
        record = self._recorder.commit_here(self._work.unit(action.unit), action.epoch, page)
        self._own_events.append(ev.UnitCommitted(action.unit, action.epoch, record))

    # -- counts and results -------------------------------------------------------------------------------------------

    def _count(self, event: ev.TaskDone | ev.TaskEmitted | ev.TaskParked) -> None:
        page = self._book.page(event.task)
        tally = event.tally
        if page is not None and tally is not None:
            page.tally.add(tally)
            for number, stage in tally.stages.items():
                if stage.quarantined:
                    self._note_errors(number, stage)
        for output in event.outputs:
            if output.unit:
                self._work.cut(output.unit)
        if self._collects:
            self._collect(event, page)
        if isinstance(event, ev.TaskDone):
            self._task_done(event)

    def _note_errors(self, number: int, stage: StageTally) -> None:
        for reason, n in stage.errors.items():
            name = f"{self._plan.stages[number].name}/{reason}"
            self._errors[name] = self._errors.get(name, 0) + n
            if reason in stage.examples:
                self._examples.setdefault(name, stage.examples[reason])

    def _is_over_budget(self) -> bool:
        if not self._errors and not self._condemned:
            return False
        read, quarantined = self._metrics.records()
        failed = max(quarantined, sum(self._condemned.values()))
        return failed > 0 and self.error_budget.exceeded(failed, read)

    def _task_done(self, event: ev.TaskDone) -> None:
        unit_id = self._book.ended(event.task)
        self._op_of.pop(event.task, None)
        if unit_id is not None and event.task < 0:
            self._stream_done(self._work.stream_read(unit_id))

    def _stream_done(self, stream: Unit | None) -> None:
        """All units of a stream are committed: it need not be unpacked again."""
        if stream is not None:
            page = self._book.close(stream.id)
            self._recorder.committed(stream, self._recorder.commit_here(stream, page.epoch, page))

    def _collect(self, event: ev.TaskDone | ev.TaskEmitted | ev.TaskParked, page: UnitPage | None) -> None:
        at_the_end = self._ends[self._op_of.get(event.task, 0)]
        places = self._book.emitted(event.task, event.outputs, are_results=at_the_end)
        if page is not None:
            page.quarantined.extend(self._cluster.take_quarantined(event.task))
        if not at_the_end:
            return
        for output, place in zip(event.outputs, places, strict=True):
            if output.task:
                payload = self._cluster.take_result(output.task)
                if page is not None:
                    page.results.append((place, payload))
                    page.tally.written += self._cluster.result_items(payload)

    def _unit_committed(self, event: ev.UnitCommitted) -> None:
        page = self._book.close(event.unit)
        unit = self._work.unit(event.unit)
        self._results.extend((unit.order, place, payload) for place, payload in page.results)
        self._recorder.committed(unit, event.tally)
        if event.whole:
            for number, stage in event.tally.tally.stages.items():
                self._note_errors(number, stage)
        self._cluster.mark_done([event.unit])
        self._stream_done(self._work.committed(event.unit))

    @property
    def stop_reason(self) -> str:
        """Why the run was asked to stop; empty if it was not."""
        return self._stop_reason

    def results(self) -> list[Any]:
        """Output tasks as they came from workers, in input order."""
        return [payload for _, _, payload in sorted(self._results, key=lambda result: result[:2])]

    def raise_if_over_budget(self) -> None:
        """Raise when the error budget stopped the run."""
        if not self._is_over_budget():
            return
        counts = {reason: max(self._errors.get(reason, 0), n) for reason, n in self._condemned.items()}
        reasons = sorted({**self._errors, **counts}.items(), key=lambda item: -item[1])
        read, quarantined = self._metrics.records()
        failed = max(quarantined, sum(counts.values()))
        listed = "\n".join(f"  {n:>8,}  {reason}{self._example(reason)}" for reason, n in reasons[:10])
        raise TooManyErrorsError(
            f"stopped: {failed:,} of {read:,} records failed, and max_errors is {self.error_budget}.\n{listed}\n"
            "What was committed stays. Mend the input or the stage and run the same command again, "
            "or allow more with --max-errors."
        )

    def _example(self, reason: str) -> str:
        found = self._examples.get(reason)
        return f", such as {found}" if found else ""


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """The loop makes many small objects without cycles; looking for cycles among them cost a tenth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
