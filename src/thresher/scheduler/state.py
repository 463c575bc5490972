# SPDX-License-Identifier: Apache-2.0
"""The scheduler's mutable state: tasks, units, ops, workers, pools. Changed in place for speed, by `step` alone.

Places of a task (`state`), and how it gets from one to the next:

    READY    waits in its op's queue              -> RUNNING
    HELD     waits until nothing earlier of its unit can come -> READY, or RUNNING in an ordered sink
    RUNNING  in a worker's queue, or runs         -> DONE, PARKED, READY (tried again)
    PARKED   a generator out of credit, in its worker -> RUNNING
    DONE     ended; stays in the tree while its children live
    VOID     of an old epoch; if a worker still has it, its results are dropped on arrival
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from thresher.scheduler.actions import AnyAction
from thresher.scheduler.model import OpSpec, RunSpec

READY, HELD, RUNNING, PARKED, DONE, VOID = range(6)
TASK_STATES = ("ready", "held", "running", "parked", "done", "void")

OPEN, COMMITTING, ENDED = range(3)
UNIT_STATES = ("open", "committing", "ended")

STARTING, UP, LOST = range(3)
WORKER_STATES = ("starting", "up", "lost")

Key = tuple[int, ...]
LAST_BLOCK = 1 << 62  # a stream comes after all units that were cut from its file


class Group:
    """The tasks of one Dispatch that their worker has not finished."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Task:
    """One task, and its node in the lineage tree of its unit."""

    __slots__ = (
        "attempts",
        "busy_s",
        "emitted",
        "epoch",
        "excess",
        "exempt",
        "first",
        "group",
        "id",
        "key",
        "last",
        "nbytes",
        "next",
        "op",
        "ordinal",
        "parent",
        "prev",
        "reserve",
        "state",
        "unit",
        "waiting",
        "worker",
    )

    def __init__(self, task_id: int, unit: Unit, op: Op, key: Key, nbytes: int) -> None:
        self.id = task_id
        self.unit = unit
        self.epoch = unit.epoch
        self.op = op
        self.key = key  # depth-first lineage order: input order of the unit, then ordinals from the root down
        self.nbytes = nbytes  # its payload; 0 for roots
        self.excess = 0  # part of nbytes that no ordinary credit covered
        self.state = READY
        self.worker: Worker | None = None
        self.group: Group | None = None
        self.reserve = 0  # bytes set aside for what it may still emit
        self.exempt = False  # the reserve was given beyond the budget, because this was the oldest task
        self.emitted = False  # something of it is already outside, so it cannot be retried alone
        self.attempts = 0  # failures it was blamed for
        self.busy_s = 0.0  # time it ran, as far as it was reported
        self.waiting = False  # has an entry in op.waiting
        self.ordinal = 0  # number of children so far
        self.parent: Task | Unit | None = None
        self.first: Task | None = None
        self.last: Task | None = None
        self.prev: Task | None = None
        self.next: Task | None = None

    def story(self) -> str:
        """Everything known about the task, for messages."""
        where = f" on worker {self.worker.id}" if self.worker else ""
        return (
            f"task {self.id} ({TASK_STATES[self.state]}{where}) of unit {self.unit.name!r} epoch {self.epoch} "
            f"(now {self.unit.epoch}), op {self.op.index} {self.op.spec.name!r}, path {self.key[3:]}, "
            f"{self.nbytes} bytes, {self.reserve} reserved, {self.ordinal} children, {self.attempts} failed attempts"
        )


