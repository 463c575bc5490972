# SPDX-License-Identifier: Apache-2.0
"""Play events to a scheduler by hand and look at its actions; invariants are checked after every step."""

from __future__ import annotations

from typing import Any

from thresher.scheduler.actions import AnyAction, Dispatch
from thresher.scheduler.events import AnyEvent, Emitted, TaskDone, UnitsListed, WorkerReady
from thresher.scheduler.invariants import check
from thresher.scheduler.model import OpSpec, RunSpec, UnitSpec
from thresher.scheduler.step import Scheduler

WHOLE = (OpSpec(index=0, name="copy", source=True, sink=True),)
READ_WRITE = (
    OpSpec(index=0, name="read", source=True, next=1, output_bytes=100),
    OpSpec(index=1, name="write", sink=True, ordered=True),
)
READ_FILTER_WRITE = (
    OpSpec(index=0, name="read", source=True, next=1, output_bytes=100),
    OpSpec(index=1, name="filter", next=2, output_bytes=100),
    OpSpec(index=2, name="write", sink=True, ordered=True),
)


class Play:
    """A run told step by step."""

    def __init__(self, ops: tuple[OpSpec, ...], *, workers: int = 1, budget: int = 10_000, **more: Any) -> None:
        self.scheduler = Scheduler(RunSpec(ops=ops, shared_workers=workers, budget_bytes=budget, **more))
        self.started = self.scheduler.start()

    def feed(self, *events: AnyEvent) -> list[AnyAction]:
        """Take events one after another; gives all actions."""
        actions: list[AnyAction] = []
        for event in events:
            actions += self.scheduler.step(event)
            check(self.scheduler)
        return actions

    def ready(self) -> list[AnyAction]:
        """All workers that were asked for are up."""
        return self.feed(*(WorkerReady(action.worker) for action in only(self.started, "StartWorker")))

    def units(self, *names: str, stream: bool = False, more: bool = False) -> list[AnyAction]:
        """List units, in this order."""
        return self.feed(UnitsListed(tuple(UnitSpec(n, (i, 0), 0, 0, stream) for i, n in enumerate(names)), more))


def only(actions: list[AnyAction], *kinds: str) -> list[Any]:
    """The actions of some kinds."""
    return [action for action in actions if type(action).__name__ in kinds]


def dispatched(actions: list[AnyAction]) -> list[tuple[int, int, list[int]]]:
    """(worker, op, tasks) of every Dispatch."""
    return [(a.worker, a.op, [ref.task for ref in a.tasks]) for a in actions if isinstance(a, Dispatch)]


def batches(*tasks: int, nbytes: int = 100) -> tuple[Emitted, ...]:
    """Emitted tasks."""
    return tuple(Emitted(task, nbytes) for task in tasks)


def done(task: int, worker: int, *outputs: int, busy_s: float = 1.0) -> TaskDone:
    """A task ended and emitted these tasks of 100 bytes. One second is long: shared workers prefetch nothing."""
    return TaskDone(task, worker, batches(*outputs), busy_s)
