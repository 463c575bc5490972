# SPDX-License-Identifier: Apache-2.0
"""Interface between the driver and an execution backend: actions in, events out.

On an event, `tally` is the `Tally` of the worker's `TaskReport` (also on `TaskEmitted` without outputs, which a backend
may send while a long task runs, to show progress). On `UnitCommitted` it is the `CommitRecord` that the worker wrote;
on one that is `whole`, in a pipeline without a writer, it is the `UnitAccount` of the unit.
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
from thresher.scheduler.events import AnyEvent, DeviceReading


@dataclass(frozen=True)
class MemoryReading:
    """Memory of the driver and all its descendants."""

    used_bytes: int
    """Bytes in use, shared memory counted once."""
    payload_bytes: int = 0
    """Part of it: payloads in shared memory."""
    devices: tuple[DeviceReading, ...] = ()
    """Use of the accelerators, if it was measured this time."""


class Cluster(Protocol):
    """Executes actions and returns events. `perform` never blocks."""

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Prepare to start workers that run this plan; `output` is the descriptor for what they print."""

    def add_units(self, units: Sequence[Unit], tasks: dict[str, Task] | None = None) -> None:
        """Register units before they are dispatched; `tasks` holds the initial tasks of units that no reader reads."""

    def mark_done(self, unit_ids: Sequence[str]) -> None:
        """Mark units as committed: a stream that is read again skips them."""

    def perform(self, action: AnyAction) -> None:
        """Execute an action other than a commit."""

    def commit(self, action: Commit, tally: Tally) -> None:
        """Make the worker that holds the unit's output publish it. Not called for a commit without a worker."""

    def poll(self, timeout_s: float) -> list[AnyEvent]:
        """Return new events; wait at most `timeout_s` for the first one."""

    def take_result(self, task: int) -> Any:
        """Return an output of the last stage, in the form that `decode_result` reads, and free its payload."""

    def result_items(self, payload: Any) -> int:
        """Return the number of records in a result, without decoding it."""

    def take_quarantined(self, task: int) -> list[bytes]:
        """Return the quarantine lines of a task that go to no unit's output (a pipeline without a writer)."""

    def decode_result(self, payload: Any) -> Task:
        """Decode a result."""

    def memory(self) -> MemoryReading:
        """Return a cheap current measurement."""

    def close(self, *, kill: bool = False) -> None:
        """Stop all workers (`kill`: at once, without their teardown) and free all resources. May be called twice."""
