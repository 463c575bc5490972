# SPDX-License-Identifier: Apache-2.0
"""A worker of a rehearsal: runs its queue in order, emits batch by batch, and parks when its credit is used up."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.actions import TaskRef
from thresher.scheduler.model import NO_LIMIT, NodeSpec, UnitSpec
from thresher.simulate.profile import Output

if TYPE_CHECKING:
    from thresher.simulate.rehearsal_cluster import RehearsalCluster


class Machine:
    """One machine: its cores, and how many of them are in use."""

    __slots__ = ("alive", "busy_cpus", "cpus", "driver_delay_s", "name", "spec", "starting", "workers")

    def __init__(self, spec: NodeSpec | None) -> None:
        self.spec = spec
        self.name = spec.node if spec is not None else "local"
        self.cpus = spec.cpus if spec is not None else 1e9
        self.alive = True
        self.busy_cpus = 0.0
        self.driver_delay_s = 0.0  # time that the driver took from calls here and that no call has been charged for yet
        self.starting = 0  # workers that are not ready yet
        self.workers: dict[int, RehearsedWorker] = {}

    def run_driver(self, cost_s: float) -> None:
        """Use a core for the driver: without a free one, the next call is delayed as long."""
        taken = self.busy_cpus + 1.0 - self.cpus
        if taken > 0:
            self.driver_delay_s += cost_s * min(1.0, taken)

    def take_driver_delay(self) -> float:
        """Return the delay of the call that starts now, and reset it."""
        driver_delay_s, self.driver_delay_s = self.driver_delay_s, 0.0
        return driver_delay_s


class Call:
    """One running task, or several tasks that end together."""

    __slots__ = (
        "at",
        "at_once",
        "credit",
        "held_s",
        "inside",
        "op",
        "outputs",
        "refs",
        "step_s",
        "stream",
        "total_s",
        "unreported_s",
    )

    def __init__(self, op: int, refs: Sequence[TaskRef], stream: UnitSpec | None = None) -> None:
        self.op = op
        self.refs = refs
        self.stream = stream  # the stream that it reads, if any
        self.credit = refs[0].credit
        self.outputs: tuple[Output, ...] = ()  # outputs of a single task
        self.at = 0  # number of outputs it has emitted
        self.at_once = False  # ends with its last output, whatever its credit
        self.step_s = -1.0  # time before each output; -1: not started
        self.held_s = 0.0  # time after the last output
        self.inside = 1.0  # share of its time inside stages, as workers report it
        self.unreported_s = 0.0  # time inside stages that no event has reported yet
        self.total_s = 0.0


class RehearsedWorker:
    """A worker that runs one item at a time."""

    __slots__ = (
        "alive",
        "began_s",
        "busy",
        "cluster",
        "cpus_held",
        "id",
        "machine",
        "op",
        "parked",
        "queue",
        "up",
        "warm",
    )

    def __init__(self, cluster: RehearsalCluster, worker_id: int, op: int | None, machine: Machine) -> None:
        self.cluster = cluster
        self.id = worker_id
        self.op = op
        self.machine = machine
        self.alive = True
        self.up = False
        self.busy = False
        self.began_s = 0.0
        self.cpus_held = 0.0
        self.queue: deque[tuple[float, Call | act.Commit]] = deque()  # (time it was sent, item)
        self.parked: dict[int, Call] = {}
        self.warm: set[int] = set()  # ops that it has run before

    # -- actions ------------------------------------------------------------------------------------------------------

    def ready(self, start_s: float) -> None:
        """Finish the setup."""
        if not self.alive:
            return
        self.machine.starting -= 1
        self.up = True
        self.cluster.up += 1
        self.cluster.peak_workers = max(self.cluster.peak_workers, self.cluster.up)
        self.cluster.report(ev.WorkerReady(self.id, self.machine.name, start_s))

    def end(self) -> None:
        """Remove the worker with everything it held."""
        if not self.alive:
            return
        self.alive = False
        if self.up:
            self.cluster.up -= 1
        else:
            self.machine.starting -= 1
        if self.busy:
            self.machine.busy_cpus -= self.cpus_held
        self.machine.workers.pop(self.id, None)

    def take(self, action: act.Dispatch, sent_s: float) -> None:
        """Queue tasks: one call for each, or one for all if none of them emits more than once."""
        costs = self.cluster.costs[action.op]
        assert costs is not None, f"no task of op {action.op} was measured"
        root = self.cluster.units.get(action.tasks[0].unit) if action.tasks[0].task < 0 else None
        stream = root if root is not None and root.stream else None
        batched = self.cluster.spec.ops[action.op].batch_size > 1
        if batched or not costs.emits or (len(action.tasks) > 1 and costs.most_outputs <= 1):
            self.queue.append((sent_s, Call(action.op, action.tasks, stream)))
        else:
            self.queue.extend((sent_s, Call(action.op, (ref,), stream)) for ref in action.tasks)
        if not self.busy:
            self._next(self.cluster.now)

    def resume(self, action: act.Resume, sent_s: float) -> None:
        """Queue a parked task."""
        call = self.parked.pop(action.task)
        call.credit = action.credit
        self.queue.append((sent_s, call))
        if not self.busy:
            self._next(self.cluster.now)

    def grant(self, action: act.GrantCredit, sent_s: float) -> None:
        """Add credit to a task; resume it if it is parked."""
        call = self.parked.pop(action.task, None)
        if call is not None:
            call.credit = max(0, call.credit) + action.credit
            self.queue.append((sent_s, call))
            if not self.busy:
                self._next(self.cluster.now)

    def commit(self, action: act.Commit, sent_s: float) -> None:
        """Queue a commit before all tasks."""
        self.queue.appendleft((sent_s, action))
        if not self.busy:
            self._next(self.cluster.now)

    def drop_tasks(self, tasks: Sequence[int]) -> None:
        """Drop parked or queued tasks."""
        gone = set(tasks)
        for task in tasks:
            self.parked.pop(task, None)
        kept: deque[tuple[float, Call | act.Commit]] = deque()
        for sent_s, item in self.queue:
            if isinstance(item, Call):
                item.refs = tuple(ref for ref in item.refs if ref.task not in gone)
                if not item.refs:
                    continue
            kept.append((sent_s, item))
        self.queue = kept

    # -- running ------------------------------------------------------------------------------------------------------

    def _next(self, now: float) -> None:
        """Start the first item whose op has no generator parked here."""
        queue = self.queue
        if not queue:
            return
        place = 0
        if self.parked:
            entered = {call.op for call in self.parked.values()}
            waiting = (n for n, (_, item) in enumerate(queue) if not _enters(item, entered))
            place = next(waiting, -1)
            if place < 0:
                return
        sent_s, item = queue[place]
        del queue[place]
        self.busy = True
        self.began_s = max(now, sent_s) + self.machine.take_driver_delay()
        if isinstance(item, Call):
            self._begin(item)
        else:
            self._use_cpus(1.0)
            held_s = self.cluster.commits.draw(self.cluster.in_bytes(0, item.unit)) * self._slowdown()
            self.cluster.at(self.began_s + held_s, self._committed, item)

    def _use_cpus(self, cpus: float) -> None:
        self.cpus_held = cpus
        self.machine.busy_cpus += cpus

    def _slowdown(self) -> float:
        """Return the factor by which calls take longer because more of them run than there are cores."""
        machine = self.machine
        return machine.busy_cpus / machine.cpus if machine.busy_cpus > machine.cpus else 1.0

    def _begin(self, call: Call) -> None:
        cluster = self.cluster
        spec = cluster.spec.ops[call.op]
        # A call on an accelerator does not load its core.
        self._use_cpus(0.0 if spec.gpus or spec.gpu_memory_bytes else spec.cpus)
        slowdown = self._slowdown()
        if call.step_s >= 0:  # resumed after it was parked
            self._continue_call(call)
            return
        costs = cluster.costs[call.op]
        assert costs is not None
        if len(call.refs) > 1 or not costs.emits:
            made = [costs.draw(cluster.in_bytes(ref.task, ref.unit)) for ref in call.refs]
            cold_s = self._cold_s(call.op, costs.cold_s)
            call.total_s = sum(one.held_s for one in made) * slowdown + cold_s
            call.unreported_s = sum(one.busy_s for one in made) * slowdown + cold_s
            cluster.at(self.began_s + call.total_s, self._all_done, (call, [one.outputs for one in made]))
            return
        drawn = costs.draw(cluster.in_bytes(call.refs[0].task, call.refs[0].unit))
        outputs, cold_s = drawn.outputs, self._cold_s(call.op, costs.cold_s)
        held_s = drawn.held_s * slowdown + cold_s
        call.inside = (drawn.busy_s * slowdown + cold_s) / held_s if held_s else 1.0
        call.at_once = costs.at_once
        call.total_s = held_s
        call.outputs = outputs
        call.step_s = held_s / len(outputs) if outputs else 0.0
        call.held_s = 0.0 if outputs else held_s
        self._continue_call(call)

    def _cold_s(self, op: int, cold_s: float) -> float:
        if op in self.warm:
            return 0.0
        self.warm.add(op)
        return cold_s

    def _continue_call(self, call: Call) -> None:
        """Schedule the next output, or the end."""
        if call.at < len(call.outputs):
            self.cluster.at(self.began_s + call.step_s, self._yielded, call)
        else:
            self.cluster.at(self.began_s + call.held_s, self._done, call)

    def _account_time(self, series: int) -> float:
        """Account the time since `began_s` and return it."""
        cluster = self.cluster
        spent_s = cluster.now - self.began_s
        cluster.timeline.add(series, self.began_s, cluster.now)
        cluster.op_busy_s[series] += spent_s
        self.began_s = cluster.now
        return spent_s

    def _yielded(self, call: Call) -> None:
        if not self.alive:
            return
        cluster = self.cluster
        call.unreported_s += self._account_time(call.op) * call.inside
        out = call.outputs[call.at]
        call.at += 1
        emitted = cluster.emit(call, out, self.machine)
        if call.credit != NO_LIMIT and emitted is not None and out.nbytes > 0:
            # As in real workers: with less than half a batch left, the next one would be mostly debt.
            left = call.credit - out.nbytes
            call.credit = left if left > out.nbytes // 2 else 0
        task, outputs = call.refs[0].task, () if emitted is None else (emitted,)
        if call.at == len(call.outputs) and (call.at_once or call.credit != 0):
            self._finish(call, outputs)
            return
        reported_s, call.unreported_s = call.unreported_s, 0.0
        if call.credit == 0:
            self.parked[task] = call
            self._end_with(ev.TaskParked(task, self.id, outputs, busy_s=reported_s))
            return
        if outputs:
            cluster.report(ev.TaskEmitted(task, self.id, outputs, busy_s=reported_s))
        if self.alive:
            self._continue_call(call)

    def _done(self, call: Call) -> None:
        if self.alive:
            call.unreported_s += self._account_time(call.op) * call.inside
            self._finish(call, ())

    def _finish(self, call: Call, outputs: tuple[ev.Emitted, ...]) -> None:
        cluster = self.cluster
        cluster.op_tasks[call.op] += 1
        if call.total_s > cluster.longest_s[call.op]:
            cluster.longest_s[call.op] = call.total_s
        self._end_with(ev.TaskDone(call.refs[0].task, self.id, outputs, call.unreported_s))

    def _all_done(self, about: tuple[Call, list[tuple[Output, ...]]]) -> None:
        if not self.alive:
            return
        call, made = about
        cluster = self.cluster
        self._account_time(call.op)
        cluster.op_tasks[call.op] += len(call.refs)
        busy_s = call.unreported_s / len(call.refs)
        cluster.longest_s[call.op] = max(cluster.longest_s[call.op], call.total_s / len(call.refs))
        reports = []
        for ref, outputs in zip(call.refs, made, strict=True):
            emitted = (cluster.emit(call, out, self.machine) for out in outputs)
            reports.append(ev.TaskDone(ref.task, self.id, tuple(found for found in emitted if found), busy_s))
        self._end_with(*reports)

    def _committed(self, action: act.Commit) -> None:
        if not self.alive:
            return
        self._account_time(len(self.cluster.spec.ops))
        self._end_with(self.cluster.record(action))

    def _end_with(self, *reports: ev.AnyEvent) -> None:
        """Report events and start the next item. A worker with more items keeps its core during the report."""
        goes_on = bool(self.queue)
        if not goes_on:
            self._free()
        for event in reports:
            self.cluster.report(event)
        if not self.alive:
            return
        if goes_on:
            self._free()
        if not self.busy:
            self._next(self.cluster.now)

    def _free(self) -> None:
        self.busy = False
        self.machine.busy_cpus -= self.cpus_held


def _enters(item: Call | act.Commit, entered: set[int]) -> bool:
    """Return True if the item would start a second task of an op with a parked one."""
    return isinstance(item, Call) and item.step_s < 0 and item.op in entered
