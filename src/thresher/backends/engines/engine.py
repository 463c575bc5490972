# SPDX-License-Identifier: Apache-2.0
"""Executor and cluster for an engine with its own scheduler; another cluster runs what the engine leaves over.

Driver, scheduler, event log, metrics and ledger are the same as in every run. The engine first gets all units that it
can run; each is reported as one whole committed unit. The workers that our scheduler requests are not started until the
engine has ended or failed. Then our scheduler runs the remaining units: those without a commit, files that are split
while they are read, and files that are joined from parts.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from thresher.backends.engines.unit_call import EPOCH, Result, UnitWork
from thresher.backends.processes.local_cluster import LocalCluster
from thresher.backends.resource_options import checked_share
from thresher.core.arguments.options import ErrorBudget, RunOptions, check_count, check_flag, check_positive
from thresher.core.arguments.sizes import counted
from thresher.core.pipeline import Pipeline, RunResult
from thresher.core.planning.plan import Plan
from thresher.core.resources import available_cpus
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.credentials import message_of
from thresher.ledger.records import JOIN_PREFIX
from thresher.runtime.accounts import UnitAccount
from thresher.runtime.cluster import Cluster, MemoryReading
from thresher.runtime.executor import Executor, Limits, run_spec
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.payloads.payload import decode_result, encode
from thresher.runtime.processes.accelerators import Accelerator, declared_accelerators
from thresher.runtime.processes.pool import ProcessPool
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import RunSpec

END_S = 5.0
"""Time limit for an engine to end after it was stopped."""
TEARDOWN_S = 30.0
"""Time limit for an engine to end by itself when no unit is left."""
MOST_AT_ONCE = 1000
"""Maximum number of events returned by one `poll`."""
REASONS_SHOWN = 3


class Engine(Protocol):
    """An engine with its own scheduler."""

    name: str
    """Display name."""

    def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        """Run all units and pass each to `answer` after its last op. Called in a thread of its own, possibly several
        times.

        An exception means that the engine has failed; units without an answer are then run elsewhere.
        """

    def stop(self) -> None:
        """Request an early end of `run`, from another thread. May be called when nothing runs."""


class _Ended:
    """Marks the end of an engine's run in the queue of answers."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class EngineCluster:
    """Runs units on an engine first, and the remaining ones on a fallback cluster."""

    def __init__(self, engine: Engine, make_fallback: Callable[[], Cluster], notify: Callable[[str], None]) -> None:
        """`make_fallback`: returns the fallback cluster, only if units remain. `notify`: prints a message."""
        self._engine = engine
        self._notify = notify
        self._make_fallback = make_fallback
        self._fallback: Cluster | None = None
        self._setup: WorkerSetup | None = None
        self._output: int | None = None
        self._units: dict[str, Unit] = {}
        """Known units that are not committed."""
        self._initial: dict[str, Task] = {}
        self._done: list[str] = []
        self._not_submitted: list[str] = []
        """Units that were not given to the engine yet."""
        self._unanswered: set[str] = set()
        """Units that the engine has not answered."""
        self._failures: dict[str, int] = {}
        """Number of units that came back without a commit, by reason."""
        self._held_workers: dict[int, act.StartWorker] = {}
        """Workers that the scheduler requested and that are not started yet."""
        self._thread: threading.Thread | None = None
        self._answers: queue.SimpleQueue[UnitWork | _Ended] = queue.SimpleQueue()

    # -- the `Cluster` interface ---------------------------------------------------------------------------------------

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Store the plan."""
        self._setup, self._output = setup, output

    def add_units(self, units: Sequence[Unit], tasks: dict[str, Task] | None = None) -> None:
        """Add units, for the engine or for the fallback cluster."""
        if self._fallback is not None:
            self._fallback.add_units(units, tasks)
            return
        self._units.update((unit.id, unit) for unit in units)
        self._initial.update(tasks or {})
        self._not_submitted.extend(
            unit.id for unit in units if not unit.stream and not unit.phase and not unit.id.startswith(JOIN_PREFIX)
        )

    def mark_done(self, unit_ids: Sequence[str]) -> None:
        """Record units as committed."""
        if self._fallback is not None:
            self._fallback.mark_done(unit_ids)
            return
        self._done.extend(unit_ids)
        for unit_id in unit_ids:
            self._units.pop(unit_id, None)
            self._initial.pop(unit_id, None)

    def perform(self, action: act.AnyAction) -> None:
        """Hold back the requested workers until the engine has ended; no other action can occur before."""
        if self._fallback is not None:
            self._fallback.perform(action)
        elif isinstance(action, act.StartWorker):
            self._held_workers[action.worker] = action
        elif isinstance(action, act.StopWorker):
            self._held_workers.pop(action.worker, None)

    def commit(self, action: act.Commit, tally: Tally) -> None:
        """Commit a unit that the fallback cluster has run."""
        assert self._fallback is not None, "an engine commits what it runs"
        self._fallback.commit(action, tally)

    def poll(self, timeout_s: float) -> list[ev.AnyEvent]:
        """Return the events of the engine; after its end, those of the fallback cluster."""
        if self._fallback is None and self._thread is None:
            if self._not_submitted:
                self._start_engine()
            else:
                self._start_fallback()
        if self._fallback is not None:
            return self._fallback.poll(timeout_s)
        events: list[ev.AnyEvent] = []
        with contextlib.suppress(queue.Empty):
            answer = self._answers.get(timeout=timeout_s) if timeout_s else self._answers.get_nowait()
            while not isinstance(answer, _Ended):
                events.extend(self._on_answer(answer))
                if len(events) >= MOST_AT_ONCE:
                    return events
                answer = self._answers.get_nowait()
            self._engine_ended(answer.error)
        return events

    def take_result(self, task: int) -> Any:
        """Take a result from the fallback cluster; results of the engine arrive with their unit."""
        assert self._fallback is not None
        return self._fallback.take_result(task)

    def result_items(self, payload: Any) -> int:
        """Return the number of records in a result of the fallback cluster."""
        assert self._fallback is not None
        return self._fallback.result_items(payload)

    def take_quarantined(self, task: int) -> list[bytes]:
        """Take quarantine lines from the fallback cluster."""
        assert self._fallback is not None
        return self._fallback.take_quarantined(task)

    def decode_result(self, payload: Any) -> Task:
        """Decode a result of the engine or of the fallback cluster."""
        if isinstance(payload, Result):
            return decode_result(payload.payload)
        assert self._fallback is not None
        return self._fallback.decode_result(payload)

    def memory(self) -> MemoryReading:
        """Measure the driver alone while the engine runs (the engine manages its own memory), then the fallback
        cluster."""
        if self._fallback is not None:
            return self._fallback.memory()
        with open("/proc/self/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[1])
        return MemoryReading(pages * os.sysconf("SC_PAGE_SIZE"))

    def close(self, *, kill: bool = False) -> None:
        """End the engine, then the fallback cluster. An engine without remaining units gets time to tear its workers
        down."""
        thread, self._thread = self._thread, None
        if thread is not None:
            if not kill:
                thread.join(TEARDOWN_S)
            self._engine.stop()
            thread.join(END_S)
        if self._fallback is not None:
            self._fallback.close(kill=kill)

    # -- the engine ----------------------------------------------------------------------------------------------------

    def _start_engine(self) -> None:
        assert self._setup is not None, "start() comes first"
        works = [self._work(unit_id) for unit_id in self._not_submitted if unit_id in self._units]
        self._not_submitted = []
        self._unanswered = {work.unit.id for work in works}
        arguments = (self._setup, works)
        self._thread = threading.Thread(target=self._run_engine, args=arguments, name="thresher-engine", daemon=True)
        self._thread.start()

    def _work(self, unit_id: str) -> UnitWork:
        task = self._initial.get(unit_id)
        tasks = [] if task is None else [encode(task, from_main=True).inline()]
        return UnitWork(self._units[unit_id], tasks)

    def _run_engine(self, setup: WorkerSetup, works: list[UnitWork]) -> None:
        error: BaseException | None = None
        try:
            self._engine.run(setup, works, self._answers.put)
        except BaseException as raised:  # an engine may raise anything: its units are run elsewhere
            error = raised
        self._answers.put(_Ended(error))

    def _on_answer(self, work: UnitWork) -> list[ev.AnyEvent]:
        unit_id = work.unit.id
        if unit_id not in self._unanswered:  # an engine may run a unit twice; the first answer counts
            return []
        self._unanswered.discard(unit_id)
        if work.failure:
            self._failures[work.failure] = self._failures.get(work.failure, 0) + 1
            return []
        if work.record is not None:
            return [ev.UnitCommitted(unit_id, EPOCH, work.record, whole=True)]
        results: list[tuple[tuple[int, ...], Any]] = [((place,), result) for place, result in enumerate(work.results)]
        page = UnitAccount(EPOCH, work.tally, work.quarantined, results)
        return [ev.UnitCommitted(unit_id, EPOCH, page, whole=True)]

    def _engine_ended(self, error: BaseException | None) -> None:
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        left = len(self._unanswered) + sum(self._failures.values())
        if error is not None:
            self._notify(f"{self._engine.name} failed: {_first_line(error)}")
        if left:
            self._notify(f"{counted(left, 'unit')} without a commit: run by workers on this machine")
            for reason, n in sorted(self._failures.items(), key=lambda item: -item[1])[:REASONS_SHOWN]:
                self._notify(f"  {n:,}: {reason.splitlines()[0]}")
        self._unanswered.clear()
        self._failures.clear()

    def _start_fallback(self) -> None:
        assert self._setup is not None, "start() comes first"
        fallback = self._make_fallback()
        self._fallback = fallback
        fallback.start(self._setup, self._output)
        fallback.add_units(list(self._units.values()), self._initial)
        fallback.mark_done(self._done)
        for action in self._held_workers.values():
            fallback.perform(action)
        self._held_workers.clear()
        self._units.clear()
        self._initial.clear()


def _first_line(error: BaseException) -> str:
    lines = message_of(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


ENGINE_CANNOT: Mapping[str, str] = MappingProxyType(
    {
        "memory": "the engine decides how much is in flight",
        "gpus": "the engine uses the accelerators of its cluster",
        "standard_stream": "its workers may be on other machines",
        "timeout_s": "the engine cannot end a single call",
        "worker_max_tasks": "the engine manages its workers itself",
        "custom_resources": "the engine uses the resources of its cluster",
        "runtime_env": "units that the engine leaves over run in the driver's own environment",
        "resources.gpu_memory_gb": "the engine counts accelerators, not their memory; ask for a share with gpus",
    }
)
"""Settings that no engine with its own scheduler supports, with the reason."""


class EngineExecutor(Executor):
    """Runs units on an engine; our own scheduler runs the remaining ones on this machine."""

    schedules_itself = True
    runs_here = False
    cannot: ClassVar[Mapping[str, str]] = ENGINE_CANNOT

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Options of every engine: `workers`, `cpu_allocation_percentage`, `logging_interval`, `fusion`,
        `ignore_failures`."""
        self.cpu_share = checked_share(given.get("cpu_allocation_percentage", 0.95))
        self.workers = None if given.get("workers") is None else check_count("workers", given["workers"])
        self.logging_interval_s = check_positive("logging_interval", given.get("logging_interval", 10.0), "seconds")
        self._fusion = check_flag("fusion", given.get("fusion", True))
        self._accelerators: tuple[Accelerator, ...] = ()
        self._ignore_failures = check_flag("ignore_failures", given.get("ignore_failures", False))

    def limits(self) -> Limits:
        """Return the workers of this machine, for units that the engine leaves over."""
        here = max(1, math.floor(available_cpus() * self.cpu_share + 0.5))
        return Limits(here if self.workers is None else min(here, self.workers), fusion=self._fusion)

    def make_engine(self) -> Engine:
        """Return the engine that runs the units."""
        raise TypeError(f"{type(self).__name__} must define make_engine()")

    def make_cluster(self, limits: Limits) -> Cluster:
        """Return the engine, with processes on this machine as the fallback."""
        return EngineCluster(self.make_engine(), lambda: self.make_fallback(limits), self._tell)

    def make_fallback(self, limits: Limits) -> Cluster:
        """Return the fallback cluster for units that the engine leaves over."""
        return LocalCluster(ProcessPool(), limits, self._accelerators)

    def run_spec(self, plan: Plan) -> RunSpec:
        """Return the plan on this machine, for units that the engine leaves over. All resources that its stages request
        are granted here, since they are checked against the engine's cluster."""
        needs = [op.resources for op in plan.ops]
        self._accelerators = declared_accelerators(math.ceil(max(need.gpus for need in needs)))
        custom: dict[str, float] = {}
        for need in needs:
            for name, amount in need.custom.items():
                custom[name] = custom.get(name, 0.0) + amount
        return run_spec(plan, replace(self.limits(), custom=custom), self._accelerators)

    def _tell(self, text: str) -> None:
        if self.notify is not None:
            self.notify(text)

    def execute(self, pipeline: Pipeline, options: RunOptions) -> RunResult:
        """Run the pipeline; with `ignore_failures` any number of records may fail."""
        if self._ignore_failures:
            options = replace(options, max_errors=ErrorBudget(share=1.0))
        return super().execute(pipeline, options)
