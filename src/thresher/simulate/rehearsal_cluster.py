# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time that follows a profile: built for speed, a million tasks in a minute or two.

The driver is part of it: it processes one event after another, each takes some time, and its actions reach workers
after that time. Machines have cores: if more calls run than there are cores, calls take longer, and on the first
machine the driver needs a core too.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.actions import AnyAction
from thresher.scheduler.events import AnyEvent, Emitted
from thresher.scheduler.model import RunSpec, UnitSpec
from thresher.scheduler.step import Scheduler
from thresher.simulate.costs import CommitCosts, OpCosts
from thresher.simulate.profile import DRIVER_EVENT_S, Output, RunProfile, op_key
from thresher.simulate.rehearsal_worker import Call, Machine, RehearsedWorker
from thresher.simulate.timeline import Timeline

LISTED_AT_ONCE = 1000
"""Number of units in one UnitsListed."""


class RehearsalCluster:
    """Runs one scheduler to its end. `now` is virtual time."""

    def __init__(self, spec: RunSpec, units: list[UnitSpec], profile: RunProfile, seed: int = 0) -> None:
        random = Random(seed)
        self.spec = spec
        self.scheduler = Scheduler(spec)
        self.profile = profile
        self.units = {unit.unit: unit for unit in units}
        self.costs = [self._costs_of(place, random) for place in range(len(spec.ops))]
        self.commits = CommitCosts(profile.commits, random)
        self.now = 0.0
        self.driver_free_s = 0.0
        self.driver_busy_s = 0.0
        self.events = 0
        self.workers: dict[int, RehearsedWorker] = {}
        self.machines = {node.node: Machine(node) for node in spec.nodes} or {"local": Machine(None)}
        self._names = list(self.machines)
        self._driver_machine = self.machines[self._names[0]]  # the machine that runs the driver
        # With as many workers per machine as in the profile, its costs already include the load of the driver.
        self._driver_adds_load = spec.shared_workers > profile.workers * len(self.machines)
        self.payloads: dict[int, tuple[int, str]] = {}  # task -> size of its payload, machine that holds it
        self.next_task = 1
        self.live_bytes = 0
        self.peak_bytes = 0
        self.peak_workers = 0
        self.up = 0
        self.committed: set[str] = set()
        self.timeline = Timeline(len(spec.ops) + 1)
        self.op_busy_s = [0.0] * (len(spec.ops) + 1)  # by op; the last entry is for commits
        self.op_tasks = [0] * (len(spec.ops) + 1)
        self.longest_s = [0.0] * len(spec.ops)
        self.own_workers = [0] * len(spec.ops)  # peak number of dedicated workers, by op
        self.ended: str | None = None
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._sequence = 0

    def _costs_of(self, place: int, random: Random) -> OpCosts | None:
        op = self.spec.ops[place]
        found = self.profile.ops.get(op_key(op))
        return None if found is None else OpCosts(found, op.source, op.next is not None, random)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def at(self, when_s: float, what: Callable[[Any], None], about: Any) -> None:
        """Call `what(about)` at a time."""
        self._sequence += 1
        heappush(self._heap, (when_s, self._sequence, what, about))

    def run(self, most_events: int) -> None:
        """Run to the end, or until `most_events`."""
        for action in self.scheduler.start():
            self._perform(action)
        heap = self._heap
        while self.ended is None:
            if not heap:
                self.ended = "failed: nothing happens any more"
                return
            if self.events > most_events:
                self.ended = f"failed: no end after {most_events:,} events"
                return
            self.now, _, what, about = heappop(heap)
            what(about)

    def list_units(self, units: list[UnitSpec]) -> None:
        """Schedule the listing of the units, some at a time."""
        last = max(0, len(units) - 1) // LISTED_AT_ONCE
        for place in range(last + 1):
            part = tuple(units[place * LISTED_AT_ONCE : (place + 1) * LISTED_AT_ONCE])
            when_s = self.profile.listing_s + place * LISTED_AT_ONCE * DRIVER_EVENT_S / 10
            self.at(when_s, self.report, ev.UnitsListed(part, more=place < last))

    def tick(self, interval_s: float) -> None:
        """Report a Tick, and again after each interval."""
        self.report(ev.Tick(self.now))
        self.at(self.now + interval_s, self.tick, interval_s)

    def report(self, event: AnyEvent) -> None:
        """Let the driver process an event after all earlier ones, and perform its actions."""
        cost_s = self.profile.driver_event_s
        self.driver_free_s = max(self.now, self.driver_free_s) + cost_s
        self.driver_busy_s += cost_s
        if self._driver_adds_load:
            self._driver_machine.run_driver(cost_s)
        self.events += 1
        for action in self.scheduler.step(event):
            self._perform(action)

    def _perform(self, action: AnyAction) -> None:
        _PERFORM[type(action)](self, action)

    # -- actions ------------------------------------------------------------------------------------------------------

    def _start_worker(self, action: act.StartWorker) -> None:
        name = action.node if action.node in self.machines else self._names[action.worker % len(self._names)]
        machine = self.machines[name]
        worker = RehearsedWorker(self, action.worker, action.op, machine)
        self.workers[action.worker] = worker
        machine.workers[action.worker] = worker
        start_s = self.profile.start_s
        if action.op is not None:
            own = self.profile.ops.get(op_key(self.spec.ops[action.op]))
            start_s = own.start_s if own is not None and own.start_s is not None else start_s
            count = sum(1 for other in self.workers.values() if other.op == action.op and other.alive)
            self.own_workers[action.op] = max(self.own_workers[action.op], count)
        start_s += machine.starting * self.profile.start_gap_s
        machine.starting += 1
        self.at(max(self.now, self.driver_free_s) + start_s, worker.ready, start_s)

    def _stop_worker(self, action: act.StopWorker) -> None:
        worker = self.workers.pop(action.worker, None)
        if worker is not None:
            worker.end()

    def _dispatch(self, action: act.Dispatch) -> None:
        worker = self.workers.get(action.worker)
        if worker is not None:
            worker.take(action, self.driver_free_s)

    def _resume(self, action: act.Resume) -> None:
        worker = self.workers.get(action.worker)
        if worker is not None:
            worker.resume(action, self.driver_free_s)

    def _grant(self, action: act.GrantCredit) -> None:
        worker = self.workers.get(action.worker)
        if worker is not None:
            worker.grant(action, self.driver_free_s)

    def _requeue(self, action: act.Requeue) -> None:
        worker = self.workers.get(action.worker)
        if worker is not None:
            worker.drop_tasks(action.tasks)

    def _commit(self, action: act.Commit) -> None:
        if action.worker is None:
            self.at(self.driver_free_s, lambda _: self.report(self.record(action)), None)
            return
        worker = self.workers.get(action.worker)
        if worker is not None:
            worker.commit(action, self.driver_free_s)

    def record(self, action: act.Commit) -> ev.UnitCommitted:
        """Record the commit of a unit and return the event."""
        self.committed.add(action.unit)
        self.op_tasks[-1] += 1
        self.units.pop(action.unit, None)
        return ev.UnitCommitted(action.unit, action.epoch)

    def _release(self, action: act.Release) -> None:
        for task in action.tasks:
            self.live_bytes -= self.payloads.pop(task, (0, ""))[0]

    def _end(self, action: act.Finish | act.Fail) -> None:
        self.now = max(self.now, self.driver_free_s)
        self.ended = action.status if isinstance(action, act.Finish) else f"failed: {action.reason}"

    # -- calls by workers ---------------------------------------------------------------------------------------------

    def in_bytes(self, task: int, unit: str) -> int:
        """Return the input size of a task."""
        if task > 0:
            return self.payloads.get(task, (0, ""))[0]
        found = self.units.get(unit)
        return found.nbytes if found is not None else 0

    def emit(self, call: Call, out: Output, machine: Machine) -> Emitted | None:
        """Store the payload of an output; return None if its unit is committed."""
        unit, order = "", (0, 0)
        if call.stream is not None:
            unit, order = f"{call.stream.unit}-{out.unit:06d}", (call.stream.order[0], out.unit)
            if unit in self.committed:
                return None
        if out.nbytes < 0:
            return Emitted(0, 0, unit, order, out.closes)
        task = self.next_task
        self.next_task += 1
        if self.spec.ops[call.op].next is not None:
            self.payloads[task] = (out.nbytes, machine.name)
            self.live_bytes += out.nbytes
            if self.live_bytes > self.peak_bytes:
                self.peak_bytes = self.live_bytes
            self.timeline.reach(self.now, self.live_bytes)
        return Emitted(task, out.nbytes, unit, order, out.closes)

    # -- machines -----------------------------------------------------------------------------------------------------

    def lose(self, name: str) -> None:
        """Remove a machine with its workers and payloads."""
        machine = self.machines[name]
        machine.alive = False
        gone = list(machine.workers.values())
        for worker in gone:
            worker.end()
            self.workers.pop(worker.id, None)
        self.report(ev.NodeLost(name, "a failure of the rehearsal"))
        for worker in gone:
            if not worker.up:
                self.report(ev.WorkerLost(worker.id, f"{name} was lost"))
        for task in [task for task, (_, where) in self.payloads.items() if where == name]:
            self.report(ev.PayloadLost(task))

    def join(self, name: str) -> None:
        """Bring a machine back."""
        machine = self.machines[name]
        machine.alive = True
        self.report(ev.NodeJoined(name, machine.spec))


_PERFORM: dict[type, Callable[[RehearsalCluster, Any], None]] = {
    act.StartWorker: RehearsalCluster._start_worker,
    act.StopWorker: RehearsalCluster._stop_worker,
    act.Dispatch: RehearsalCluster._dispatch,
    act.Resume: RehearsalCluster._resume,
    act.GrantCredit: RehearsalCluster._grant,
    act.Requeue: RehearsalCluster._requeue,
    act.Release: RehearsalCluster._release,
    act.Commit: RehearsalCluster._commit,
    act.Finish: RehearsalCluster._end,
    act.Fail: RehearsalCluster._end,
}
