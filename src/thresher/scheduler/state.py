# SPDX-License-Identifier: Apache-2.0
"""The scheduler's mutable state: tasks, units, ops and workers. Only `step` changes it, in place for speed.

States of a task and their transitions:

    READY    waits in its op's queue              -> RUNNING
    HELD     waits until no earlier task of its unit can come -> READY, or RUNNING in an ordered sink
    RUNNING  in a worker's queue, or runs         -> DONE, PARKED, READY or DELAYED (retry)
    DELAYED  failed, and waits for its backoff    -> READY, HELD
    PARKED   a generator out of credit, in its worker -> RUNNING
    DONE     finished; stays in the tree until its children are gone
    VOID     belongs to an old epoch; if a worker still runs it, its results are dropped on arrival
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thresher.scheduler.actions import AnyAction
from thresher.scheduler.model import OpSpec, RunSpec
from thresher.scheduler.workers.capacity import Fleet, Place

if TYPE_CHECKING:
    from thresher.scheduler.load import Group
    from thresher.scheduler.workers.pools import Pool

READY, HELD, RUNNING, PARKED, DONE, VOID, DELAYED = range(7)
TASK_STATES = ("ready", "held", "running", "parked", "done", "void", "delayed")

OPEN, COMMITTING, ENDED = range(3)

STARTING, UP, LOST = range(3)
WORKER_STATES = ("starting", "up", "lost")

Key = tuple[int, ...]
LAST_BLOCK = 1 << 62  # block of a stream: it sorts after all units that were cut from its file


class TaskState:
    """One task, and its node in the lineage tree of its unit."""

    __slots__ = (
        "attempts",
        "busy_s",
        "call",
        "emitted",
        "epoch",
        "excess",
        "exempt",
        "first",
        "group",
        "home",
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

    def __init__(self, task_id: int, unit: UnitState, op: OpState, key: Key, nbytes: int) -> None:
        self.id = task_id
        self.unit = unit
        self.epoch = unit.epoch
        self.op = op
        self.key = key  # depth-first lineage order: input order of the unit, then ordinals from the root down
        self.nbytes = nbytes  # size of its payload; 0 for roots
        self.home = ""  # node that holds its payload; "": no preference
        self.excess = 0  # part of nbytes that no ordinary credit covered
        self.state = READY
        self.worker: WorkerState | None = None
        self.group: Group | None = None
        self.call: list[TaskState] | None = None  # tasks of the call it belongs to, if the op takes tasks by unit
        self.reserve = 0  # bytes reserved for its further outputs
        self.exempt = False  # the reserve was given beyond the budget, because this was the oldest task
        self.emitted = False  # it has emitted or reported something, so it cannot be retried alone
        self.attempts = 0  # failures it was blamed for
        self.busy_s = 0.0  # reported run time
        self.waiting = False  # has an entry in op.waiting
        self.ordinal = 0  # number of children so far
        self.parent: TaskState | UnitState | None = None
        self.first: TaskState | None = None
        self.last: TaskState | None = None
        self.prev: TaskState | None = None
        self.next: TaskState | None = None

    def describe(self) -> str:
        """Describe the task in full, for messages."""
        where = f" on worker {self.worker.id}" if self.worker else ""
        return (
            f"task {self.id} ({TASK_STATES[self.state]}{where}) of unit {self.unit.name!r} epoch {self.epoch} "
            f"(now {self.unit.epoch}), op {self.op.index} {self.op.spec.name!r}, path {self.key[3:]}, "
            f"{self.nbytes} bytes, {self.reserve} reserved, {self.ordinal} children, {self.attempts} failed attempts"
        )


class UnitState:
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

    def __init__(self, name: str, key: Key, entry: OpState, stream: UnitState | None = None) -> None:
        self.name = name
        self.key = key  # file index, block, serial number that changes with each epoch
        self.entry = entry
        self.epoch = 0
        self.state = OPEN
        self.attempts = 0  # restarts it was blamed for
        self.closed = False  # no further task will be linked directly below it
        self.serial = False  # its emitting tasks run one at a time, in lineage order
        self.eligible = False  # its first leaf may go to the ordered sink, and is queued for it
        self.sinking: dict[int, TaskState] = {}  # unfinished tasks that were sent to the ordered sink
        self.sink_worker: WorkerState | None = None  # worker that holds its sink state
        self.listed = False  # has an entry in State.oldest_units
        self.stream = stream  # the stream that cuts this unit, if any
        self.accept_run: int = stream.run if stream else 0  # first run of the stream whose tasks are accepted
        self.is_stream = False
        self.run: int = 0  # stream: number of the current run of its source task
        self.rerun = False  # stream: it must be read again for a unit
        self.children: dict[str, UnitState] = {}  # stream: its uncommitted units
        self.ordinal = 0
        self.parent: None = None
        self.first: TaskState | None = None
        self.last: TaskState | None = None


class OpState:
    """Run-time state of an op: its queues, measured rates and limits."""

    __slots__ = (
        "average_s",
        "credit",
        "emits",
        "estimate",
        "gated",
        "gathers",
        "group",
        "index",
        "limit",
        "live",
        "max_seats",
        "next",
        "nready",
        "odd",
        "ordered",
        "parks",
        "passed_over",
        "pool",
        "ready",
        "seats",
        "seen_busy_s",
        "seen_outputs",
        "seen_tasks",
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
        self.gathers = False  # it, or a downstream op, takes tasks by unit
        self.tracked = self.emits  # workers count the tasks of it that they hold
        self.next: OpState | None = None
        self.pool: Pool = None  # type: ignore[assignment]  # set by `build` before anything reads it
        self.upstream: tuple[OpState, ...] = ()  # every op whose outputs can reach this one
        self.ready: list[tuple[Key, Any]] = []  # heap of tasks (units, for an ordered sink); entries may be stale
        self.nready = 0  # number of entries that are not stale
        self.waiting: list[tuple[Key, TaskState]] = []  # heap of parked tasks whose worker has room; may be stale
        self.live = 0  # tasks that are ready, held, running or parked
        self.seats = 0  # workers that hold a task of this op
        self.max_seats = 1 << 30  # limit for `seats`, from `cpus`
        self.parks = False  # a task of it has run out of credit before
        self.passed_over = 0  # consecutive times that a more local task was chosen over the oldest
        self.average_s = -1.0  # time of one task; -1: not measured yet
        self.group = 1  # tasks that together take about group_s
        self.estimate = max(1, spec.output_bytes)  # bytes of one emitted batch
        self.credit = self.estimate  # bytes a task may emit before it parks
        self.limit = 0  # bytes in flight up to which this op may start
        self.window = 0  # batches in flight at which this source waits
        self.seen_busy_s = 0.0  # decayed sum: run time of its tasks
        self.seen_outputs = 0.0  # decayed sum: batches that they emitted
        self.seen_tasks = 0.0  # decayed sum: tasks that finished
        self.odd = (0, 0.0, 0.0)  # consecutive outliers (negative: shorter than usual), their time, the usual time


class WorkerState:
    """One worker with its queue, parked tasks and sink state."""

    __slots__ = (
        "born_s",
        "done",
        "drain_reason",
        "draining",
        "groups",
        "id",
        "node",
        "ops",
        "parked",
        "place",
        "pool",
        "private_bytes",
        "queue",
        "sinks",
        "state",
        "taken",
        "units",
    )

    def __init__(self, worker_id: int, pool: Pool, place: Place) -> None:
        self.id = worker_id
        self.pool = pool
        self.place = place  # node and devices it was assigned to
        self.node = place.node  # node it reported
        self.state = STARTING
        self.draining = False  # gets no new tasks, finishes its current ones, then is stopped
        self.drain_reason = ""  # why it is draining, as in StopWorker
        self.born_s = 0.0  # time it became ready
        self.done = 0  # number of tasks it finished
        self.taken = 0  # number of tasks it received
        self.private_bytes = 0  # its private memory, as last measured
        self.groups = 0  # groups of tasks it holds
        self.queue: dict[
            TaskState | UnitState, None
        ] = {}  # tasks to run and units to commit, in the order they were sent
        self.ops: dict[int, int] = {}  # tracked op -> its tasks here, parked ones included
        self.parked: dict[int, TaskState] = {}  # generators out of credit
        self.sinks: list[tuple[Key, UnitState]] = []  # heap of units with a task for the sink here; may be stale
        self.units: dict[str, UnitState] = {}  # units whose sink state it holds

    def describe(self) -> str:
        """Describe the worker in full, for messages."""
        queue = [item.id if isinstance(item, TaskState) else f"commit {item.name}" for item in self.queue]
        return (
            f"worker {self.id} ({WORKER_STATES[self.state]}{', draining' * self.draining}) on {self.node}, "
            f"devices {self.place.devices}, {self.groups} groups, queue {queue}, "
            f"parked {list(self.parked)}, tasks by op {self.ops}, writes {list(self.units)}"
        )


class State:
    """The complete state of a scheduler."""

    __slots__ = (
        "commits",
        "committed",
        "delayed",
        "excess",
        "fleet",
        "held_back",
        "listing",
        "listing_input",
        "measuring",
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
        self.ops = [OpState(op) for op in spec.ops]
        self.pools: list[Pool] = []
        self.fleet = Fleet(spec)
        self.measuring = False  # some pool is autoscaled, so flows are measured
        self.workers: dict[int, WorkerState] = {}
        self.delayed: list[tuple[float, int, TaskState]] = []  # heap of (retry time, task id, task)
        self.units: dict[str, UnitState] = {}  # uncommitted units, streams included
        self.tasks: dict[int, TaskState] = {}  # tasks that wait, run or are parked
        self.committed: set[str] = set()
        self.unfinished = 0  # number of uncommitted units and unread streams
        self.listing = True  # more units may be listed
        self.listing_input = True  # more units of input may be listed
        self.oldest_units: list[tuple[Key, UnitState]] = []  # heap of units that have tasks; entries may be stale
        self.serial_number = 0
        self.next_root = -1
        self.next_worker = 1
        self.running = 0  # number of tasks in the queues of workers
        self.running_sources = 0  # of these, tasks of emitting sources
        self.commits = 0  # number of units being committed
        self.used = 0  # bytes of live payloads
        self.payloads = 0  # number of live payloads
        self.reserved = 0  # bytes reserved for running tasks
        self.excess = 0  # part of used + reserved that the budget does not cover: the oldest task's reserve, and debt
        self.window_growth = 0  # batches added to the window because workers starved
        self.held_back: OpState | None = None  # the source that last waited for a full window
        self.starving = 0  # observations of a starved worker since the window last grew
        self.pressure = False  # measured memory is near its limit
        self.stopping = False
        self.over = False
        self.out: list[AnyAction] = []  # actions of this step
        self.released: list[int] = []  # payloads to free in this step
        self.touched_units: list[UnitState] = []  # units whose tree changed in this step
        self.touched_workers: list[WorkerState] = []  # workers that may take something in this step


def chain(op: OpState) -> list[OpState]:
    """Return the op and every op downstream of it."""
    ops = [op]
    while ops[-1].next is not None:
        ops.append(ops[-1].next)
    return ops
