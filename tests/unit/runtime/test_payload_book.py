# SPDX-License-Identifier: Apache-2.0
"""A segment is freed when nobody needs it and nobody looks at it, and never before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from thresher.core.task import Task
from thresher.runtime.arena import OwnArena, create_arena
from thresher.runtime.payload import Payload, decode_inline, encode, spill
from thresher.runtime.payload_book import PayloadBook


@pytest.fixture
def book() -> Iterator[PayloadBook]:
    made = PayloadBook()
    for worker in (1, 2):
        made.add_arena(worker, create_arena(2**30))
    yield made
    made.close()


def segment(offset: int, worker: int = 1) -> Payload:
    return Payload((100,), b"", worker, offset)


def test_tasks_are_numbered_from_one_and_never_twice(book: PayloadBook) -> None:
    first = book.add(Payload((), b"x"))
    book.release(first)
    assert [first, book.add(Payload((), b"y"))] == [1, 2]


def test_a_released_segment_that_nobody_was_given_is_free(book: PayloadBook) -> None:
    book.release(book.add(segment(4096)))
    assert book.to_free == {1: [4096]}


def test_a_segment_that_somebody_looks_at_is_not_free(book: PayloadBook) -> None:
    task = book.add(segment(4096))
    book.lend(task, 2)
    book.release(task)
    assert book.to_free == {}
    book.returned(2, [(1, 4096)])
    assert book.to_free == {1: [4096]}


def test_a_segment_that_is_still_needed_is_not_free_when_nobody_looks(book: PayloadBook) -> None:
    task = book.add(segment(4096))
    book.lend(task, 2)
    book.returned(2, [(1, 4096)])
    assert book.to_free == {}
    book.release(task)
    assert book.to_free == {1: [4096]}


def test_a_worker_that_was_given_a_segment_twice_gives_it_back_twice(book: PayloadBook) -> None:
    task = book.add(segment(4096))
    book.lend(task, 2)
    book.lend(task, 2)
    book.release(task)
    book.returned(2, [(1, 4096)])
    assert book.to_free == {}
    book.returned(2, [(1, 4096)])
    assert book.to_free == {1: [4096]}


def test_the_leases_of_a_dead_worker_end(book: PayloadBook) -> None:
    task = book.add(segment(4096))
    book.lend(task, 2)
    book.release(task)
    book.worker_gone(2)
    assert book.to_free == {1: [4096]}


def test_the_arena_of_a_dead_worker_lives_as_long_as_a_payload_in_it(book: PayloadBook) -> None:
    arena = create_arena(2**30)
    book.add_arena(3, arena)
    task = book.add(OwnArena(3, os.dup(arena), 0).put(encode(Task(data="still here"))))
    book.worker_gone(3)
    assert book.gone_arenas == []
    assert decode_inline(book.take(task)).data == "still here"
    assert book.gone_arenas == [3]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arena)


def test_a_result_is_taken_out_of_its_arena_and_the_segment_is_free(book: PayloadBook) -> None:
    arena = create_arena(2**30)
    book.add_arena(3, arena)
    payload = OwnArena(3, os.dup(arena), 0).put(encode(Task(data=b"x" * 100_000)))
    task = book.add(payload)
    assert decode_inline(book.take(task)).data == b"x" * 100_000
    assert book.to_free == {3: [payload.offset]}
    book.release(task)  # the scheduler may still say so
    assert book.to_free == {3: [payload.offset]}


def test_the_file_of_a_spilled_payload_goes_with_it(book: PayloadBook, tmp_path: Path) -> None:
    tasks = [book.add(spill(encode(Task(data=[n])), str(tmp_path / str(n)))) for n in range(2)]
    book.release(tasks[0])
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert decode_inline(book.take(tasks[1])).data == [1]
    assert list(tmp_path.iterdir()) == []
