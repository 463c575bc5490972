# SPDX-License-Identifier: Apache-2.0
"""Events: the reports of a cluster. They are the only input of the scheduler and carry time, sizes and ids.

A cluster guarantees:
- A worker handles Dispatch, Resume and Commit in the order they were sent, except that a task waits while its op
  has a parked generator in that worker.
- Events of one worker arrive in the order they happened, and none arrives after its WorkerLost.
- Ids of emitted tasks are positive and never used twice in a run. The scheduler assigns negative ids to the root
  tasks of units.
"""

from __future__ import annotations

from typing import Any

import msgspec

from thresher.scheduler.model import NodeSpec, UnitSpec


class Emitted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One batch that a task emitted: a new task of the next op."""

    task: int  # id of the new task; 0: no payload, the entry only closes `unit`
    nbytes: int = 0  # size of its payload
    unit: str = ""  # unit it belongs to; "": the unit of the emitting task (a stream always sets it)
    order: tuple[int, int] = (0, 0)  # position of `unit` in input order, if `unit` is set
    closes: bool = False  # a stream will emit nothing more for `unit`


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="event", tag=True):
    """Base class of all events. The log stores the class name under "event"."""


class UnitsListed(Event, frozen=True, gc=False, omit_defaults=True):
    """New units of input. Listing may continue while tasks run."""

    units: tuple[UnitSpec, ...]  # the new ones
    more: bool = False  # True if another UnitsListed follows
    input_ends: bool = False  # True if the units that follow are made from the outputs of these


class WorkerReady(Event, frozen=True, gc=False, omit_defaults=True):
    """A worker is set up and takes tasks."""

    worker: int  # id from StartWorker
    node: str = ""  # node it runs on; "": the node of StartWorker
    setup_s: float = 0.0  # time from StartWorker until now; 0: not measured


class WorkerSetupFailed(Event, frozen=True, gc=False, omit_defaults=True):
    """A worker could not set up its stages and has ended."""

    worker: int  # id from StartWorker
    message: str = ""  # human-readable cause


class WorkerLost(Event, frozen=True, gc=False, omit_defaults=True):
    """A worker crashed, was killed or hung. No further event comes from it."""

    worker: int  # id from StartWorker
    reason: str = ""  # human-readable cause
    blamed: bool = True  # False: the record it crashed on is known and will be isolated; no unit is blamed
    condemned: str = ""  # stage and kind of error, if one record will be quarantined for it


class NodeJoined(Event, frozen=True, gc=False, omit_defaults=True):
    """A node became available, or came back."""

    node: str  # name of the node
    spec: NodeSpec | None = None  # its resources; None: it is one of RunSpec.nodes


class NodeLost(Event, frozen=True, gc=False, omit_defaults=True):
    """A node was lost with every worker on it."""

    node: str  # name of the node
    reason: str = ""  # human-readable cause


class TaskEmitted(Event, frozen=True, gc=False, omit_defaults=True):
    """A running task emitted batches or reported counts, and continues. It can no longer be retried alone."""

    task: int  # the running task
    worker: int  # where it runs
    outputs: tuple[Emitted, ...]  # in the order they were emitted
    tally: Any = None  # the driver's own data, not read here
    busy_s: float = 0.0  # time it ran since the last report


class TaskParked(Event, frozen=True, gc=False, omit_defaults=True):
    """A generator used up its credit and waits in its worker for a Resume."""

    task: int  # the task
    worker: int  # where it is parked
    outputs: tuple[Emitted, ...] = ()  # what it emitted since the last report
    tally: Any = None  # the driver's own data, not read here
    busy_s: float = 0.0  # time it ran since the last report


class TaskDone(Event, frozen=True, gc=False, omit_defaults=True):
    """A task finished without an error."""

    task: int  # the task
    worker: int  # where it ran
    outputs: tuple[Emitted, ...] = ()  # what it emitted since the last report
    busy_s: float = 0.0  # time it ran since the last report
    tally: Any = None  # the driver's own data, not read here


class TaskFailed(Event, frozen=True, gc=False, omit_defaults=True):
    """A task failed with an error. Its worker is still usable unless `blamed` is False."""

    task: int  # the task
    worker: int  # where it ran
    error: str = ""  # kind of error
    message: str = ""  # human-readable text
    fatal: bool = False  # a retry cannot succeed: the run fails
    blamed: bool = True  # False: the worker caused the error and is replaced
    tally: Any = None  # the driver's own data, not read here


class PayloadLost(Event, frozen=True, gc=False, omit_defaults=True):
    """The payload of a waiting or running task can no longer be read."""

    task: int  # the task


class UnitCommitted(Event, frozen=True, gc=False, omit_defaults=True):
    """A unit is recorded as done. This is final, whatever epoch it was committed under."""

    unit: str  # unit id
    epoch: int = 0  # the epoch that was committed
    tally: Any = None  # the driver's own data, not read here
    whole: bool = False  # it was run and committed elsewhere, without a task or a Commit of this scheduler


class CommitFailed(Event, frozen=True, gc=False, omit_defaults=True):
    """A Commit failed; none of the unit's output is visible."""

    unit: str  # unit id
    epoch: int = 0  # the epoch of the Commit
    message: str = ""  # human-readable text
    retryable: bool = True  # False: the run fails at once


class DeviceReading(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Measured use of one accelerator, by any process."""

    name: str  # its node and number, such as "local/0"
    used_bytes: int  # memory in use
    total_bytes: int  # its memory
    busy_percent: float = 0.0  # share of the last sampling period in which it was busy


class MemorySample(Event, frozen=True, gc=False, omit_defaults=True):
    """Measured memory of the whole run."""

    used_bytes: int  # in use now
    limit_bytes: int  # the ceiling; 0: none
    devices: tuple[DeviceReading, ...] = ()  # use of its accelerators, as far as something measures them


class WorkerMemory(Event, frozen=True, gc=False, omit_defaults=True):
    """Measured memory of one worker. Sent when it is above the worker's limit, and for all when memory is short."""

    worker: int  # id from StartWorker
    private_bytes: int  # private memory, without shared memory
    limit_bytes: int = 0  # limit that it should stay below; 0: none


class Tick(Event, frozen=True, gc=False, omit_defaults=True):
    """Time has passed."""

    t: float = msgspec.field(name="at")  # seconds since the start; every line of the log has a "t" of its own


class StopRequested(Event, frozen=True, gc=False, omit_defaults=True):
    """The run was asked to end early, in an orderly way."""

    reason: str = ""  # human-readable cause
    at_once: bool = False  # do not wait for what is under way


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
