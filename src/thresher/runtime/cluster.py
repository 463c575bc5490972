# SPDX-License-Identifier: Apache-2.0
"""The seam between the driver and whatever runs the work: actions in, events out.

On an event, `tally` is the `Tally` of the worker's `TaskReport` (also on `TaskEmitted` without outputs, which a body
may send now and then while a long task runs, so that people see progress). On `UnitCommitted` it is the `CommitRecord`
that the worker wrote; on one that is `whole`, where a pipeline has no writer, the `UnitPage` that the unit came to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.runtime.orders import WorkerSetup
from thresher.scheduler.actions import AnyAction, Commit
from thresher.scheduler.events import AnyEvent


@dataclass(frozen=True)
class MemoryReading:
    """Memory of the driver and everything that it started."""

    used_bytes: int
    """In use, shared memory counted once."""
    payload_bytes: int = 0
    """Of that: payloads in shared memory."""


class Cluster(Protocol):
    """Runs actions and tells what happened. Never blocks in `perform`."""

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Get ready to start workers that run this plan; `output` is the descriptor that they should print to."""

    def add_units(self, units: Sequence[Unit], tasks: dict[str, Task] | None = None) -> None:
        """Make units known before they are dispatched; `tasks` holds the initial task of units that no reader reads."""

    def mark_done(self, unit_ids: Sequence[str]) -> None:
        """These units are committed: a stream that is read again passes over them."""

    def perform(self, action: AnyAction) -> None:
        """Carry out anything but a commit."""

    def commit(self, action: Commit, tally: Tally) -> None:
        """Let the worker that holds the unit's output publish it. Not called for a commit without a worker."""

    def poll(self, timeout_s: float) -> list[AnyEvent]:
        """What happened; waits at most `timeout_s` for something to happen."""

    def take_result(self, task: int) -> Any:
        """An output of the last stage, in whatever form `decode_result` reads; its payload is then free."""

    def result_items(self, payload: Any) -> int:
        """How many records a result holds, without decoding it."""

    def take_quarantined(self, task: int) -> list[bytes]:
        """Quarantine lines that a task reported because no unit's output takes them (a pipeline without a writer)."""

    def decode_result(self, payload: Any) -> Task:
        """The task behind a result."""

    def memory(self) -> MemoryReading:
        """Measured now, cheaply."""

    def close(self, *, kill: bool = False) -> None:
        """End all workers (`kill`: at once, without their teardown) and free everything. May be called twice."""
