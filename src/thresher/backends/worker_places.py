# SPDX-License-Identifier: Apache-2.0
"""Which worker has which place: ranks within a stage, and who must be gone before another one may start.

A worker that ends keeps its accelerators and its model until its process is gone. Its successor waits for that, so that
two of them never stand in the memory of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from thresher.scheduler.actions import StartWorker


@dataclass
class _Place:
    """The place of one worker."""

    action: StartWorker
    """What was asked for."""
    rank: int = -1
    """Among the workers of its op; -1: it waits and has none yet."""
    leaves: bool = False
    """It was told to end and is not gone yet."""


class WorkerPlaces:
    """All workers of a run that are there, on their way in or on their way out."""

    def __init__(self, fixed: dict[int | None, int]) -> None:
        """`fixed`: how many workers an op has, where that is certain; `None` stands for the shared ones."""
        self._fixed = fixed
        self._places: dict[int, _Place] = {}
        self._waiting: dict[int, _Place] = {}

    def add(self, action: StartWorker) -> bool:
        """Book a worker; whether it may start now. One that may not is given by `gone`, later."""
        place = self._places[action.worker] = _Place(action)
        if self._is_free(place):
            self._settle(place)
            return True
        self._waiting[action.worker] = place
        return False

    def leave(self, worker: int) -> bool:
        """A worker is to end; whether there is a process that must be told."""
        place = self._places.get(worker)
        if place is None:
            return False
        if self._waiting.pop(worker, None) is not None:
            del self._places[worker]
            return False
        place.leaves = True
        return True

    def gone(self, worker: int) -> list[StartWorker]:
        """A worker's process has ended: those that waited for it and may start now."""
        if self._places.pop(worker, None) is None:
            return []
        free = [place for place in self._waiting.values() if self._is_free(place)]
        for place in free:
            del self._waiting[place.action.worker]
            self._settle(place)
        return [place.action for place in free]

    def action(self, worker: int) -> StartWorker | None:
        """What was asked for a worker; `None` for one that ends or is gone."""
        place = self._places.get(worker)
        return None if place is None or place.leaves else place.action

    def rank(self, worker: int) -> int:
        """The place of a worker among those of its op, from 0 on."""
        return self._places[worker].rank

    def count(self, op: int | None) -> int:
        """How many workers an op has: as many as it was given, or as there are now."""
        there = sum(1 for place in self._places.values() if place.action.op == op and not place.leaves)
        return self._fixed.get(op) or max(1, there)

    def _is_free(self, place: _Place) -> bool:
        """Whether nobody who leaves still has what the worker needs."""
        return not any(other.leaves and _in_the_way(other.action, place.action) for other in self._places.values())

    def _settle(self, place: _Place) -> None:
        op = place.action.op
        taken = {other.rank for other in self._places.values() if other.action.op == op and not other.leaves}
        place.rank = next(rank for rank in range(len(taken) + 1) if rank not in taken)


def _in_the_way(leaving: StartWorker, wanted: StartWorker) -> bool:
    if leaving.node != wanted.node:
        return False
    if wanted.devices:
        return not set(wanted.devices).isdisjoint(leaving.devices)
    return wanted.op is not None and wanted.op == leaving.op
