# SPDX-License-Identifier: Apache-2.0
"""Chunks of whole lines: nothing lost, nothing twice, whatever the sizes."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from thresher.stages.io.damage import DamagedInputError
from thresher.stages.io.jsonl.lines import (
    CutRules,
    Damage,
    LineCutter,
    Lines,
    TooLarge,
    first_line_end,
    last_line_end,
    record_spans,
)

contents = st.lists(st.sampled_from([b"\n", b"a", b"bc\n", b"  \n", b"\r\n", b"0123456789"]), max_size=60).map(b"".join)
sizes = st.integers(1, 40)


class Dripping:
    """A source that gives few bytes at a time and may break off."""

    def __init__(self, content: bytes, step: int, damage: DamagedInputError | None = None) -> None:
        self._content = io.BytesIO(content)
        self._step = step
        self._damage = damage

    def readinto(self, target: memoryview) -> int:
        count = self._content.readinto(target[: self._step])
        if count == 0 and self._damage is not None:
            raise self._damage
        return count


def cut(content: bytes, rules: CutRules, step: int = 7) -> list[Lines | TooLarge | Damage]:
    return list(LineCutter(Dripping(content, step), rules))


@given(contents, sizes, sizes)
def test_chunks_are_whole_lines_and_make_up_the_file(content: bytes, chunk_bytes: int, step: int) -> None:
    chunks = cut(content, CutRules(chunk_bytes=chunk_bytes), step)
    assert b"".join(bytes(chunk.buffer) for chunk in chunks) == content
    for chunk in chunks:
        assert content[: chunk.offset].endswith(b"\n") or chunk.offset == 0
        assert content[chunk.offset :].startswith(bytes(chunk.buffer))


@given(contents, sizes, sizes, st.integers(1, 30))
def test_a_chunk_never_reaches_over_a_border_between_units(
    content: bytes, chunk_bytes: int, step: int, every: int
) -> None:
    chunks = cut(content, CutRules(chunk_bytes=chunk_bytes, every=every), step)
    assert b"".join(bytes(chunk.buffer) for chunk in chunks) == content
    for chunk in chunks:
        starts = [chunk.offset + n + 1 for n, byte in enumerate(bytes(chunk.buffer)[:-1]) if byte == 10]
        assert {start // every for start in starts} <= {chunk.offset // every}


@given(contents, sizes, st.integers(0, 15))
def test_a_line_that_is_too_large_is_named_and_the_others_are_kept(
    content: bytes, chunk_bytes: int, max_record_bytes: int
) -> None:
    found = cut(content, CutRules(chunk_bytes=chunk_bytes, max_record_bytes=max_record_bytes))
    told = []
    for item in found:
        if isinstance(item, TooLarge):
            told.append((item.offset, item.length, item.head))
        else:
            starts, ends = record_spans(item.buffer)
            spans = zip(starts.tolist(), ends.tolist(), strict=True)
            told.extend((item.offset + start, end - start, bytes(item.buffer[start:end])) for start, end in spans)
    expected, place = [], 0
    for line in content.split(b"\n"):
        if line.strip() or len(line) > max_record_bytes:
            expected.append((place, len(line), line[:1000]))
        place += len(line) + 1
    assert told == expected


def test_a_line_far_too_large_begins_the_same_way_whatever_the_chunks() -> None:
    content = b"".join(b"%d," % n for n in range(1000))
    for chunk_bytes in (1, 10, 1000, 10_000):
        rules = CutRules(chunk_bytes=chunk_bytes, max_record_bytes=20)
        assert cut(content + b"\nlast\n", rules)[0] == TooLarge(0, len(content), content[:1000])


def test_a_line_that_is_too_large_is_never_held() -> None:
    class Endless:
        """A line of 256 MiB, if anybody wanted to keep it."""

        def __init__(self) -> None:
            self.left = 2**28
            self.largest_wish = 0

        def readinto(self, target: memoryview) -> int:
            self.largest_wish = max(self.largest_wish, len(target))
            count = min(self.left, len(target))
            self.left -= count
            target[:count] = b"a" * count
            return count

    source = Endless()
    found = list(LineCutter(source, CutRules(chunk_bytes=2**20, max_record_bytes=2**22)))
    assert [(item.offset, item.length, len(item.head)) for item in found if isinstance(item, TooLarge)] == [
        (0, 2**28, 1000)
    ]
    assert source.largest_wish <= 2**23


@given(contents, sizes, sizes)
def test_before_damage_every_whole_line_is_given(content: bytes, chunk_bytes: int, step: int) -> None:
    damage = DamagedInputError("truncated", "cut short")
    *chunks, last = LineCutter(Dripping(content, step, damage), CutRules(chunk_bytes=chunk_bytes))
    whole = content[: content.rfind(b"\n") + 1]
    assert b"".join(bytes(chunk.buffer) for chunk in chunks if isinstance(chunk, Lines)) == whole
    assert last == Damage(len(whole), content[len(whole) :], "truncated", "cut short")


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    for chunk_bytes in (1, 2, 3, 4, 100):
        found = cut(b"\xef\xbb\xbfone\ntwo\n", CutRules(chunk_bytes=chunk_bytes))
        assert found[0].offset == 3
        assert b"".join(bytes(chunk.buffer) for chunk in found if isinstance(chunk, Lines)) == b"one\ntwo\n"


def test_a_small_chunk_does_not_hold_a_large_buffer() -> None:
    (chunk,) = cut(b"short\n", CutRules(chunk_bytes=2**20), step=100)
    assert memoryview(chunk.buffer.obj).nbytes < 2**10


@given(st.binary(max_size=300), st.integers(0, 300))
def test_line_ends_are_found_like_bytes_find_does(content: bytes, start: int) -> None:
    assert first_line_end(memoryview(content), start) == content.find(b"\n", start) + 1
    assert last_line_end(memoryview(content)) == content.rfind(b"\n") + 1


def test_line_ends_are_found_far_away() -> None:
    content = memoryview(b"\n" + bytes(300_000) + b"\n" + bytes(200_000))
    assert first_line_end(content, 1) == 300_002
    assert last_line_end(content) == 300_002
    assert last_line_end(content[:300_001]) == 1