class Unit:
    """One unit, and the root of its lineage tree. A stream is a Unit too, but is never committed."""

    __slots__ = (
        "accept_run",
        "attempts",
        "children",
        "closed",
        "eligible",
        "entry",
        "epoch",
        "first",
        "is_stream",
        "key",
        "last",
        "listed",
        "name",
        "ordinal",
        "parent",
        "rerun",
        "run",
        "serial",
        "sink_worker",
        "sinking",
        "state",
        "stream",
    )

    def __init__(self, name: str, key: Key, entry: Op, stream: Unit | None = None) -> None:
        self.name = name
        self.key = key  # file index, block, serial number that changes with each epoch
        self.entry = entry
        self.epoch = 0
        self.state = OPEN
        self.attempts = 0  # restarts it was blamed for
        self.closed = False  # nothing more will be linked directly below it
        self.serial = False  # its emitting tasks run one by one, in lineage order
        self.eligible = False  # its first leaf may go to the ordered sink, and is queued for it
        self.sinking: dict[int, Task] = {}  # tasks handed to the ordered sink and not finished
        self.sink_worker: Worker | None = None  # who holds its sink state
        self.listed = False  # has an entry in State.oldest_units
        self.stream = stream  # the stream that cuts this unit, if any
        self.accept_run: int = stream.run if stream else 0  # first run of the stream whose tasks count for this epoch
        self.is_stream = False
        self.run: int = 0  # stream: number of this run of its source task
        self.rerun = False  # stream: a unit needs it to be read once more
        self.children: dict[str, Unit] = {}  # stream: its units that are not committed
        self.ordinal = 0
        self.parent: None = None
        self.first: Task | None = None
        self.last: Task | None = None


class Op:
    """An op at work: its queues, its measured rates, its limits."""

    __slots__ = (
        "average_s",
        "credit",
        "emits",
        "estimate",
        "gated",
        "group",
        "index",
        "limit",
        "live",
        "max_seats",
        "next",
        "nready",
        "ordered",
        "parks",
        "pool",
        "ready",
        "seats",
        "sink",
        "source",
        "spec",
        "tracked",
        "upstream",
        "waiting",
        "window",
    )

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.index = spec.index
        self.source = spec.source
        self.sink = spec.sink
        self.ordered = spec.ordered
        self.emits = spec.next is not None
        self.gated = False  # leads to an ordered sink
        self.tracked = self.emits  # workers count the tasks of it they hold
        self.next: Op | None = None
        self.pool: Pool = None  # type: ignore[assignment]  # set by `build` before anything reads it
        self.upstream: tuple[Op, ...] = ()  # every op whose outputs can reach this one
        self.ready: list[tuple[Key, Any]] = []  # heap of tasks (units, for an ordered sink); entries may be stale
        self.nready = 0  # how many entries are not stale
        self.waiting: list[tuple[Key, Task]] = []  # heap of parked tasks whose worker has room; may be stale
        self.live = 0  # tasks that are ready, held, running or parked
        self.seats = 0  # workers that hold a task of this op
        self.max_seats = 1 << 30  # most workers that may, because of `cpus`
        self.parks = False  # has been seen to run out of credit
        self.average_s = -1.0  # time of one task; -1: not measured yet
        self.group = 1  # tasks that together take about group_s
        self.estimate = max(1, spec.output_bytes)  # bytes of one emitted batch
        self.credit = self.estimate  # bytes a task may emit before it parks
        self.limit = 0  # bytes in flight up to which this op may start
        self.window = 0  # batches in flight at which this source waits


class Worker:
    """One worker and what it holds."""

    __slots__ = ("groups", "id", "node", "ops", "parked", "pool", "queue", "sinks", "state", "units")

    def __init__(self, worker_id: int, pool: Pool) -> None:
        self.id = worker_id
        self.pool = pool
        self.state = STARTING
        self.node = ""
        self.groups = 0  # groups of tasks it holds
        self.queue: dict[Task | Unit, None] = {}  # tasks to run and units to commit, in the order they were sent
        self.ops: dict[int, int] = {}  # tracked op -> its tasks here, parked ones included
        self.parked: dict[int, Task] = {}  # generators out of credit
        self.sinks: list[tuple[Key, Unit]] = []  # heap of units with a task for the sink here; may be stale
        self.units: dict[str, Unit] = {}  # units whose sink state it holds

    def story(self) -> str:
        """Everything known about the worker, for messages."""
        queue = [item.id if isinstance(item, Task) else f"commit {item.name}" for item in self.queue]
        return (
            f"worker {self.id} ({WORKER_STATES[self.state]}), {self.groups} groups, queue {queue}, "
            f"parked {list(self.parked)}, tasks by op {self.ops}, writes {list(self.units)}"
        )


class Pool:
    """Workers that serve the same ops."""

    __slots__ = ("dedicated", "free", "inner", "losses", "setup_failures", "size", "sources")

    def __init__(self, ops: list[Op], dedicated: int | None, depth: int) -> None:
        self.dedicated = dedicated  # the op they serve; None: the shared workers
        self.inner = [op for op in ops if not op.source]  # most downstream first
        self.sources = [op for op in ops if op.source]
        self.free: list[OrderedDict[int, Worker]] = [OrderedDict() for _ in range(depth)]  # by groups held
        self.size = 0  # workers that are up or starting
        self.setup_failures = 0  # in a row
        self.losses = 0  # workers lost since a task of this pool ended


