# SPDX-License-Identifier: Apache-2.0
"""What the driver knows about units under way: their counts and results by epoch, so that a retry never counts
twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thresher.core.tally import Tally
from thresher.scheduler.actions import Dispatch, Requeue, TaskRef
from thresher.scheduler.events import Emitted


@dataclass
class UnitPage:
    """One unit in one epoch."""

    epoch: int
    """What is of another epoch does not count."""
    tally: Tally = field(default_factory=lambda: Tally(stages={}))
    """Counts so far."""
    quarantined: list[bytes] = field(default_factory=list)
    """Quarantine lines that no unit's output takes."""
    results: list[tuple[tuple[int, ...], Any]] = field(default_factory=list)
    """Output tasks with their place in lineage order."""


class UnitBook:
    """Pages by unit; tasks lead to their page."""

    def __init__(self) -> None:
        self._pages: dict[str, UnitPage] = {}
        self._tasks: dict[int, tuple[TaskRef, tuple[int, ...]]] = {}
        self._paths: dict[int, tuple[int, ...]] = {}
        self._children: dict[int, int] = {}

    def dispatched(self, action: Dispatch) -> None:
        """Tasks begin: remember to which unit and epoch they belong."""
        for ref in action.tasks:
            self._tasks[ref.task] = (ref, self._paths.get(ref.task, ()))
            self._children.pop(ref.task, None)
            page = self._pages.get(ref.unit)
            if page is None or page.epoch < ref.epoch:
                self._pages[ref.unit] = UnitPage(ref.epoch)

    def requeued(self, action: Requeue) -> None:
        """A unit starts again under a new epoch."""
        if action.unit:
            page = self._pages.get(action.unit)
            if page is None or page.epoch < action.epoch:
                self._pages[action.unit] = UnitPage(action.epoch)

    def page(self, task: int) -> UnitPage | None:
        """The page that a task writes to; `None` when its epoch is void."""
        found = self._tasks.get(task)
        if found is None:
            return None
        page = self._pages.get(found[0].unit)
        return page if page is not None and page.epoch == found[0].epoch else None

    def emitted(self, task: int, outputs: tuple[Emitted, ...], *, are_results: bool) -> list[tuple[int, ...]]:
        """Places of new tasks in lineage order. Those of tasks that go on are kept until the task is released, since it
        may be dispatched more than once."""
        found = self._tasks.get(task)
        base = found[1] if found is not None else ()
        first = self._children.get(task, 0)
        self._children[task] = first + len(outputs)
        places = [(*base, first + number) for number in range(len(outputs))]
        if not are_results:
            for output, place in zip(outputs, places, strict=True):
                self._paths[output.task] = place
        return places

    def ended(self, task: int) -> str | None:
        """Nothing more comes from a task; its unit, if its epoch still counts."""
        page = self.page(task)
        found = self._tasks.pop(task, None)
        self._children.pop(task, None)
        return found[0].unit if found is not None and page is not None else None

    def released(self, tasks: tuple[int, ...]) -> None:
        """Tasks that will not be dispatched again."""
        for task in tasks:
            self._paths.pop(task, None)

    def put(self, unit: str, page: UnitPage) -> None:
        """Take up the page of a unit that was run elsewhere."""
        self._pages[unit] = page

    def close(self, unit: str) -> UnitPage:
        """The unit is committed: take its page out."""
        return self._pages.pop(unit, None) or UnitPage(0)

    def peek(self, unit: str) -> UnitPage:
        """The page of a unit that is about to be committed."""
        return self._pages.get(unit) or UnitPage(0)
