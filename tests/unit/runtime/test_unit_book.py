# SPDX-License-Identifier: Apache-2.0
"""Where results stand in lineage order, whatever was tried again."""

from __future__ import annotations

from thresher.runtime.unit_book import UnitBook
from thresher.scheduler.actions import Dispatch, TaskRef
from thresher.scheduler.events import Emitted


def dispatch(book: UnitBook, *tasks: int) -> None:
    book.dispatched(Dispatch(1, 0, tuple(TaskRef(task, "u") for task in tasks)))


def emit(book: UnitBook, task: int, *made: int, results: bool = False) -> list[tuple[int, ...]]:
    return book.emitted(task, tuple(Emitted(number, 1) for number in made), are_results=results)


def test_results_stand_behind_their_parents() -> None:
    book = UnitBook()
    dispatch(book, -1)
    emit(book, -1, 1, 2)
    dispatch(book, 1, 2)
    assert emit(book, 2, 5, 6, results=True) == [(1, 0), (1, 1)]
    assert emit(book, 1, 7, results=True) == [(0, 0)]


def test_a_task_that_is_tried_again_keeps_its_place() -> None:
    book = UnitBook()
    dispatch(book, -1)
    emit(book, -1, 1, 2)
    dispatch(book, 2)
    dispatch(book, 2)  # the worker was lost
    assert emit(book, 2, 5, results=True) == [(1, 0)]
    book.ended(2)  # it failed
    dispatch(book, 2)
    assert emit(book, 2, 6, results=True) == [(1, 0)]


def test_nothing_is_kept_of_tasks_that_are_released() -> None:
    book = UnitBook()
    dispatch(book, -1)
    emit(book, -1, 1, 2)
    book.released((1, 2))
    dispatch(book, 1)
    assert emit(book, 1, 3, results=True) == [(0,)], "as if it had never been there"
