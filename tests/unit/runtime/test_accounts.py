# SPDX-License-Identifier: Apache-2.0
"""Where results stand in lineage order, whatever was tried again."""

from __future__ import annotations

from thresher.runtime.accounts import UnitTracker
from thresher.scheduler.actions import Dispatch, Release, TaskRef
from thresher.scheduler.events import Emitted


def dispatch(tracker: UnitTracker, *tasks: int) -> None:
    tracker.dispatched(Dispatch(1, 0, tuple(TaskRef(task, "u") for task in tasks)))


def emit(tracker: UnitTracker, task: int, *made: int, results: bool = False) -> list[tuple[int, ...]]:
    return tracker.emitted(task, tuple(Emitted(number, 1) for number in made), are_results=results)


def test_results_stand_behind_their_parents() -> None:
    tracker = UnitTracker()
    dispatch(tracker, -1)
    emit(tracker, -1, 1, 2)
    dispatch(tracker, 1, 2)
    assert emit(tracker, 2, 5, 6, results=True) == [(1, 0), (1, 1)]
    assert emit(tracker, 1, 7, results=True) == [(0, 0)]


def test_a_task_that_is_tried_again_keeps_its_place() -> None:
    tracker = UnitTracker()
    dispatch(tracker, -1)
    emit(tracker, -1, 1, 2)
    dispatch(tracker, 2)
    dispatch(tracker, 2)  # the worker was lost
    assert emit(tracker, 2, 5, results=True) == [(1, 0)]
    tracker.ended(2)  # it failed
    dispatch(tracker, 2)
    assert emit(tracker, 2, 6, results=True) == [(1, 0)]


def test_nothing_is_kept_of_tasks_that_are_released() -> None:
    tracker = UnitTracker()
    dispatch(tracker, -1)
    emit(tracker, -1, 1, 2)
    tracker.released(Release((1, 2)))
    dispatch(tracker, 1)
    assert emit(tracker, 1, 3, results=True) == [(0,)], "as if it had never been there"
