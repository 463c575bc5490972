# SPDX-License-Identifier: Apache-2.0
"""Random scenarios for tests of the scheduler: runs whose durations, sizes and failures are drawn from ranges.

The outputs of a task depend on its lineage and the seed, not on time or worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from zlib import crc32

from thresher.observe.event_log import encode_line, encode_start
from thresher.scheduler import events as ev
from thresher.scheduler.actions import AnyAction, StartWorker, StopWorker
from thresher.scheduler.events import AnyEvent
from thresher.scheduler.invariants import check
from thresher.scheduler.model import RunSpec, UnitSpec
from thresher.scheduler.step import Scheduler
from thresher.simulate.cluster import Deadlock, VirtualCluster
from thresher.simulate.workload import Path, RunningTask, SimulatedOutput, SimulatedWork, Workload


@dataclass(frozen=True)
class OpBehaviour:
    """Behaviour of the tasks of one op. Ranges are inclusive; each task draws its own value."""

    duration_s: tuple[float, float] = (0.01, 0.01)  # time before each output, and before the end
    fan_out: tuple[int, int] = (1, 1)  # batches emitted by a task
    nbytes: tuple[int, int] = (100, 100)  # size of an emitted batch
    generator: bool = False  # emits batches one by one and parks without credit; otherwise all of them at its end
    failures: int = 0  # times that each task fails before it succeeds
    fail_after: int = 0  # outputs it has emitted when it fails
    setup_s: float | None = None  # setup time of a dedicated worker; None: `Behaviour.start_s`
    leak_bytes: int = 0  # memory that a worker keeps after each task
    grows_from: str = ""  # first unit, by name, whose tasks take longer; "": none do
    grows_by: float = 1.0  # how many times longer


@dataclass(frozen=True)
class Behaviour:
    """Behaviour of a simulated cluster."""

    ops: tuple[OpBehaviour, ...]  # one for each op of the run
    start_s: float = 0.1  # time until a worker is ready
    commit_s: float = 0.005  # time of a commit
    latency_s: float = 0.0  # delay of an action to a worker, and of an event from it
    crashes: tuple[tuple[float, int], ...] = ()  # (time, k): live worker k, modulo their number, crashes
    payload_losses: tuple[tuple[float, int], ...] = ()  # (time, k): live payload k, modulo their number, is lost
    memory: tuple[tuple[float, float], ...] = ()  # (time, share of the limit): a memory sample
    stop_s: float | None = None  # time of a StopRequested
    commit_failures: int = 0  # times that each commit fails before it succeeds
    node_losses: tuple[tuple[float, str, float], ...] = ()  # (time, node, time until it is back): a node is lost
    tick_s: float = 0.5  # time between two Ticks; 0: none
    worker_limit_bytes: int = 0  # memory above which a worker sends WorkerMemory; 0: never
    setup_failures: int = 0  # number of workers, the first ones, that cannot be set up
    stream_blocks: dict[str, int] = field(default_factory=dict)  # stream -> units it is cut into
    late_close: bool = False  # a stream closes a unit with an entry of its own, not with its last batch
    seed: int = 0  # changes every draw

    def draw(self, low: float, high: float, *what: object) -> float:
        """Return a number in a range that depends only on the seed and `what`."""
        if low == high:
            return low
        return low + (high - low) * (crc32(repr((self.seed, what)).encode()) / 0xFFFFFFFF)

    def sizes(self, op: int, unit: str, path: Path) -> list[int]:
        """Return the sizes of the batches that a task emits."""
        how = self.ops[op]
        count = round(self.draw(*how.fan_out, "count", op, unit, path))
        return [round(self.draw(*how.nbytes, "size", op, unit, path, n)) for n in range(count)]

    def duration_s(self, op: int, unit: str, path: Path, step: int) -> float:
        """Return the time of one step of a task."""
        how = self.ops[op]
        slower = how.grows_by if how.grows_from and unit >= how.grows_from else 1.0
        return slower * self.draw(*how.duration_s, "time", op, unit, path, step)

    def units_of_stream(self, stream: str) -> list[str]:
        """Return the units that a stream is cut into."""
        return [f"{stream}-{block:06d}" for block in range(self.stream_blocks.get(stream, 1))]


class ScenarioWorkload(Workload):
    """Draws durations, sizes and failures from a behaviour."""

    def __init__(self, spec: RunSpec, behaviour: Behaviour) -> None:
        self.latency_s = behaviour.latency_s
        self.record_s = behaviour.commit_s
        self.worker_limit_bytes = behaviour.worker_limit_bytes
        self._spec = spec
        self._behaviour = behaviour
        self._started = 0
        self._failed_tasks: dict[tuple[int, str, Path], int] = {}
        self._failed_commits: dict[str, int] = {}

    def start_s(self, op: int | None) -> float:
        """Return the setup time of a worker."""
        own_s = None if op is None else self._behaviour.ops[op].setup_s
        return self._behaviour.start_s if own_s is None else own_s

    def tasks_per_call(self, op: int) -> int:
        """Return `batch_size`."""
        return self._spec.ops[op].batch_size

    def is_gradual(self, op: int) -> bool:
        """Return True for generators."""
        return self._behaviour.ops[op].generator

    def draw(self, op: int, task: RunningTask, in_bytes: int, *, gradual: bool) -> SimulatedWork:
        """Return the work of a task, which depends on its lineage alone."""
        outputs = () if self._spec.ops[op].sink else tuple(self._outputs(op, task))
        steps = len(outputs) + 1 if gradual else 1
        steps_s = tuple(self._behaviour.duration_s(op, task.ref.unit, task.path, step) for step in range(steps))
        held_s = sum(steps_s)
        return SimulatedWork(held_s, held_s, outputs, steps_s)

    def _outputs(self, op: int, task: RunningTask) -> list[SimulatedOutput]:
        behaviour, unit = self._behaviour, task.ref.unit
        if task.stream is None:
            return [SimulatedOutput(size) for size in behaviour.sizes(op, unit, task.path)]
        outputs: list[SimulatedOutput] = []
        for number, name in enumerate(behaviour.units_of_stream(unit)):
            sizes = behaviour.sizes(op, name, ())
            late = behaviour.late_close or not sizes
            outputs += [SimulatedOutput(size, number, not late and n == len(sizes) - 1) for n, size in enumerate(sizes)]
            if late:
                outputs.append(SimulatedOutput(-1, number, closes=True))
        return outputs

    def commit_s(self, in_bytes: int) -> float:
        """Return the time of a commit."""
        return self._behaviour.commit_s

    def leak_bytes(self, op: int) -> int:
        """Return the memory that a worker keeps after a task."""
        return self._behaviour.ops[op].leak_bytes

    def setup_fails(self) -> bool:
        """Return True for the first workers."""
        self._started += 1
        return self._started <= self._behaviour.setup_failures

    def task_fails(self, op: int, task: RunningTask) -> bool:
        """Return True if the task has emitted enough and has not failed often enough yet."""
        how, key = self._behaviour.ops[op], (op, task.ref.unit, task.path)
        failures = self._failed_tasks.get(key, 0)
        if failures >= how.failures or task.emitted < how.fail_after:
            return False
        self._failed_tasks[key] = failures + 1
        return True

    def commit_fails(self, unit: str) -> bool:
        """Return True if the commit has not failed often enough yet."""
        failures = self._failed_commits.get(unit, 0)
        self._failed_commits[unit] = failures + 1
        return failures < self._behaviour.commit_failures


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
    commit_times: tuple[float, ...]  # times of commits
    numbers: tuple[tuple[float, int | None, int], ...]  # (time, op, +1 or -1): workers started and stopped

    def rate(self, begin_s: float, end_s: float) -> float:
        """Return the units committed per second between two times."""
        return sum(1 for t in self.commit_times if begin_s < t <= end_s) / (end_s - begin_s)

    def workers(self, op: int | None, at_s: float) -> int:
        """Return the number of workers of an op (None: shared ones) at a time."""
        return sum(change for t, of, change in self.numbers if of == op and t <= at_s)


class _Recorder:
    """Records what the scheduler received and decided, and checks its invariants after every step."""

    def __init__(self, cluster: VirtualCluster, *, checked: bool, logged: bool) -> None:
        self.log = [encode_start(cluster.spec)] if logged else []
        self.commits: list[tuple[float, str]] = []
        self.numbers: list[tuple[float, int | None, int]] = []
        self._cluster = cluster
        self._checked = checked
        self._op_of: dict[int, int | None] = {}  # worker -> its op
        cluster.watch = self.record

    def record(self, event: AnyEvent | None, actions: Sequence[AnyAction]) -> None:
        """Record one step."""
        now = self._cluster.now
        if self.log:
            for item in actions if event is None else (event, *actions):
                self.log.append(encode_line(len(self.log), now, item))
        if isinstance(event, ev.UnitCommitted):
            self.commits.append((now, event.unit))
        for action in actions:
            if isinstance(action, StartWorker):
                self._op_of[action.worker] = action.op
                self.numbers.append((now, action.op, 1))
            elif isinstance(action, StopWorker):
                self.numbers.append((now, self._op_of[action.worker], -1))
        if self._checked:
            check(self._cluster.scheduler)


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
    cluster = VirtualCluster(spec, units, ScenarioWorkload(spec, behaviour))
    recorder = _Recorder(cluster, checked=checked, logged=logged)
    half = len(units) // 2
    cluster.at(0.0, cluster.report, ev.UnitsListed(tuple(units[:half]), more=True))
    cluster.at(0.0, cluster.report, ev.UnitsListed(tuple(units[half:])))
    _plan_faults(cluster, behaviour)
    try:
        cluster.run(max_events)
    except Deadlock as error:
        raise Deadlock(f"{error}, after {cluster.events:,} events: {describe(cluster.scheduler)}") from None
    counts: dict[str, int] = {}
    for _, unit in recorder.commits:
        counts[unit] = counts.get(unit, 0) + 1
    assert cluster.ended is not None
    return SimResult(
        status=cluster.ended,
        makespan_s=cluster.now,
        events=cluster.events,
        max_used_bytes=cluster.usage.peak_bytes,
        committed=cluster.committed,
        commit_count=counts,
        leaked=sum(1 for task in cluster.payloads if task not in cluster.scheduler.state.tasks),
        log=tuple(recorder.log),
        idle_s=cluster.now * spec.shared_workers - sum(cluster.usage.busy_s),
        commit_times=tuple(t for t, _ in recorder.commits),
        numbers=tuple(recorder.numbers),
    )


def _plan_faults(cluster: VirtualCluster, behaviour: Behaviour) -> None:
    """Schedule what happens to the cluster from outside."""
    for when_s, which in behaviour.crashes:
        cluster.at(when_s, partial(_crash_worker, cluster), which)
    for when_s, which in behaviour.payload_losses:
        cluster.at(when_s, partial(_lose_payload, cluster), which)
    for when_s, share in behaviour.memory:
        cluster.at(when_s, cluster.report, ev.MemorySample(int(share * 1000), 1000))
    for when_s, node, back_s in behaviour.node_losses:
        cluster.at(when_s, partial(_lose_node, cluster, behaviour.latency_s + back_s), node)
    if behaviour.tick_s:
        cluster.at(behaviour.tick_s, cluster.tick, behaviour.tick_s)
    if behaviour.stop_s is not None:
        cluster.at(behaviour.stop_s, cluster.report, ev.StopRequested("requested"))


def _crash_worker(cluster: VirtualCluster, which: int) -> None:
    live = [worker for worker in cluster.workers.values() if worker.alive]
    if live:
        live[which % len(live)].crash()


def _lose_payload(cluster: VirtualCluster, which: int) -> None:
    if cluster.payloads:
        cluster.report(ev.PayloadLost(list(cluster.payloads)[which % len(cluster.payloads)]))


def _lose_node(cluster: VirtualCluster, back_s: float, name: str) -> None:
    if cluster.machines[name].alive:
        cluster.at(cluster.now + back_s, cluster.join_node, name)
        cluster.lose_node(name)


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
