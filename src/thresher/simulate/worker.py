# SPDX-License-Identifier: Apache-2.0
"""A simulated worker: runs its queue in order and parks generators that have used up their credit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from thresher.scheduler import actions, events
from thresher.scheduler.actions import TaskRef
from thresher.scheduler.events import AnyEvent, Emitted
from thresher.scheduler.model import NO_LIMIT
from thresher.simulate.behaviour import Path, RuleBroken

if TYPE_CHECKING:
    from thresher.simulate.cluster import SimulatedCluster


class Call:
    """A running task: its remaining outputs and its credit."""

    def __init__(self, op: int, ref: TaskRef, path: Path, outputs: Iterator[tuple[str, Path, int, bool]]) -> None:
        self.op = op
        self.ref = ref
        self.path = path
        self.outputs = outputs  # (unit, path, size, closes); size -1: an entry without payload
        self.credit = ref.credit
        self.limited = ref.credit != NO_LIMIT
        self.steps = 0
        self.emitted = 0
        self.busy_s = 0.0

    def take_busy_s(self) -> float:
        """Return the run time since the last report."""
        busy_s, self.busy_s = self.busy_s, 0.0
        return busy_s


Item = Call | actions.Commit | list[tuple[int, TaskRef]]


class SimulatedWorker:
    """A worker that runs one item at a time in virtual time."""

    def __init__(self, cluster: SimulatedCluster, action: actions.StartWorker) -> None:
        self.cluster = cluster
        self.id = action.worker
        self.op = action.op
        self.node = action.node
        self.devices = action.devices
        self.placed = True
        self.born_s = cluster.now
        self.private_bytes = 0
        self.alive = True
        self.up = False
        self.busy = False
        self.queue: list[Item] = []
        self.parked: dict[int, Call] = {}
        self.sinks: dict[str, tuple[int, list[Path]]] = {}  # unit -> (epoch, tasks that its sink received)
        self.busy_s = 0.0

    def report(self, event: AnyEvent) -> None:
        """Send an event; it arrives after all earlier ones, even if the worker has crashed in the meantime."""
        self.cluster.after(self.cluster.behaviour.latency_s, lambda: self.cluster.report(event))

    def ready(self) -> None:
        """Finish the setup."""
        if self.alive:
            self.up = True
            self.report(events.WorkerReady(self.id, setup_s=self.cluster.now - self.born_s))

    def setup_failed(self) -> None:
        """Fail the setup."""
        if self.alive:
            self.end()
            self.report(events.WorkerSetupFailed(self.id, "no such model"))

    def end(self) -> None:
        """End the worker and free its place on the node."""
        self.alive = False
        self.free_resources()

    def free_resources(self) -> None:
        """Free its resources on the node, once."""
        if self.placed:
            self.placed = False
            self.cluster.resources.free(self.op, self.node, self.devices)

    def crash(self) -> None:
        """Crash, with everything it held."""
        self.end()
        self.report(events.WorkerLost(self.id, "killed"))

    def take(self, action: actions.Dispatch) -> None:
        """Queue tasks in calls of `batch_size`."""
        spec = self.cluster.spec.ops[action.op]
        self.check_ops(action)
        refs = [(action.op, ref) for ref in action.tasks]
        self.queue += [refs[at : at + spec.batch_size] for at in range(0, len(refs), spec.batch_size)]
        self.proceed()

    def check_ops(self, action: actions.Dispatch) -> None:
        """Raise RuleBroken if the worker is not up or was not started for the op."""
        wanted = action.op if self.cluster.spec.ops[action.op].has_own_workers else None
        if not self.up or wanted != self.op:
            raise RuleBroken(f"worker {self.id} (op {self.op}, up {self.up}) gets tasks of op {action.op}")

    def resume(self, task: int, credit: int) -> None:
        """Queue a parked task."""
        call = self.parked.pop(task, None)
        if call is None:
            raise RuleBroken(f"task {task} is resumed on worker {self.id}, but is not parked there")
        call.credit = credit
        call.limited = credit != NO_LIMIT
        self.queue.append(call)
        self.proceed()

    def commit(self, action: actions.Commit) -> None:
        """Queue a commit."""
        self.queue.append(action)
        self.proceed()

    def drop_tasks(self, action: actions.Requeue) -> None:
        """Drop parked or queued tasks, and the sink state of old epochs."""
        for task in action.tasks:
            if self.parked.pop(task, None) is None and not self._drop_queued(task):
                raise RuleBroken(f"task {task} is taken back from worker {self.id}, which does not have it")
        if action.unit and self.sinks.get(action.unit, (action.epoch,))[0] < action.epoch:
            del self.sinks[action.unit]
        self.proceed()

    def _drop_queued(self, task: int) -> bool:
        for item in self.queue:
            if isinstance(item, list):
                for at, (_, ref) in enumerate(item):
                    if ref.task == task:
                        del item[at]
                        if not item:
                            self.queue.remove(item)
                        return True
        return False

    def proceed(self) -> None:
        """Start the next item of the queue whose op has no unfinished generator here."""
        if self.busy or not self.alive:
            return
        entered = {call.op for call in self.parked.values()} | {
            item.op for item in self.queue if isinstance(item, Call)
        }
        for at, item in enumerate(self.queue):
            if isinstance(item, list) and item[0][0] in entered:
                continue
            del self.queue[at]
            self.busy = True
            self._begin(item)
            return

    def _begin(self, item: Item) -> None:
        if isinstance(item, actions.Commit):
            self._spend(self.cluster.behaviour.commit_s, lambda: self._commit_now(item))
        elif isinstance(item, Call):
            self._step(item)
        elif self.cluster.behaviour.ops[item[0][0]].generator and len(item) == 1:
            self._step(self._call(*item[0]))
        else:
            calls = [self._call(op, ref) for op, ref in item]
            duration_s = sum(self.cluster.behaviour.duration_s(c.op, c.ref.unit, c.path, 0) for c in calls)
            self._spend(duration_s, lambda: self._finish_all(calls, duration_s / len(calls)))

    def _spend(self, duration_s: float, then: Callable[[], None]) -> None:
        def later() -> None:
            if self.alive:
                self.busy_s += duration_s
                then()

        self.cluster.after(duration_s, later)

    def _call(self, op: int, ref: TaskRef) -> Call:
        payload = self.cluster.payloads.get(ref.task)
        if payload is None and ref.task > 0:
            raise RuleBroken(f"task {ref.task} begins on worker {self.id} after its payload was released")
        path = payload.path if payload else ()
        return Call(op, ref, path, iter(self._outputs(op, ref, path)))

    def _outputs(self, op: int, ref: TaskRef, path: Path) -> list[tuple[str, Path, int, bool]]:
        """Return the outputs of a task: (unit, path, size, closes). A stream skips committed units."""
        behaviour, spec = self.cluster.behaviour, self.cluster.specs.get(ref.unit)
        if self.cluster.spec.ops[op].sink:
            return []
        if ref.task > 0 or spec is None or not spec.stream:
            return [("", (*path, n), size, False) for n, size in enumerate(behaviour.sizes(op, ref.unit, path))]
        outputs: list[tuple[str, Path, int, bool]] = []
        for unit in behaviour.units_of_stream(ref.unit):
            if unit in self.cluster.committed:
                continue
            sizes = behaviour.sizes(op, unit, ())
            late = behaviour.late_close or not sizes
            outputs += [(unit, (n,), size, not late and n == len(sizes) - 1) for n, size in enumerate(sizes)]
            if late:
                outputs.append((unit, (), -1, True))
        return outputs

    def _emit(self, call: Call, output: tuple[str, Path, int, bool]) -> Emitted:
        unit, path, size, closes = output
        call.emitted += 1
        order = (0, 0)
        if unit:
            order = (self.cluster.specs[call.ref.unit].order[0], int(unit.rsplit("-", 1)[1]))
        if size < 0:
            return Emitted(0, 0, unit, order, closes)
        call.credit -= size
        task = self.cluster.new_payload(unit or call.ref.unit, path, size)
        return Emitted(task, size, unit, order, closes)

    def _fails(self, call: Call) -> bool:
        how = self.cluster.behaviour.ops[call.op]
        key = (call.op, call.ref.unit, call.path)
        failures = self.cluster.failed_tasks.get(key, 0)
        if failures >= how.failures or call.emitted < how.fail_after:
            return False
        self.cluster.failed_tasks[key] = failures + 1
        self.report(events.TaskFailed(call.ref.task, self.id, "ValueError", "bad luck"))
        return True

    def _finish_all(self, calls: list[Call], busy_s: float) -> None:
        """Finish a call that emits everything at its end."""
        for call in calls:
            if self._fails(call):
                continue
            outputs = tuple(self._emit(call, output) for output in call.outputs)
            self._write(call)
            results = self._deliver(call, outputs)
            self.report(events.TaskDone(call.ref.task, self.id, results, busy_s))
            self._leak(call.op)
        self._free()

    def _leak(self, op: int) -> None:
        """Leak some memory after a task, and report if it is above the limit."""
        behaviour = self.cluster.behaviour
        self.private_bytes += behaviour.ops[op].leak_bytes
        if 0 < behaviour.worker_limit_bytes < self.private_bytes:
            self.report(events.WorkerMemory(self.id, self.private_bytes, behaviour.worker_limit_bytes))

    def _deliver(self, call: Call, outputs: tuple[Emitted, ...]) -> tuple[Emitted, ...]:
        """Remove the payloads of a last op: its outputs are results for the driver."""
        if self.cluster.spec.ops[call.op].next is None:
            for output in outputs:
                self.cluster.live_bytes -= self.cluster.payloads.pop(output.task).nbytes
        return outputs

    def _write(self, call: Call) -> None:
        """Add a task to its sink."""
        if not self.cluster.spec.ops[call.op].sink:
            return
        unit, epoch = call.ref.unit, call.ref.epoch
        if unit not in self.sinks or self.sinks[unit][0] != epoch:
            self.sinks[unit] = (epoch, [])
        self.sinks[unit][1].append(call.path)

    def _step(self, call: Call) -> None:
        """Run a generator to its next output or its end."""
        duration_s = self.cluster.behaviour.duration_s(call.op, call.ref.unit, call.path, call.steps)
        call.steps += 1
        call.busy_s += duration_s
        self._spend(duration_s, lambda: self._yielded(call))

    def _yielded(self, call: Call) -> None:
        if self._fails(call):
            self._free()
            return
        output = next(call.outputs, None)
        if output is None:
            self._write(call)
            self.report(events.TaskDone(call.ref.task, self.id, (), call.take_busy_s()))
            self._leak(call.op)
            self._free()
            return
        emitted = self._deliver(call, (self._emit(call, output),))
        if call.limited and call.credit <= 0:
            self.parked[call.ref.task] = call
            self.report(events.TaskParked(call.ref.task, self.id, emitted, busy_s=call.take_busy_s()))
            self._free()
        else:
            self.report(events.TaskEmitted(call.ref.task, self.id, emitted, busy_s=call.take_busy_s()))
            self._step(call)

    def _commit_now(self, action: actions.Commit) -> None:
        epoch, seen = self.sinks.pop(action.unit, (action.epoch, []))
        if epoch != action.epoch:
            raise RuleBroken(f"unit {action.unit} is committed at epoch {action.epoch}, its sink has epoch {epoch}")
        self.report(self.cluster.commit(action, seen))
        self._free()

    def _free(self) -> None:
        self.busy = False
        self.proceed()
