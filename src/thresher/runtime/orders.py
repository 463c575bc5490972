# SPDX-License-Identifier: Apache-2.0
"""What passes between a worker and the body that drives it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from thresher.core.plan import Plan
from thresher.core.resources import WorkerMetadata
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.ledger.place import CommitPlace


class TaskOrder(msgspec.Struct, frozen=True, eq=False):
    """What a worker is asked to run."""

    op: int
    """The op."""
    unit: Unit | None
    """The unit of its first task."""
    epoch: int
    """The unit's epoch."""
    tasks: list[Task]
    """Its input; empty for an op that reads units. Several only for an op with a `batch_size`."""
    done: frozenset[str] = frozenset()
    """Committed units of a stream, to be passed over."""


class Produced(msgspec.Struct, frozen=True, eq=False):
    """One thing that an op emits."""

    task: Task | None
    """The task; `None` to close a unit, or just to give the body a moment."""
    unit: Unit | None = None
    """The unit that it belongs to, where that is another one than the order's (cut from a stream)."""
    closes: bool = False
    """Nothing more comes for that unit."""
    parent: int = 0
    """Which of the order's tasks it was made of."""


class TaskReport(msgspec.Struct):
    """What there is to say about a task since it was last asked."""

    tally: Tally = msgspec.field(default_factory=Tally)
    """Counts."""
    busy_s: float = 0.0
    """Seconds of work."""
    quarantined: list[bytes] = []
    """Lines for the quarantine file that no unit's output takes (a pipeline without a writer)."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is started with."""

    plan: Plan
    """What there is to do."""
    place: CommitPlace | None = None
    """Where units are committed; `None` where the pipeline has no writer."""
    metadata: WorkerMetadata = field(default_factory=WorkerMetadata)
    """Who the worker is."""
