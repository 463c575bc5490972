# SPDX-License-Identifier: Apache-2.0
"""Actions: the decisions of the scheduler. A cluster performs them in the given order."""

from __future__ import annotations

import msgspec

from thresher.scheduler.model import LOCAL_NODE


class TaskRef(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One task inside a Dispatch."""

    task: int  # task id; negative: the root task of `unit`, which has no payload
    unit: str  # unit it belongs to
    epoch: int = 0  # epoch of the unit
    credit: int = -1  # bytes it may emit before it parks; -1: no limit


class Action(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="action", tag=True):
    """Base class of all actions. The log stores the class name under "action"."""


class StartWorker(Action, frozen=True, gc=False, omit_defaults=True):
    """Start a worker. Reply: WorkerReady, WorkerSetupFailed or WorkerLost."""

    worker: int  # new id, never used before in this run
    op: int | None = None  # the op it serves; None: a shared worker, for every op without dedicated workers
    node: str = LOCAL_NODE  # node to start it on
    devices: tuple[int, ...] = ()  # accelerators of that node that it may use; several workers may share one


class StopWorker(Action, frozen=True, gc=False, omit_defaults=True):
    """Stop a worker that is no longer needed or is being replaced. It holds no task. No reply."""

    worker: int  # worker id
    reason: str = ""  # "age", "memory", "tasks" or "failure": recycled; "surplus", "moved" or "short": not needed here


class Rescale(Action, frozen=True, gc=False, omit_defaults=True):
    """The autoscaler decided how many dedicated workers an op should have. For observers: there is nothing to do."""

    op: int  # the op
    workers: int  # number of workers from now on
    before: int  # number of workers so far


class Dispatch(Action, frozen=True, gc=False, omit_defaults=True):
    """Send tasks of one op to a worker, which runs them in this order, `batch_size` tasks per call.

    Reply: TaskDone, TaskFailed or TaskParked for every task, or WorkerLost for all of them.
    """

    worker: int  # worker that runs them
    op: int  # the op to run
    tasks: tuple[TaskRef, ...]  # in lineage order


class GrantCredit(Action, frozen=True, gc=False, omit_defaults=True):
    """Add credit to a running task. If it has parked in the meantime, the worker resumes it."""

    worker: int  # worker that runs it
    task: int  # the task
    credit: int  # bytes, added to the remaining credit


class Resume(Action, frozen=True, gc=False, omit_defaults=True):
    """Resume a parked task. The worker queues it like a Dispatch."""

    worker: int  # worker that holds the parked task
    task: int  # the task
    credit: int = -1  # bytes it may emit before it parks again; -1: no limit


class Release(Action, frozen=True, gc=False, omit_defaults=True):
    """Free payloads whose last reader is done or whose epoch is void."""

    tasks: tuple[int, ...]  # tasks whose payloads are freed


class Requeue(Action, frozen=True, gc=False, omit_defaults=True):
    """Take work back from a worker. No reply, and no further event about these tasks.

    The worker closes the parked generators among `tasks` and drops the queued ones; none of them is running.
    If `unit` is set, the unit restarts: the worker drops every sink state of it older than `epoch`.
    """

    worker: int  # worker that loses the tasks
    tasks: tuple[int, ...] = ()  # parked tasks, or tasks queued behind a parked generator of their op
    unit: str = ""  # unit that restarts, if any
    epoch: int = 0  # new epoch of that unit


class Commit(Action, frozen=True, gc=False, omit_defaults=True):
    """Commit a finished unit. Reply: UnitCommitted or CommitFailed, or WorkerLost."""

    unit: str  # unit id
    epoch: int = 0  # the epoch to commit
    worker: int | None = None  # worker with the sink state; None: no sink received any of it, the driver records it


class Finish(Action, frozen=True, gc=False, omit_defaults=True):
    """End the run. The last action."""

    status: str  # "finished" or "stopped"


class Fail(Action, frozen=True, gc=False, omit_defaults=True):
    """Fail the run. The last action; committed units stay."""

    reason: str  # what happened, to which unit, in which op
    unit: str = ""  # the unit that caused it, if any
    op: int | None = None  # the op that caused it, if any


AnyAction = (
    StartWorker | StopWorker | Rescale | Dispatch | GrantCredit | Resume | Release | Requeue | Commit | Finish | Fail
)
