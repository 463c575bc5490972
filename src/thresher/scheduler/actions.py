# SPDX-License-Identifier: Apache-2.0
"""What a scheduler decides. A cluster performs actions in the order they are given."""

from __future__ import annotations

import msgspec

from thresher.scheduler.model import LOCAL_NODE


class TaskRef(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One task inside a Dispatch."""

    task: int  # its id; negative: the root task of `unit`, which has no payload
    unit: str  # unit it belongs to
    epoch: int = 0  # epoch of the unit
    credit: int = -1  # bytes it may emit before it parks; -1: no limit


class Action(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="action", tag=True):
    """Base of all actions; in the log the class name stands under "action"."""


class StartWorker(Action, frozen=True, gc=False, omit_defaults=True):
    """Start a worker. Answer: WorkerReady, WorkerSetupFailed or WorkerLost."""

    worker: int  # new id, never used before in this run
    op: int | None = None  # the op it serves; None: a shared worker, for every op without workers of its own
    node: str = LOCAL_NODE  # where it shall run
    devices: tuple[int, ...] = ()  # accelerators of that node it may use; several workers may share one


class StopWorker(Action, frozen=True, gc=False, omit_defaults=True):
    """End a worker that is no longer needed, or whose place another one takes. It holds no task. No answer."""

    worker: int  # its id


class Dispatch(Action, frozen=True, gc=False, omit_defaults=True):
    """Give tasks of one op to a worker, which runs them in this order, `batch_size` of them in each call.

    Answer: for every task TaskDone, TaskFailed or TaskParked, or WorkerLost for all.
    """

    worker: int  # who runs them
    op: int  # the op to run
    tasks: tuple[TaskRef, ...]  # in lineage order


class GrantCredit(Action, frozen=True, gc=False, omit_defaults=True):
    """Give more credit to a task that runs. If it has parked in the meantime, the worker resumes it."""

    worker: int  # who runs it
    task: int  # the task
    credit: int  # bytes, added to what is left


class Resume(Action, frozen=True, gc=False, omit_defaults=True):
    """Let a parked task go on. The worker takes it up in its turn, like a Dispatch."""

    worker: int  # where it is parked
    task: int  # the task
    credit: int = -1  # bytes it may emit before it parks again; -1: no limit


class Release(Action, frozen=True, gc=False, omit_defaults=True):
    """Free payloads: their last reader is done, or their epoch is void."""

    tasks: tuple[int, ...]  # tasks whose payload is free


class Requeue(Action, frozen=True, gc=False, omit_defaults=True):
    """Take work back from a worker. No answer, and no further event about these tasks.

    The worker closes the parked generators among `tasks` and forgets the waiting ones; none of them is running.
    If `unit` is named, the unit starts again: the worker drops every sink state of it older than `epoch`.
    """

    worker: int  # who gives back
    tasks: tuple[int, ...] = ()  # parked, or waiting behind a parked generator of their op
    unit: str = ""  # unit that starts again, if any
    epoch: int = 0  # its new epoch


class Split(Action, frozen=True, gc=False, omit_defaults=True):
    """Run a task again in smaller pieces, to isolate a record or to fit memory. Reserved: not given yet."""

    task: int  # the task
    pieces: int  # into how many


class Quarantine(Action, frozen=True, gc=False, omit_defaults=True):
    """Set a record aside with its reason and go on without it. Reserved: not given yet."""

    task: int  # the task that holds it
    record: str  # its id
    reason: str  # why


class Commit(Action, frozen=True, gc=False, omit_defaults=True):
    """Make a finished unit final. Answer: UnitCommitted or CommitFailed, or WorkerLost."""

    unit: str  # its id
    epoch: int = 0  # the epoch to commit
    worker: int | None = None  # who holds the sink state; None: no sink saw anything of it, the driver records it


class Finish(Action, frozen=True, gc=False, omit_defaults=True):
    """The run is over. The last action."""

    status: str  # "finished" or "stopped"


class Fail(Action, frozen=True, gc=False, omit_defaults=True):
    """The run cannot go on. The last action; what is committed stays."""

    reason: str  # what happened, to which unit, in which op
    unit: str = ""  # the unit, if one is to blame
    op: int | None = None  # the op, if one is to blame


AnyAction = (
    StartWorker
    | StopWorker
    | Dispatch
    | GrantCredit
    | Resume
    | Release
    | Requeue
    | Split
    | Quarantine
    | Commit
    | Finish
    | Fail
)
