# SPDX-License-Identifier: Apache-2.0
"""Data passed between a worker and the process that runs it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from thresher.core.planning.plan import Plan
from thresher.core.resources import WorkerMetadata
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.ledger.unit_output import CommitTarget


class TaskOrder(msgspec.Struct, frozen=True, eq=False):
    """A request to run an op."""

    op: int
    """Index of the op."""
    unit: Unit | None
    """The unit of its first task."""
    epoch: int
    """The unit's epoch."""
    tasks: list[Task]
    """Input tasks; empty for an op that reads units, several only for an op with a `batch_size`."""
    done: frozenset[str] = frozenset()
    """Committed units of a stream, to be skipped."""


class Produced(msgspec.Struct, frozen=True, eq=False):
    """One output of an op."""

    task: Task | None
    """The task; `None` to close a unit, or to let the process handle messages."""
    unit: Unit | None = None
    """Its unit, if that differs from the order's (cut from a stream)."""
    closes: bool = False
    """True if nothing more is emitted for that unit."""
    parent: int = 0
    """Index of the order's task that it was made of."""


class TaskReport(msgspec.Struct):
    """Counts of a task since its last report."""

    tally: Tally = msgspec.field(default_factory=Tally)
    """Counts."""
    busy_s: float = 0.0
    """Seconds of work."""
    quarantined: list[bytes] = []
    """Quarantine lines that go to no unit's output (a pipeline without a writer)."""


@dataclass(frozen=True)
class WorkerSetup:
    """Settings that a worker is started with."""

    plan: Plan
    """The plan."""
    place: CommitTarget | None = None
    """Place where units are committed; `None` if the pipeline has no writer."""
    metadata: WorkerMetadata = field(default_factory=WorkerMetadata)
    """Identity of the worker."""
    announce: str = "lines"
    """Form of the announcement that rules are compiled: `bar`, `lines` or `none`."""
