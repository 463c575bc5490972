# SPDX-License-Identifier: Apache-2.0
"""What the driver and its processes say to each other. A frame on the wire is a list of such messages."""

from __future__ import annotations

import msgspec

from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.ledger.records import CommitRecord
from thresher.runtime.payload import Payload
from thresher.runtime.suspicions import Suspect


class _Message(msgspec.Struct, array_like=True, gc=False, frozen=True, tag=True):
    """Base of all messages."""


# -- driver to worker -------------------------------------------------------------------------------------------------


class TaskIn(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One task to run."""

    task: int
    """Its id."""
    unit: int
    """Place of its unit in `Run.units`."""
    epoch: int
    """Epoch of the unit."""
    credit: int
    """Bytes that it may emit before it parks; -1: no limit."""
    payload: Payload | None
    """Its input; `None`: it reads its unit."""


class Run(_Message, frozen=True, gc=False):
    """Run tasks of one op, in this order."""

    op: int
    """The op."""
    units: list[Unit]
    """The units that the tasks belong to."""
    tasks: list[TaskIn]
    """The tasks."""
    done: list[str] = []
    """Committed units of a stream, to be passed over."""
    suspects: list[Suspect] = []
    """What other workers died on since this one was last told."""


class Credit(_Message, frozen=True, gc=False):
    """More credit for a task that runs; if it has parked, it goes on."""

    task: int
    credit: int


class GoOn(_Message, frozen=True, gc=False):
    """Let a parked task go on in its turn."""

    task: int
    credit: int


class GiveBack(_Message, frozen=True, gc=False):
    """Forget waiting and parked tasks, and what was written for a unit before an epoch."""

    tasks: list[int]
    unit: str
    epoch: int


class Publish(_Message, frozen=True, gc=False):
    """Commit a unit."""

    unit: Unit
    epoch: int
    tally: Tally


class Free(_Message, frozen=True, gc=False):
    """Segments of the worker's own arena that nobody looks at any more."""

    offsets: list[int]


class OpenArena(_Message, frozen=True, gc=False):
    """The arena of another worker; its descriptor comes with this message."""

    arena: int


class DropArena(_Message, frozen=True, gc=False):
    """An arena that is gone."""

    arena: int


class Stop(_Message, frozen=True, gc=False):
    """Tear down and end."""


ToWorker = Run | Credit | GoOn | GiveBack | Publish | Free | OpenArena | DropArena | Stop


# -- worker to driver -------------------------------------------------------------------------------------------------


class Output(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One thing that a task emitted."""

    payload: Payload | None
    """The new task; `None` only to close a unit."""
    unit: Unit | None = None
    """Its unit, where that is another one than that of the task that emitted it."""
    closes: bool = False
    """Nothing more comes for that unit."""
    items: int = 0
    """How many records a result holds; 0 for what goes on to another op."""


class Told(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What there is to say about a task since it was last reported."""

    task: int
    """Its id."""
    outputs: list[Output]
    """What it emitted."""
    tally: Tally | None
    """Counts."""
    busy_s: float = 0.0
    """Seconds of work."""
    quarantined: list[bytes] = []
    """Lines for the quarantine file that no unit's output takes."""


class Started(_Message, frozen=True, gc=False):
    """The worker is set up."""

    private_bytes: int = 0
    """Memory that it has for itself by now."""


class Grown(_Message, frozen=True, gc=False):
    """The worker has taken so much memory for itself that another one should take its place."""

    private_bytes: int


class CannotStart(_Message, frozen=True, gc=False):
    """The worker could not be set up and ends."""

    message: str


class Progress(_Message, frozen=True, gc=False):
    """A task emitted something and goes on."""

    told: Told


class Parked(_Message, frozen=True, gc=False):
    """A task waits for credit."""

    told: Told


class Done(_Message, frozen=True, gc=False):
    """Tasks that ended well."""

    tasks: list[Told]


class Failed(_Message, frozen=True, gc=False):
    """Tasks of one call that failed."""

    tasks: list[int]
    error: str
    message: str
    fatal: bool
    blamed: bool = True
    """Whether they are to blame; otherwise the worker is, and another one should run them."""


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
    """Segments that this worker no longer looks at: arena and offset."""

    leases: list[tuple[int, int]]


class Cleared(_Message, frozen=True, gc=False):
    """Batches that workers died on, and that came to their end record by record."""

    cleared: list[Suspect]


FromWorker = (
    Started | Grown | CannotStart | Progress | Parked | Done | Failed | Published | NotPublished | Returned | Cleared
)


# -- driver and zygote ------------------------------------------------------------------------------------------------


class Preload(_Message, frozen=True, gc=False):
    """Modules of ours that workers will need, told before the plan is made; to be imported meanwhile."""

    modules: list[str]
    """Their names; one that cannot be imported is left to who needs it."""


class Load(_Message, frozen=True, gc=False):
    """What workers are made of."""

    setup: bytes
    """A `WorkerSetup`, as `setup_pickle` writes it."""
    path: list[str]
    """Where to look for modules."""
    argv: list[str]
    """The arguments of the user's script, which stages may ask for."""
    takes_output: bool = False
    """A descriptor comes with this message: the stdout and stderr of all workers."""


class Fork(_Message, frozen=True, gc=False):
    """Start a worker; the descriptors of its socket and of its arena come with this message."""

    worker: int
    op: int | None
    """The op that it serves; `None`: any."""
    keep_bytes: int
    """Freed shared memory that it may keep warm."""
    rank: int = 0
    """Its place among the workers of its op."""
    num_workers: int = 1
    """How many workers its op has."""
    spill_to: str = ""
    """Folder for payloads, in place of shared memory (batch mode)."""
    node: str = "local"
    """The machine that it runs on."""
    devices: tuple[int, ...] = ()
    """Accelerators that it may use."""
    visible: str = ""
    """The same, as `CUDA_VISIBLE_DEVICES` names them."""
    share_bytes: int = 0
    """Memory that it may take for itself beyond what it begins with; 0: no limit."""
    is_limited: bool = False
    """Whether the kernel sees to that; otherwise it is only watched."""
    yields: bool = False
    """Whether it gives way to other workers on the CPU, because they keep accelerators busy."""


ToZygote = Preload | Load | Fork


class Forked(_Message, frozen=True, gc=False):
    """A worker was started."""

    worker: int
    pid: int


class Exited(_Message, frozen=True, gc=False):
    """A worker has ended."""

    worker: int
    status: int
    """Exit code, or minus the number of the signal."""


FromZygote = Forked | Exited
