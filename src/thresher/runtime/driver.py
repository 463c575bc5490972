# SPDX-License-Identifier: Apache-2.0
"""The driver loop: events from the cluster go through the scheduler, and its actions go to the cluster.

Every event and action is logged and added to the metrics and the accounts. The driver makes no scheduling decisions; it
turns time and signals into events.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from thresher.errors import RunFailedError, TooManyErrorsError
from thresher.observe.event_log import Log
from thresher.observe.metrics import Metrics
from thresher.observe.progress import NoProgress, Progress, Snapshot
from thresher.runtime.accounts import Accounts, UnitAccount
from thresher.runtime.cluster import Cluster
from thresher.runtime.error_watch import ErrorWatch
from thresher.runtime.work_list import WorkList
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.step import Scheduler
from thresher.stage_errors import TERMINATED, Interrupted, Terminated, raised_by

COUNTED_SIGNALS = 2
"""Number of signals that are only counted. Beyond it a signal raises, because the driver may be blocked on a store that
does not respond."""
POLL_S = 0.25
LISTING_POLL_S = 0.02
SAMPLE_S = 0.5
NEAR_SAMPLE_S, NEAR_LIMIT = 0.1, 0.7
"""Memory is sampled more often while usage exceeds this share of the limit."""
SHOW_S = 0.25
GRACE_S = 3.0
"""Time that a run may take to finish nearly completed work after a stop request."""


class Interrupts:
    """Count Ctrl-C and SIGTERM inside a `with` block; does nothing outside the main thread.

    The first signal requests a clean stop, the second one stops the run at once, and the third one raises wherever the
    driver is.
    """

    def __init__(self) -> None:
        self.count = 0
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def reason(self) -> str:
        """Reason for the log and the terminal; empty if no signal arrived."""
        return f"interrupted by {self.signal.name}" if self.signal is not None else ""

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if isinstance(error, Interrupted | Terminated):
            self.raise_if_any()

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.signal = self.signal or signal.Signals(number)
        if self.count > COUNTED_SIGNALS:
            raise raised_by(self.signal)

    def raise_if_any(self) -> None:
        """Raise for the signal that stopped the run; called after the clean stop."""
        if self.signal is signal.SIGTERM:
            raise SystemExit(TERMINATED) from None
        if self.signal is not None:
            raise KeyboardInterrupt from None  # not a subclass: only for this class does Python exit by the signal


class Driver:
    """Driver of one attempt, from its first event to its last action."""

    def __init__(  # noqa: PLR0913 - the one place where all parts of a run meet
        self,
        scheduler: Scheduler,
        cluster: Cluster,
        work: WorkList,
        accounts: Accounts,
        errors: ErrorWatch,
        log: Log,
        metrics: Metrics,
    ) -> None:
        self._scheduler = scheduler
        self._cluster = cluster
        self._work = work
        self._accounts = accounts
        self._errors = errors
        self._log = log
        self._metrics = metrics
        self._verdict: TooManyErrorsError | None = None
        self._own_events: deque[ev.AnyEvent] = deque()
        self._n = 0
        self._started = time.monotonic()
        self._sampled = self._shown = 0.0
        self._status: str | None = None
        self._failure: str | None = None
        self._stop_at: float | None = None
        self._stop_reason = ""
        self._near_limit = False
        self.memory_limit = 0
        self.peak_memory = 0
        self.commits_externally = False
        self.progress: Progress = NoProgress()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self, interrupts: Interrupts) -> str:
        """Run the loop to the end; return `finished` or `stopped`."""
        with rare_collections():
            self._loop(interrupts)
        self._log.flush()
        self._log.sample(self.snapshot())
        if self._failure is not None:
            raise RunFailedError(self._failure)
        assert self._status is not None
        return self._status

    def _loop(self, interrupts: Interrupts) -> None:
        self._perform_all(self._scheduler.start())
        while self._status is None:
            if not self._work.complete:
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
            self._handle(ev.StopRequested(self._stop_reason, at_once=True))
        if self._stop_at is None and self._errors.any_failed:
            self._verdict = self._errors.verdict(self._metrics.total)
            if self._verdict is not None:
                self._stop("too many errors")
        if now - self._sampled >= (NEAR_SAMPLE_S if self._near_limit else SAMPLE_S):
            self._sampled = now
            reading = self._cluster.memory()
            used = reading.used_bytes
            self.peak_memory = max(self.peak_memory, used)
            self._near_limit = used > NEAR_LIMIT * self.memory_limit > 0
            self._handle(ev.MemorySample(used, self.memory_limit, reading.devices))
            self._handle(ev.Tick(now - self._started))
            self._log.flush()
            self._accounts.sync()
        if now - self._shown >= SHOW_S:
            self._shown = now
            t = now - self._started
            shows, keeps = self.progress.due(t), self._log.wants_sample(t)
            if shows or keeps:
                snapshot = self._metrics.snapshot(t)
                if shows:
                    self.progress.update(snapshot)
                if keeps:
                    self._log.sample(snapshot)

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
                self._accounts.before_first_commit()
            self._cluster.add_units(units, tasks)
            self._handle(event)

    def _handle(self, event: ev.AnyEvent) -> None:
        if self._status is not None:
            return
        if isinstance(event, ev.UnitCommitted) and isinstance(event.tally, UnitAccount):
            event = self._accounts.record_here(event, event.tally)
        t = time.monotonic() - self._started
        self._n += 1
        self._log.write(self._n, t, event)
        self._metrics.update(t, event)
        account = self._accounts.events.get(type(event))
        if account is not None:
            account(event)
        self._perform_all(self._scheduler.step(event), t)

    # -- actions ------------------------------------------------------------------------------------------------------

    def _perform_all(self, actions: list[act.AnyAction], t: float = 0.0) -> None:
        for action in actions:
            self._n += 1
            self._log.write(self._n, t, action)
            self._metrics.update(t, action)
            if isinstance(action, act.Commit):
                committed = self._accounts.commit(action)
                if committed is not None:
                    self._own_events.append(committed)
            elif isinstance(action, act.Finish):
                self._status = action.status
            elif isinstance(action, act.Fail):
                self._status, self._failure = "failed", action.reason
            elif not isinstance(action, act.Rescale):
                account = self._accounts.actions.get(type(action))
                if account is not None:
                    account(action)
                self._cluster.perform(action)

    @property
    def stop_reason(self) -> str:
        """Reason of the stop request; empty if there was none."""
        return self._stop_reason

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
