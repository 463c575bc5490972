# SPDX-License-Identifier: Apache-2.0
"""Ranks of workers within an op, and which workers must have ended before another may start.

A worker that is stopping keeps its accelerators and its model until its process has ended. Its successor waits for
that, so that two models never share the memory of one device.
"""

from __future__ import annotations

from dataclasses import dataclass

from thresher.scheduler.actions import StartWorker


@dataclass
class _Place:
    """A worker that runs, waits or is stopping."""

    action: StartWorker
    """The action that requested it."""
    rank: int = -1
    """Rank among the workers of its op; -1 while it waits."""
    leaves: bool = False
    """True if it was stopped and has not ended yet."""


class WorkerPlaces:
    """All workers of a run that are running, waiting to start or stopping."""

    def __init__(self, fixed: dict[int | None, int]) -> None:
        """`fixed`: number of workers of each op where it is fixed; `None` stands for the shared workers."""
        self._fixed = fixed
        self._places: dict[int, _Place] = {}
        self._waiting: dict[int, _Place] = {}

    def add(self, action: StartWorker) -> bool:
        """Register a worker. Return True if it may start now; otherwise `gone` returns it later."""
        place = self._places[action.worker] = _Place(action)
        if self._is_free(place):
            self._assign_rank(place)
            return True
        self._waiting[action.worker] = place
        return False

    def leave(self, worker: int) -> bool:
        """Mark a worker as stopping. Return True if it has a process that must be stopped."""
        place = self._places.get(worker)
        if place is None:
            return False
        if self._waiting.pop(worker, None) is not None:
            del self._places[worker]
            return False
        place.leaves = True
        return True

    def gone(self, worker: int) -> list[StartWorker]:
        """Remove a worker whose process has ended. Return those that waited for it and may start now."""
        if self._places.pop(worker, None) is None:
            return []
        free = [place for place in self._waiting.values() if self._is_free(place)]
        for place in free:
            del self._waiting[place.action.worker]
            self._assign_rank(place)
        return [place.action for place in free]

    def action(self, worker: int) -> StartWorker | None:
        """Return the action that requested a worker; `None` if it is stopping or gone."""
        place = self._places.get(worker)
        return None if place is None or place.leaves else place.action

    def rank(self, worker: int) -> int:
        """Return the rank of a worker among those of its op, from 0."""
        return self._places[worker].rank

    def count(self, op: int | None) -> int:
        """Return the number of workers of an op: the fixed number, or the current one."""
        there = sum(1 for place in self._places.values() if place.action.op == op and not place.leaves)
        return self._fixed.get(op) or max(1, there)

    def _is_free(self, place: _Place) -> bool:
        """Return True if no stopping worker still holds what this worker needs."""
        return not any(other.leaves and _conflicts(other.action, place.action) for other in self._places.values())

    def _assign_rank(self, place: _Place) -> None:
        op = place.action.op
        taken = {other.rank for other in self._places.values() if other.action.op == op and not other.leaves}
        place.rank = next(rank for rank in range(len(taken) + 1) if rank not in taken)


def _conflicts(leaving: StartWorker, wanted: StartWorker) -> bool:
    if leaving.node != wanted.node:
        return False
    if wanted.devices:
        return not set(wanted.devices).isdisjoint(leaving.devices)
    return wanted.op is not None and wanted.op == leaving.op
