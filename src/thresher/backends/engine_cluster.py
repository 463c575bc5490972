# SPDX-License-Identifier: Apache-2.0
"""An engine that schedules itself, behind the same seam as every other cluster.

The driver, its scheduler, log, metrics and ledger are those of every run. First the engine is given all units that it
can run; each one comes back whole, run and committed, and is told as such. Meanwhile the workers that the scheduler
asks for are not started, so it has nothing to give work to. When the engine has ended, or has given up, they are: our
own scheduler then runs what is left. Those are units without a commit, files that are cut while they are read, and
files that are joined from parts.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from thresher.backends.unit_call import EPOCH, Result, UnitWork
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.ledger.place import JOIN_PREFIX
from thresher.runtime.cluster import Cluster, MemoryReading
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.payload import decode_inline, encode
from thresher.runtime.unit_book import UnitPage
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev

END_S = 5.0
"""How long an engine that is asked to end may take."""
TEARDOWN_S = 30.0
"""How long an engine may take to end when there is nothing left to do."""
MOST_AT_ONCE = 1000
"""Answers that are taken before the driver looks around."""
REASONS_SHOWN = 3


class Engine(Protocol):
    """Runs units in its own way."""

    name: str
    """For people."""

    def run(self, setup: WorkerSetup, works: list[UnitWork], answer: Callable[[UnitWork], None]) -> None:
        """Run all units; give each to `answer` behind its last op. Called in a thread of its own, perhaps repeatedly.

        What is raised says why it gave up; units without an answer are then run elsewhere.
        """

    def stop(self) -> None:
        """End `run` soon, from another thread. May be called when nothing runs."""


class _Ended:
    """The last answer of an engine."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class EngineCluster:
    """Gives units to an engine first, and what is left to another cluster."""

    def __init__(self, engine: Engine, make_rest: Callable[[], Cluster], tell: Callable[[str], None]) -> None:
        """`make_rest`: the cluster that runs what is left; it is made only if something is. `tell`: to people."""
        self._engine = engine
        self._tell = tell
        self._make_rest = make_rest
        self._rest: Cluster | None = None
        self._setup: WorkerSetup | None = None
        self._output: int | None = None
        self._units: dict[str, Unit] = {}
        """Known and not committed."""
        self._initial: dict[str, Task] = {}
        self._done: list[str] = []
        self._fresh: list[str] = []
        """Units that no engine was given yet."""
        self._given: set[str] = set()
        """Units that the engine has not answered."""
        self._failures: dict[str, int] = {}
        """Why units came back without a commit, and how many."""
        self._held: dict[int, act.StartWorker] = {}
        """Workers that the scheduler asked for and that are not started."""
        self._thread: threading.Thread | None = None
        self._answers: queue.SimpleQueue[UnitWork | _Ended] = queue.SimpleQueue()

    # -- what the driver asks -----------------------------------------------------------------------------------------

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Remember the plan."""
        self._setup, self._output = setup, output

    def add_units(self, units: Sequence[Unit], tasks: dict[str, Task] | None = None) -> None:
        """Units for the engine, or for the rest."""
        if self._rest is not None:
            self._rest.add_units(units, tasks)
            return
        self._units.update((unit.id, unit) for unit in units)
        self._initial.update(tasks or {})
        self._fresh.extend(unit.id for unit in units if not unit.stream and not unit.id.startswith(JOIN_PREFIX))

    def mark_done(self, unit_ids: Sequence[str]) -> None:
        """Remember what is committed."""
        if self._rest is not None:
            self._rest.mark_done(unit_ids)
            return
        self._done.extend(unit_ids)
        for unit_id in unit_ids:
            self._units.pop(unit_id, None)
            self._initial.pop(unit_id, None)

    def perform(self, action: act.AnyAction) -> None:
        """Workers wait until the engine has ended; before that nothing else can be asked for."""
        if self._rest is not None:
            self._rest.perform(action)
        elif isinstance(action, act.StartWorker):
            self._held[action.worker] = action
        elif isinstance(action, act.StopWorker):
            self._held.pop(action.worker, None)

    def commit(self, action: act.Commit, tally: Tally) -> None:
        """Of a unit that the rest has run."""
        assert self._rest is not None, "an engine commits what it runs"
        self._rest.commit(action, tally)

    def poll(self, timeout_s: float) -> list[ev.AnyEvent]:
        """What the engine has done; after its end what the rest does."""
        if self._rest is None and self._thread is None:
            if self._fresh:
                self._start_engine()
            else:
                self._open_rest()
        if self._rest is not None:
            return self._rest.poll(timeout_s)
        events: list[ev.AnyEvent] = []
        with contextlib.suppress(queue.Empty):
            answer = self._answers.get(timeout=timeout_s) if timeout_s else self._answers.get_nowait()
            while not isinstance(answer, _Ended):
                events.extend(self._heard(answer))
                if len(events) >= MOST_AT_ONCE:
                    return events
                answer = self._answers.get_nowait()
            self._engine_ended(answer.error)
        return events

    def take_result(self, task: int) -> Any:
        """Of the rest; results of the engine come with their unit."""
        assert self._rest is not None
        return self._rest.take_result(task)

    def result_items(self, payload: Any) -> int:
        """Records in a result of the rest."""
        assert self._rest is not None
        return self._rest.result_items(payload)

    def take_quarantined(self, task: int) -> list[bytes]:
        """Of the rest."""
        assert self._rest is not None
        return self._rest.take_quarantined(task)

    def decode_result(self, payload: Any) -> Task:
        """Of the engine, or of the rest."""
        if isinstance(payload, Result):
            return decode_inline(payload.payload)
        assert self._rest is not None
        return self._rest.decode_result(payload)

    def memory(self) -> MemoryReading:
        """Of the driver while the engine runs (what others hold is the engine's affair), then as the rest says."""
        if self._rest is not None:
            return self._rest.memory()
        with open("/proc/self/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[1])
        return MemoryReading(pages * os.sysconf("SC_PAGE_SIZE"))

    def close(self, *, kill: bool = False) -> None:
        """End the engine, then the rest. An engine that has given all its answers may still tear its workers down."""
        thread, self._thread = self._thread, None
        if thread is not None:
            if not kill:
                thread.join(TEARDOWN_S)
            self._engine.stop()
            thread.join(END_S)
        if self._rest is not None:
            self._rest.close(kill=kill)

    # -- the engine ---------------------------------------------------------------------------------------------------

    def _start_engine(self) -> None:
        assert self._setup is not None, "start() comes first"
        works = [self._work(unit_id) for unit_id in self._fresh if unit_id in self._units]
        self._fresh = []
        self._given = {work.unit.id for work in works}
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

    def _heard(self, work: UnitWork) -> list[ev.AnyEvent]:
        unit_id = work.unit.id
        if unit_id not in self._given:  # an engine may run a unit twice; the first answer counts
            return []
        self._given.discard(unit_id)
        if work.failure:
            self._failures[work.failure] = self._failures.get(work.failure, 0) + 1
            return []
        if work.record is not None:
            return [ev.UnitCommitted(unit_id, EPOCH, work.record, whole=True)]
        results: list[tuple[tuple[int, ...], Any]] = [((place,), result) for place, result in enumerate(work.results)]
        page = UnitPage(EPOCH, work.tally, work.quarantined, results)
        return [ev.UnitCommitted(unit_id, EPOCH, page, whole=True)]

    def _engine_ended(self, error: BaseException | None) -> None:
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        left = len(self._given) + sum(self._failures.values())
        if error is not None:
            self._tell(f"{self._engine.name} gave up: {_first_line(error)}")
        if left:
            self._tell(f"{left:,} units without a commit go to workers on this machine")
            for reason, n in sorted(self._failures.items(), key=lambda item: -item[1])[:REASONS_SHOWN]:
                self._tell(f"  {n:,}: {reason.splitlines()[0]}")
        self._given.clear()
        self._failures.clear()

    def _open_rest(self) -> None:
        assert self._setup is not None, "start() comes first"
        rest = self._make_rest()
        self._rest = rest
        rest.start(self._setup, self._output)
        rest.add_units(list(self._units.values()), self._initial)
        rest.mark_done(self._done)
        for action in self._held.values():
            rest.perform(action)
        self._held.clear()
        self._units.clear()
        self._initial.clear()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
