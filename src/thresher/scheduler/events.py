# SPDX-License-Identifier: Apache-2.0
"""What a cluster reports. Events are all a scheduler ever learns; time, sizes and ids arrive inside them.

Rules a cluster keeps:
- A worker handles Dispatch, Resume and Commit in the order they were sent, except that a task waits while its op
  has a parked generator in that worker.
- Events of one worker arrive in the order they happened, and none arrives after its WorkerLost.
- Ids of emitted tasks are positive and never used twice in a run. Root tasks of units have negative ids, given by the
  scheduler.
"""

from __future__ import annotations

from typing import Any

import msgspec

from thresher.scheduler.model import NodeSpec, UnitSpec


class Emitted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One batch that a task emitted: a new task of the next op."""

    task: int  # id of the new task; 0: no payload, the entry only says that `unit` closes
    nbytes: int = 0  # size of its payload
    unit: str = ""  # unit it belongs to; "": the unit of the task that emitted it (a stream always names one)
    order: tuple[int, int] = (0, 0)  # place of `unit` in input order, where `unit` is named
    closes: bool = False  # a stream will emit nothing more for `unit`


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="event", tag=True):
    """Base of all events; in the log the class name stands under "event"."""


class UnitsListed(Event, frozen=True, gc=False, omit_defaults=True):
    """Units were found. Listing may go on while work runs."""

    units: tuple[UnitSpec, ...]  # the new ones
    more: bool = False  # whether another UnitsListed follows
    input_ends: bool = False  # more follows, but only units that are made of the outputs of these


class WorkerReady(Event, frozen=True, gc=False, omit_defaults=True):
    """A worker is set up and takes tasks."""

    worker: int  # id from StartWorker
    node: str = ""  # where it runs; "": where StartWorker put it
    setup_s: float = 0.0  # time from StartWorker until now; 0: not measured


class WorkerSetupFailed(Event, frozen=True, gc=False, omit_defaults=True):
    """A worker could not set up its stages and has ended."""

    worker: int  # id from StartWorker
    message: str = ""  # why, for people


class WorkerLost(Event, frozen=True, gc=False, omit_defaults=True):
    """A worker is gone: crashed, killed, hung. Nothing more comes from it."""

    worker: int  # id from StartWorker
    reason: str = ""  # why, for people
    blamed: bool = True  # False: what it died on is known and will be isolated, so that no unit is to blame
    condemned: str = ""  # stage and kind of error, where one record will be set aside for it


class NodeJoined(Event, frozen=True, gc=False, omit_defaults=True):
    """A machine became available, or came back."""

    node: str  # its name
    spec: NodeSpec | None = None  # what it has; None: it is one of RunSpec.nodes


class NodeLost(Event, frozen=True, gc=False, omit_defaults=True):
    """A machine is gone, and every worker on it."""

    node: str  # its name
    reason: str = ""  # why, for people


class TaskEmitted(Event, frozen=True, gc=False, omit_defaults=True):
    """A running task emitted something, or tells its counts, and goes on. From now on it is not retried alone."""

    task: int  # the running task
    worker: int  # where it runs
    outputs: tuple[Emitted, ...]  # in the order they were emitted
    tally: Any = None  # the driver's own data, not read here
    busy_s: float = 0.0  # time it ran since the last report


class TaskParked(Event, frozen=True, gc=False, omit_defaults=True):
    """A generator has used its credit and waits inside its worker for a Resume."""

    task: int  # the task
    worker: int  # where it is parked
    outputs: tuple[Emitted, ...] = ()  # what it emitted since the last report
    tally: Any = None  # the driver's own data, not read here
    busy_s: float = 0.0  # time it ran since the last report


class TaskDone(Event, frozen=True, gc=False, omit_defaults=True):
    """A task ended well."""

    task: int  # the task
    worker: int  # where it ran
    outputs: tuple[Emitted, ...] = ()  # what it emitted since the last report
    busy_s: float = 0.0  # time it ran since the last report
    tally: Any = None  # the driver's own data, not read here


class TaskFailed(Event, frozen=True, gc=False, omit_defaults=True):
    """A task ended with an error; its worker is still good, unless it says that it is at fault itself."""

    task: int  # the task
    worker: int  # where it ran
    error: str = ""  # kind of error
    message: str = ""  # text for people
    fatal: bool = False  # trying again is pointless: the run fails
    blamed: bool = True  # False: the worker is at fault, and makes room for a fresh one
    tally: Any = None  # the driver's own data, not read here


class PayloadLost(Event, frozen=True, gc=False, omit_defaults=True):
    """The payload of a task that waits or runs can no longer be read."""

    task: int  # the task


class UnitCommitted(Event, frozen=True, gc=False, omit_defaults=True):
    """A unit is recorded as done. Final, whatever epoch it was committed under."""

    unit: str  # its id
    epoch: int = 0  # the epoch that was committed
    tally: Any = None  # the driver's own data, not read here
    whole: bool = False  # it was run and committed elsewhere: no task and no Commit of it was asked for


class CommitFailed(Event, frozen=True, gc=False, omit_defaults=True):
    """A Commit could not be performed; nothing of the unit is visible."""

    unit: str  # its id
    epoch: int = 0  # the epoch of the Commit
    message: str = ""  # text for people
    retryable: bool = True  # False: the run fails at once


class MemorySample(Event, frozen=True, gc=False, omit_defaults=True):
    """Memory of the whole run, measured."""

    used_bytes: int  # in use now
    limit_bytes: int  # the ceiling; 0: none


class WorkerMemory(Event, frozen=True, gc=False, omit_defaults=True):
    """Memory of one worker, measured. Sent when it is above the worker's limit, and for all when memory is short."""

    worker: int  # id from StartWorker
    private_bytes: int  # what it has for itself, shared memory left out
    limit_bytes: int = 0  # what it should stay below; 0: no limit


class Tick(Event, frozen=True, gc=False, omit_defaults=True):
    """Time has passed."""

    t: float = msgspec.field(name="at")  # seconds since the start; every line of the log has a "t" of its own


class StopRequested(Event, frozen=True, gc=False, omit_defaults=True):
    """The run shall end early, in an orderly way."""

    reason: str = ""  # why, for people


AnyEvent = (
    UnitsListed
    | WorkerReady
    | WorkerSetupFailed
    | WorkerLost
    | NodeJoined
    | NodeLost
    | TaskEmitted
    | TaskParked
    | TaskDone
    | TaskFailed
    | PayloadLost
    | UnitCommitted
    | CommitFailed
    | MemorySample
    | WorkerMemory
    | Tick
    | StopRequested
)
