# SPDX-License-Identifier: Apache-2.0
"""Run a whole pipeline in virtual time: the scheduler with a simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass

from thresher.observe.event_log import encode_line, encode_start
from thresher.scheduler.events import AnyEvent, UnitsListed
from thresher.scheduler.invariants import check
from thresher.scheduler.model import RunSpec, UnitSpec
from thresher.scheduler.step import Scheduler
from thresher.simulate.behaviour import Behaviour, Path
from thresher.simulate.cluster import SimulatedCluster


class Deadlock(AssertionError):
    """No further event will come, but the run has not ended."""


@dataclass(frozen=True)
class SimResult:
    """Result of a simulated run."""

    status: str  # "finished", "stopped" or "failed: reason"
    makespan_s: float  # virtual time
    events: int  # events that the scheduler processed
    max_used_bytes: int  # peak bytes in flight
    committed: dict[str, list[Path]]  # unit -> tasks that its sink received, in order
    commit_count: dict[str, int]  # unit -> number of its commits
    leaked: int  # payloads that were never released, although no task reads them
    log: tuple[bytes, ...]  # lines of the event log, if requested
    idle_s: float  # virtual time that workers were up and idle
    commit_times: tuple[float, ...] = ()  # times of commits
    numbers: tuple[tuple[float, int | None, int], ...] = ()  # (time, op, +1 or -1): workers started and stopped

    def rate(self, begin_s: float, end_s: float) -> float:
        """Return the units committed per second between two times."""
        return sum(1 for t in self.commit_times if begin_s < t <= end_s) / (end_s - begin_s)

    def workers(self, op: int | None, at_s: float) -> int:
        """Return the number of workers of an op (None: shared ones) at a time."""
        return sum(change for t, of, change in self.numbers if of == op and t <= at_s)


def simulate(
    spec: RunSpec,
    units: list[UnitSpec],
    behaviour: Behaviour,
    *,
    checked: bool = True,
    logged: bool = False,
    max_events: int = 2_000_000,
) -> SimResult:
    """Run the units to the end. `checked` checks all invariants after every step; `logged` keeps the event log."""
    scheduler = Scheduler(spec)
    cluster = SimulatedCluster(spec, units, behaviour)
    log: list[bytes] = [encode_start(spec)] if logged else []
    count = 0

    def feed(event: AnyEvent | None) -> None:
        if event is not None and logged:
            log.append(encode_line(len(log), cluster.now, event))
        for action in scheduler.start() if event is None else scheduler.step(event):
            if logged:
                log.append(encode_line(len(log), cluster.now, action))
            cluster.perform(action)
        if checked:
            check(scheduler)

    feed(None)
    half = len(units) // 2
    feed(UnitsListed(tuple(units[:half]), more=True))
    feed(UnitsListed(tuple(units[half:])))
    while cluster.ended is None:
        found = cluster.poll()
        if not found:
            raise Deadlock(f"no further event will come after {count} events: {describe(scheduler)}")
        for event in found:
            feed(event)
        count += len(found)
        if count > max_events:
            raise Deadlock(f"no end after {count} events: {describe(scheduler)}")
    up_s = cluster.now * spec.shared_workers
    return SimResult(
        status=cluster.ended,
        makespan_s=cluster.now,
        events=count,
        max_used_bytes=cluster.max_bytes,
        committed=cluster.committed,
        commit_count=cluster.commit_count,
        leaked=sum(1 for task in cluster.payloads if task not in scheduler.state.tasks),
        log=tuple(log),
        idle_s=up_s - sum(worker.busy_s for worker in cluster.workers.values()),
        commit_times=tuple(cluster.commit_times),
        numbers=tuple(cluster.numbers),
    )


def describe(scheduler: Scheduler) -> str:
    """Describe the unfinished tasks and units, for a message."""
    state = scheduler.state
    tasks = [task.describe() for task in list(state.tasks.values())[:20]]
    units = [f"{unit.name} closed={unit.closed} run={unit.run}/{unit.accept_run}" for unit in state.units.values()][:20]
    head = f"{state.unfinished} units, {state.running} running, {state.commits} commits, used {state.used}"
    return "\n  ".join([head, *tasks, *units])


def expected_at_sink(spec: RunSpec, unit: str, entry: int, behaviour: Behaviour) -> list[Path]:
    """Return the paths that a unit's sink must receive, in order: every path that reaches it, depth first."""

    def below(op: int | None, path: Path) -> list[Path]:
        if op is None:
            return []
        if spec.ops[op].sink:
            return [path]
        return [p for n, _ in enumerate(behaviour.sizes(op, unit, path)) for p in below(spec.ops[op].next, (*path, n))]

    return below(entry, ())
