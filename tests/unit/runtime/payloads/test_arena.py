# SPDX-License-Identifier: Apache-2.0
"""Shared memory is never used twice at once, is recycled, and goes back to the kernel."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from thresher.core.documents.batch import DocumentBatch
from thresher.core.task import Task
from thresher.runtime.payloads.arena import PAGE, ArenaFull, OwnArena, Reader, Segments, create_arena, resident_bytes
from thresher.runtime.payloads.payload import encode

MB = 2**20


class SegmentsMachine(RuleBasedStateMachine):
    """Any order of allocating and freeing."""

    def __init__(self) -> None:
        super().__init__()
        self.segments = Segments(1000 * PAGE, keep_bytes=20 * PAGE)
        self.live: dict[int, int] = {}

    @rule(nbytes=st.integers(1, 30 * PAGE))
    def allocate(self, nbytes: int) -> None:
        try:
            start, _ = self.segments.allocate(nbytes)
        except ArenaFull:
            return
        size = -(-nbytes // PAGE) * PAGE
        assert start % PAGE == 0
        assert 0 <= start <= 1000 * PAGE - size
        for other, length in self.live.items():
            assert start + size <= other or other + length <= start, "two segments overlap"
        self.live[start] = size

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        start = data.draw(st.sampled_from(sorted(self.live)))
        del self.live[start]
        for gone, size in self.segments.free(start):
            for other, length in self.live.items():
                assert gone + size <= other or other + length <= gone, "pages in use were given back"

    @invariant()
    def counts_are_right(self) -> None:
        assert self.segments.live_bytes == sum(self.live.values())
        assert self.segments.warm_bytes <= 20 * PAGE


TestSegments = SegmentsMachine.TestCase


@given(st.lists(st.integers(1, 20 * PAGE), min_size=1, max_size=50))
def test_an_arena_that_holds_nothing_has_room_for_one_payload_of_its_size(sizes: list[int]) -> None:
    whole = sum(-(-size // PAGE) for size in sizes) * PAGE
    segments = Segments(whole, keep_bytes=5 * PAGE)
    for start in [segments.allocate(size)[0] for size in sizes]:
        segments.free(start)
    segments.allocate(whole)
    assert segments.live_bytes == whole


def test_a_freed_segment_is_used_again_first() -> None:
    segments = Segments(1000 * PAGE, keep_bytes=100 * PAGE)
    first, warm = segments.allocate(10 * PAGE)
    assert not warm
    segments.allocate(10 * PAGE)
    segments.free(first)
    assert segments.allocate(10 * PAGE) == (first, True)


def test_the_smallest_piece_that_is_large_enough_is_taken() -> None:
    segments = Segments(1000 * PAGE, keep_bytes=100 * PAGE)
    large, _ = segments.allocate(10 * PAGE)
    segments.allocate(PAGE)
    small, _ = segments.allocate(3 * PAGE)
    segments.allocate(PAGE)
    segments.free(large)
    segments.free(small)
    assert segments.allocate(2 * PAGE)[0] == small


def test_a_full_arena_says_so() -> None:
    segments = Segments(10 * PAGE, keep_bytes=0)
    with pytest.raises(ArenaFull, match="does not fit"):
        segments.allocate(11 * PAGE)


Arena = tuple[OwnArena, int]
"""An arena and its descriptor."""


@pytest.fixture
def arena() -> Iterator[Arena]:
    fd = create_arena(1000 * MB)
    yield OwnArena(7, fd, keep_bytes=4 * MB), fd
    os.close(fd)


def reader_of(fd: int) -> Reader:
    reader = Reader()
    reader.add(7, os.dup(fd))
    return reader


def test_an_arena_takes_no_memory_until_it_is_written(arena: Arena) -> None:
    own, fd = arena
    assert resident_bytes(fd) == 0
    own.put(encode(Task(data=b"x" * MB)))
    assert MB <= resident_bytes(fd) < 2 * MB


def test_another_map_of_the_arena_shows_what_was_put(arena: Arena) -> None:
    own, fd = arena
    reader = reader_of(fd)
    table = pa.table({"text": ["a" * 1000] * 1000})
    for task in (Task(data=np.arange(100_000)), Task(data=list(range(100_000)))):  # fresh pages, then recycled ones
        payload = own.put(encode(task))
        assert np.array_equal(reader.open(payload).data, task.data)
        own.free(payload.offset)
    payload = own.put(encode(DocumentBatch(table)))
    batch = reader.open(payload)
    assert isinstance(batch, DocumentBatch)
    assert batch.to_pyarrow().equals(table)


def test_an_array_of_100_mb_is_seen_in_the_segment_itself_which_takes_no_more_memory(arena: Arena) -> None:
    own, fd = arena
    reader = reader_of(fd)
    array = np.arange(12_500_000)
    payload = own.put(encode(Task(data={"frames": [array]})))
    assert array.nbytes <= resident_bytes(fd) < 1.01 * array.nbytes
    seen = reader.open(payload).data["frames"][0]
    assert not seen.flags.writeable
    segment = np.frombuffer(reader._maps[7], np.uint8, payload.nbytes, payload.offset)
    assert np.shares_memory(seen, segment)
    own.map[payload.offset + payload.nbytes - 8] ^= 255
    assert seen[-1] == 12_499_999 ^ 255  # the last bytes of the segment are the last bytes of the array
    assert seen[:-1].sum() == array[:-1].sum()


def test_segments_are_recycled_and_stay_under_the_budget() -> None:
    fd = create_arena(1000 * MB)
    own = OwnArena(7, fd, keep_bytes=50 * MB)
    task = Task(data=np.ones(20 * MB, np.uint8))
    waiting = [own.put(encode(task)) for _ in range(4)]
    places = set()
    for _ in range(20):
        own.free(waiting.pop(0).offset)
        assert own.segments.warm_bytes <= 50 * MB
        waiting.append(own.put(encode(task)))
        places.add(waiting[-1].offset)
        assert resident_bytes(fd) < 4.1 * 20 * MB
    assert len(places) <= 4
    for payload in waiting:
        own.free(payload.offset)
    assert resident_bytes(fd) <= 50 * MB
    os.close(fd)


def test_a_lease_ends_when_the_task_is_gone(arena: Arena) -> None:
    own, fd = arena
    reader = reader_of(fd)
    payload = own.put(encode(DocumentBatch(pa.table({"text": ["a" * 1000] * 1000}))))
    batch = reader.open(payload)
    assert reader.ended() == []
    assert reader.held_bytes == payload.nbytes
    del batch
    gc.collect()
    assert reader.ended() == [(7, payload.offset)]
    assert reader.held_bytes == 0


def test_a_stage_that_keeps_a_slice_keeps_its_lease(arena: Arena) -> None:
    own, fd = arena
    reader = reader_of(fd)
    payload = own.put(encode(DocumentBatch(pa.table({"text": ["a" * 1000] * 1000}))))
    batch = reader.open(payload)
    assert isinstance(batch, DocumentBatch)
    kept = batch.to_pyarrow().column("text").chunk(0).slice(500, 1)
    del batch
    gc.collect()
    assert reader.ended() == []
    assert kept[0].as_py() == "a" * 1000
    del kept
    gc.collect()
    assert reader.ended() == [(7, payload.offset)]


def test_a_kept_line_keeps_its_lease(arena: Arena) -> None:
    from thresher.core.documents.records import RawLines, RecordIds

    own, fd = arena
    reader = reader_of(fd)
    raw = RawLines.join([b"x" * 1000] * 100)
    payload = own.put(encode(DocumentBatch.from_lines(raw, RecordIds((("a:", "a"),), np.arange(100, dtype=np.int64)))))
    batch = reader.open(payload)
    assert isinstance(batch, DocumentBatch)
    assert batch.raw_lines is not None
    line = batch.raw_lines.line(3)
    del batch
    gc.collect()
    assert reader.ended() == []
    assert bytes(line) == b"x" * 1000
    del line
    gc.collect()
    assert reader.ended() == [(7, payload.offset)]


def test_a_payload_that_was_never_opened_gives_its_lease_back(arena: Arena) -> None:
    own, fd = arena
    reader = reader_of(fd)
    payload = own.put(encode(Task(data=b"x" * MB)))
    reader.give_up(payload)
    assert reader.ended() == [(7, payload.offset)]


def test_freed_memory_beyond_the_limit_goes_back_to_the_kernel(arena: Arena) -> None:
    own, fd = arena
    payloads = [own.put(encode(Task(data=b"x" * MB))) for _ in range(20)]
    assert resident_bytes(fd) >= 20 * MB
    for payload in payloads:
        own.free(payload.offset)
    assert resident_bytes(fd) <= 4 * MB + PAGE


def test_an_arena_is_readable_after_its_writer_closed_it(arena: Arena) -> None:
    own, fd = arena
    reader = reader_of(fd)
    payload = own.put(encode(Task(data=b"x" * MB)))
    own._view.release()
    own.map.close()
    assert reader.open(payload).data == b"x" * MB


def test_an_arena_that_is_dropped_while_somebody_looks_stays_mapped(arena: Arena) -> None:
    own, fd = arena
    reader = reader_of(fd)
    payload = own.put(encode(DocumentBatch(pa.table({"text": ["a" * 1000] * 1000}))))
    batch = reader.open(payload)
    assert isinstance(batch, DocumentBatch)
    reader.drop(7)
    assert batch.to_pyarrow().column("text")[999].as_py() == "a" * 1000
