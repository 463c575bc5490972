# SPDX-License-Identifier: Apache-2.0
"""The scheduler's mutable state: tasks, units, ops, workers, pools. Changed in place for speed, by `step` alone.

Places of a task (`state`), and how it gets from one to the next:

    READY    waits in its op's queue              -> RUNNING
    HELD     waits until nothing earlier of its unit can come -> READY, or RUNNING in an ordered sink
    RUNNING  in a worker's queue, or runs         -> DONE, PARKED, READY or DELAYED (tried again)
    DELAYED  failed, and waits before it is tried again -> READY, HELD
    PARKED   a generator out of credit, in its worker -> RUNNING
    DONE     ended; stays in the tree while its children live
    VOID     of an old epoch; if a worker still has it, its results are dropped on arrival
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thresher.scheduler.actions import AnyAction
from thresher.scheduler.capacity import Place
from thresher.scheduler.fleet import Fleet
from thresher.scheduler.model import OpSpec, RunSpec

if TYPE_CHECKING:
    from thresher.scheduler.pool import Pool

READY, HELD, RUNNING, PARKED, DONE, VOID, DELAYED = range(7)
TASK_STATES = ("ready", "held", "running", "parked", "done", "void", "delayed")

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

    def __init__(self, task_id: int, unit: Unit, op: Op, key: Key, nbytes: int) -> None:
        self.id = task_id
        self.unit = unit
        self.epoch = unit.epoch
        self.op = op
        self.key = key  # depth-first lineage order: input order of the unit, then ordinals from the root down
        self.nbytes = nbytes  # its payload; 0 for roots
        self.home = ""  # node where its payload lies; "": everywhere is as good
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
        self.passed_over = 0  # times in a row that a task nearer to its worker went before the oldest
        self.average_s = -1.0  # time of one task; -1: not measured yet
        self.group = 1  # tasks that together take about group_s
        self.estimate = max(1, spec.output_bytes)  # bytes of one emitted batch
        self.credit = self.estimate  # bytes a task may emit before it parks
        self.limit = 0  # bytes in flight up to which this op may start
        self.window = 0  # batches in flight at which this source waits
        self.seen_busy_s = 0.0  # time of its tasks, what they emitted and how many ended: sums of the recent past
        self.seen_outputs = 0.0
        self.seen_tasks = 0.0
        self.odd = (0, 0.0, 0.0)  # tasks in a row far longer (below 0: shorter) than usual, their time, what is usual


class Worker:
    """One worker and what it holds."""

    __slots__ = (
        "born_s",
        "done",
        "groups",
        "id",
        "leaving",
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
        self.place = place  # node and devices it was given
        self.node = place.node  # where it says it runs
        self.state = STARTING
        self.leaving = False  # gets no new tasks, finishes what it has, and is stopped then
        self.born_s = 0.0  # when it was ready
        self.done = 0  # tasks it finished
        self.taken = 0  # tasks it was given
        self.private_bytes = 0  # its own memory, as last measured
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
            f"worker {self.id} ({WORKER_STATES[self.state]}{', leaving' * self.leaving}) on {self.node}, "
            f"devices {self.place.devices}, {self.groups} groups, queue {queue}, "
            f"parked {list(self.parked)}, tasks by op {self.ops}, writes {list(self.units)}"
        )


class State:
    """Everything a scheduler knows."""

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
        self.ops = [Op(op) for op in spec.ops]
        self.pools: list[Pool] = []
        self.fleet = Fleet(spec)
        self.measuring = False  # some numbers of workers follow what is measured
        self.workers: dict[int, Worker] = {}
        self.delayed: list[tuple[float, int, Task]] = []  # heap: when a task that failed may be tried again
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
        self.held_back: Op | None = None  # the source that last had to wait behind a full window
        self.starving = 0  # sightings since the window last grew
        self.pressure = False  # measured memory is near its limit
        self.stopping = False
        self.over = False
        self.out: list[AnyAction] = []  # actions of this step
        self.released: list[int] = []  # payloads to free in this step
        self.touched_units: list[Unit] = []  # units whose tree changed in this step
        self.touched_workers: list[Worker] = []  # workers that may take something in this step


def chain(op: Op) -> list[Op]:
    """The op and everything downstream of it."""
    ops = [op]
    while ops[-1].next is not None:
        ops.append(ops[-1].next)
    return ops
