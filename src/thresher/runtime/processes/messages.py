# SPDX-License-Identifier: Apache-2.0
"""Messages between the driver, the zygote and the workers. A frame on the wire is a list of messages."""

from __future__ import annotations

import msgspec

from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.ledger.records import CommitRecord
from thresher.runtime.crashes.evidence import Suspect
from thresher.runtime.payloads.payload import Payload


class _Message(msgspec.Struct, array_like=True, gc=False, frozen=True, tag=True):
    """Base of all messages."""


# -- driver to worker -------------------------------------------------------------------------------------------------


class TaskIn(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One task to run."""

    task: int
    """Its id."""
    unit: int
    """Index of its unit in `Run.units`."""
    epoch: int
    """Epoch of the unit."""
    credit: int
    """Bytes that it may emit before it parks; -1: no limit."""
    payload: Payload | None
    """Its input; `None` if it reads its unit."""


class Run(_Message, frozen=True, gc=False):
    """Run tasks of one op, in this order."""

    op: int
    """The op."""
    units: list[Unit]
    """The units that the tasks belong to."""
    tasks: list[TaskIn]
    """The tasks."""
    done: list[str] = []
    """Committed units of a stream, to be skipped."""
    suspects: list[Suspect] = []
    """Records that crashed other workers since the last message to this one."""


class Credit(_Message, frozen=True, gc=False):
    """Additional credit for a running task; resumes it if it has parked."""

    task: int
    credit: int


class GoOn(_Message, frozen=True, gc=False):
    """Resume a parked task in its turn."""

    task: int
    credit: int


class GiveBack(_Message, frozen=True, gc=False):
    """Drop waiting and parked tasks, and the output of a unit from before an epoch."""

    tasks: list[int]
    unit: str
    epoch: int


class Publish(_Message, frozen=True, gc=False):
    """Commit a unit."""

    unit: Unit
    epoch: int
    tally: Tally


class Free(_Message, frozen=True, gc=False):
    """Free segments of the worker's own arena that nobody uses any more."""

    offsets: list[int]


class OpenArena(_Message, frozen=True, gc=False):
    """Map the arena of another worker; its descriptor comes with this message."""

    arena: int


class DropArena(_Message, frozen=True, gc=False):
    """Unmap an arena that was closed."""

    arena: int


class Stop(_Message, frozen=True, gc=False):
    """Tear down and exit."""


ToWorker = Run | Credit | GoOn | GiveBack | Publish | Free | OpenArena | DropArena | Stop


# -- worker to driver -------------------------------------------------------------------------------------------------


class Output(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One output of a task."""

    payload: Payload | None
    """The new task; `None` only to close a unit."""
    unit: Unit | None = None
    """Its unit, if that differs from the unit of the task that emitted it."""
    closes: bool = False
    """True if nothing more is emitted for that unit."""
    items: int = 0
    """Number of records in a result; 0 for tasks that go on to another op."""


class TaskUpdate(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Outputs and counts of a task since its last update."""

    task: int
    """Its id."""
    outputs: list[Output]
    """New outputs."""
    tally: Tally | None
    """Counts."""
    busy_s: float = 0.0
    """Seconds of work."""
    quarantined: list[bytes] = []
    """Quarantine lines that go to no unit's output."""


class Started(_Message, frozen=True, gc=False):
    """The worker is set up."""

    private_bytes: int = 0
    """Private memory after the setup."""


class Grown(_Message, frozen=True, gc=False):
    """The worker's private memory has grown so much that it should be replaced."""

    private_bytes: int


class CannotStart(_Message, frozen=True, gc=False):
    """The setup of the worker failed, and it exits."""

    message: str


class TaskProgress(_Message, frozen=True, gc=False):
    """A task has emitted something and continues."""

    update: TaskUpdate


class Parked(_Message, frozen=True, gc=False):
    """A task waits for credit."""

    update: TaskUpdate


class Done(_Message, frozen=True, gc=False):
    """Tasks that succeeded."""

    tasks: list[TaskUpdate]


class Failed(_Message, frozen=True, gc=False):
    """Tasks of one call that failed."""

    tasks: list[int]
    error: str
    message: str
    fatal: bool
    blamed: bool = True
    """True if the tasks caused the failure; otherwise the worker did, and another one should run them."""


class Published(_Message, frozen=True, gc=False):
    """A unit is committed."""

    unit: str
    epoch: int
    record: CommitRecord


class NotPublished(_Message, frozen=True, gc=False):
    """A unit could not be committed."""

    unit: str
    epoch: int
    message: str
    retryable: bool


class Returned(_Message, frozen=True, gc=False):
    """Leases that this worker returns: arena and offset of each segment."""

    leases: list[tuple[int, int]]


class Cleared(_Message, frozen=True, gc=False):
    """Batches that crashed workers before and have now been processed record by record."""

    cleared: list[Suspect]


FromWorker = (
    Started
    | Grown
    | CannotStart
    | TaskProgress
    | Parked
    | Done
    | Failed
    | Published
    | NotPublished
    | Returned
    | Cleared
)


# -- driver and zygote ------------------------------------------------------------------------------------------------


class Preload(_Message, frozen=True, gc=False):
    """Modules of ours for the zygote to import while the plan is made."""

    modules: list[str]
    """Their names; failed imports are ignored and raise again where the module is needed."""


class Load(_Message, frozen=True, gc=False):
    """The setup of all workers."""

    setup: bytes
    """A `WorkerSetup`, as `setup_pickle` writes it."""
    path: list[str]
    """Module search path."""
    argv: list[str]
    """Arguments of the user's script, which stages may read."""
    takes_output: bool = False
    """True if a descriptor comes with this message: stdout and stderr of all workers."""


class Fork(_Message, frozen=True, gc=False):
    """Start a worker; the descriptors of its socket and its arena come with this message."""

    worker: int
    op: int | None
    """The op that it serves; `None`: any."""
    keep_bytes: int
    """Bytes of freed shared memory that it may keep for reuse."""
    rank: int = 0
    """Its rank among the workers of its op."""
    num_workers: int = 1
    """Number of workers of its op."""
    spill_to: str = ""
    """Folder for payloads instead of shared memory (batch mode)."""
    node: str = "local"
    """Name of its machine."""
    devices: tuple[int, ...] = ()
    """Accelerators that it may use."""
    visible: str = ""
    """The same devices, as in `CUDA_VISIBLE_DEVICES`."""
    share_bytes: int = 0
    """Private memory that it may take beyond what it starts with; 0: no limit."""
    is_limited: bool = False
    """True if the kernel enforces that limit; otherwise memory is only monitored."""
    yields: bool = False
    """True if it runs at a lower CPU priority than workers that keep accelerators busy."""


ToZygote = Preload | Load | Fork


class Forked(_Message, frozen=True, gc=False):
    """A worker was started."""

    worker: int
    pid: int


class Exited(_Message, frozen=True, gc=False):
    """A worker has exited."""

    worker: int
    status: int
    """Exit code, or minus the number of the signal."""


FromZygote = Forked | Exited
