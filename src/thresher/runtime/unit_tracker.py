# SPDX-License-Identifier: Apache-2.0
"""Counts and results of the units in flight, by epoch, so that a retry never counts twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thresher.core.tally import Tally
from thresher.scheduler.actions import Dispatch, Requeue, TaskRef
from thresher.scheduler.events import Emitted


@dataclass
class UnitState:
    """Counts and results of one unit in one epoch."""

    epoch: int
    """Counts and results of other epochs are discarded."""
    tally: Tally = field(default_factory=lambda: Tally(stages={}))
    """Counts so far."""
    quarantined: list[bytes] = field(default_factory=list)
    """Quarantine lines that go to no unit's output."""
    results: list[tuple[tuple[int, ...], Any]] = field(default_factory=list)
    """Output tasks with their positions in lineage order."""


class UnitTracker:
    """States of all units in flight, and the unit of each running task."""

    def __init__(self) -> None:
        self._states: dict[str, UnitState] = {}
        self._tasks: dict[int, tuple[TaskRef, tuple[int, ...]]] = {}
        self._positions: dict[int, tuple[int, ...]] = {}
        self._children: dict[int, int] = {}

    def dispatched(self, action: Dispatch) -> None:
        """Register the unit and epoch of dispatched tasks."""
        for ref in action.tasks:
            self._tasks[ref.task] = (ref, self._positions.get(ref.task, ()))
            self._children.pop(ref.task, None)
            state = self._states.get(ref.unit)
            if state is None or state.epoch < ref.epoch:
                self._states[ref.unit] = UnitState(ref.epoch)

    def requeued(self, action: Requeue) -> None:
        """Start a unit again under a new epoch."""
        if action.unit:
            state = self._states.get(action.unit)
            if state is None or state.epoch < action.epoch:
                self._states[action.unit] = UnitState(action.epoch)

    def state_of(self, task: int) -> UnitState | None:
        """Return the state that a task counts towards; `None` if its epoch is outdated."""
        found = self._tasks.get(task)
        if found is None:
            return None
        state = self._states.get(found[0].unit)
        return state if state is not None and state.epoch == found[0].epoch else None

    def emitted(self, task: int, outputs: tuple[Emitted, ...], *, are_results: bool) -> list[tuple[int, ...]]:
        """Return the positions of new tasks in lineage order. Positions of tasks that go on to another op are kept
        until the task is released, since it may be dispatched more than once."""
        found = self._tasks.get(task)
        base = found[1] if found is not None else ()
        first = self._children.get(task, 0)
        self._children[task] = first + len(outputs)
        positions = [(*base, first + number) for number in range(len(outputs))]
        if not are_results:
            for output, position in zip(outputs, positions, strict=True):
                self._positions[output.task] = position
        return positions

    def ended(self, task: int) -> str | None:
        """Forget a task that ended; return its unit if its epoch is current."""
        state = self.state_of(task)
        found = self._tasks.pop(task, None)
        self._children.pop(task, None)
        return found[0].unit if found is not None and state is not None else None

    def released(self, tasks: tuple[int, ...]) -> None:
        """Forget tasks that will not be dispatched again."""
        for task in tasks:
            self._positions.pop(task, None)

    def add(self, unit: str, state: UnitState) -> None:
        """Add the state of a unit that an external engine ran."""
        self._states[unit] = state

    def close(self, unit: str) -> UnitState:
        """Remove and return the state of a committed unit."""
        return self._states.pop(unit, None) or UnitState(0)

    def peek(self, unit: str) -> UnitState:
        """Return the state of a unit that is about to be committed."""
        return self._states.get(unit) or UnitState(0)