class State:
    """Everything a scheduler knows."""

    __slots__ = (
        "commits",
        "committed",
        "excess",
        "listing",
        "listing_input",
        "next_root",
        "next_worker",
        "oldest_units",
        "ops",
        "out",
        "over",
        "payloads",
        "pools",
        "pressure",
        "released",
        "reserved",
        "running",
        "running_sources",
        "serial_number",
        "spec",
        "starving",
        "stopping",
        "tasks",
        "touched_units",
        "touched_workers",
        "unfinished",
        "units",
        "used",
        "window_growth",
        "workers",
    )

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.ops = [Op(op) for op in spec.ops]
        self.pools: list[Pool] = []
        self.workers: dict[int, Worker] = {}
        self.units: dict[str, Unit] = {}  # all that are not committed, streams included
        self.tasks: dict[int, Task] = {}  # all that wait, run or are parked
        self.committed: set[str] = set()
        self.unfinished = 0  # units that are not committed and streams that are not read
        self.listing = True  # more units may be listed
        self.listing_input = True  # more of them may be input
        self.oldest_units: list[tuple[Key, Unit]] = []  # heap of units that have tasks; entries may be stale
        self.serial_number = 0
        self.next_root = -1
        self.next_worker = 1
        self.running = 0  # tasks in the queues of workers
        self.running_sources = 0  # of these, tasks of emitting sources
        self.commits = 0  # units being committed
        self.used = 0  # bytes of live payloads
        self.payloads = 0  # how many
        self.reserved = 0  # bytes set aside for running tasks
        self.excess = 0  # part of used + reserved that the budget does not cover: the oldest task's reserve, and debt
        self.window_growth = 0  # batches added because workers were seen starving
        self.starving = 0  # sightings since the window last grew
        self.pressure = False  # measured memory is near its limit
        self.stopping = False
        self.over = False
        self.out: list[AnyAction] = []  # actions of this step
        self.released: list[int] = []  # payloads to free in this step
        self.touched_units: list[Unit] = []  # units whose tree changed in this step
        self.touched_workers: list[Worker] = []  # workers that may take something in this step


def build(spec: RunSpec) -> State:
    """The state before the first event: ops linked, pools made, no workers yet."""
    state = State(spec)
    for op in state.ops:
        if op.spec.next is not None:
            op.next = state.ops[op.spec.next]
    for op in state.ops:
        op.upstream = tuple(o for o in state.ops if op in chain(o)[1:])
        op.limit = limit_bytes(spec, op)
        op.gated = any(o.ordered for o in chain(op))
    distance = {op.index: len(chain(op)) for op in state.ops}
    order = sorted(state.ops, key=lambda op: (distance[op.index], op.index))
    shared = [op for op in order if op.spec.dedicated_workers is None]
    if shared:
        state.pools.append(Pool(shared, None, spec.depth))
    for op in order:
        if op.spec.dedicated_workers is not None:
            state.pools.append(Pool([op], op.index, spec.depth))
    for pool in state.pools:
        for op in pool.inner + pool.sources:
            op.pool = pool
    for op in shared:
        if op.spec.cpus > 1:
            op.tracked = True
            op.max_seats = max(1, int(spec.shared_workers / op.spec.cpus))
    return state


def chain(op: Op) -> list[Op]:
    """The op and everything downstream of it."""
    ops = [op]
    while ops[-1].next is not None:
        ops.append(ops[-1].next)
    return ops


def limit_bytes(spec: RunSpec, op: Op) -> int:
    """Bytes in flight up to which an op may start: half the budget for sources, all of it for the last that emits.

    If a source could fill the budget alone, the ops behind it would find no room to emit and run one task at a time.
    """
    before = max((len(chain(o)) - len(chain(op)) for o in op.upstream), default=0)
    behind = sum(1 for o in chain(op)[1:] if o.emits)
    if behind == 0:
        return spec.budget_bytes
    return spec.budget_bytes // 2 + spec.budget_bytes // 2 * before // (before + behind)
