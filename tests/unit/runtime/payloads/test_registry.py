# SPDX-License-Identifier: Apache-2.0
"""A segment is freed when nobody needs it and nobody looks at it, and never before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from thresher.core.task import Task
from thresher.runtime.payloads.arena import OwnArena, create_arena
from thresher.runtime.payloads.payload import Payload, decode_inline, encode, spill
from thresher.runtime.payloads.registry import PayloadRegistry


@pytest.fixture
def registry() -> Iterator[PayloadRegistry]:
    made = PayloadRegistry()
    for worker in (1, 2):
        made.add_arena(worker, create_arena(2**30))
    yield made
    made.close()


def segment(offset: int, worker: int = 1) -> Payload:
    return Payload((100,), b"", worker, offset)


def test_tasks_are_numbered_from_one_and_never_twice(registry: PayloadRegistry) -> None:
    first = registry.add(Payload((), b"x"))
    registry.release(first)
    assert [first, registry.add(Payload((), b"y"))] == [1, 2]


def test_a_released_segment_that_nobody_was_given_is_free(registry: PayloadRegistry) -> None:
    registry.release(registry.add(segment(4096)))
    assert registry.to_free == {1: [4096]}


def test_a_segment_that_somebody_looks_at_is_not_free(registry: PayloadRegistry) -> None:
    task = registry.add(segment(4096))
    registry.lend(task, 2)
    registry.release(task)
    assert registry.to_free == {}
    registry.returned(2, [(1, 4096)])
    assert registry.to_free == {1: [4096]}


def test_a_segment_that_is_still_needed_is_not_free_when_nobody_looks(registry: PayloadRegistry) -> None:
    task = registry.add(segment(4096))
    registry.lend(task, 2)
    registry.returned(2, [(1, 4096)])
    assert registry.to_free == {}
    registry.release(task)
    assert registry.to_free == {1: [4096]}


def test_a_worker_that_was_given_a_segment_twice_gives_it_back_twice(registry: PayloadRegistry) -> None:
    task = registry.add(segment(4096))
    registry.lend(task, 2)
    registry.lend(task, 2)
    registry.release(task)
    registry.returned(2, [(1, 4096)])
    assert registry.to_free == {}
    registry.returned(2, [(1, 4096)])
    assert registry.to_free == {1: [4096]}


def test_the_leases_of_a_dead_worker_end(registry: PayloadRegistry) -> None:
    task = registry.add(segment(4096))
    registry.lend(task, 2)
    registry.release(task)
    registry.worker_gone(2)
    assert registry.to_free == {1: [4096]}


def test_the_arena_of_a_dead_worker_lives_as_long_as_a_payload_in_it(registry: PayloadRegistry) -> None:
    arena = create_arena(2**30)
    registry.add_arena(3, arena)
    task = registry.add(OwnArena(3, os.dup(arena), 0).put(encode(Task(data="still here"))))
    registry.worker_gone(3)
    assert registry.closed_arenas == []
    assert decode_inline(registry.take(task)).data == "still here"
    assert registry.closed_arenas == [3]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arena)


def test_a_result_is_taken_out_of_its_arena_and_the_segment_is_free(registry: PayloadRegistry) -> None:
    arena = create_arena(2**30)
    registry.add_arena(3, arena)
    payload = OwnArena(3, os.dup(arena), 0).put(encode(Task(data=b"x" * 100_000)))
    task = registry.add(payload)
    assert decode_inline(registry.take(task)).data == b"x" * 100_000
    assert registry.to_free == {3: [payload.offset]}
    registry.release(task)  # the scheduler may still say so
    assert registry.to_free == {3: [payload.offset]}


def test_the_file_of_a_spilled_payload_goes_with_it(registry: PayloadRegistry, tmp_path: Path) -> None:
    tasks = [registry.add(spill(encode(Task(data=[n])), str(tmp_path / str(n)))) for n in range(2)]
    registry.release(tasks[0])
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert decode_inline(registry.take(tasks[1])).data == [1]
    assert list(tmp_path.iterdir()) == []
