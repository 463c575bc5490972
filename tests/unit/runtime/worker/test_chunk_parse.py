# SPDX-License-Identifier: Apache-2.0
"""Chunks that are parsed where memory runs out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher import DocumentBatch, JsonlReader
from thresher.core.task import RawChunk, Task
from thresher.runtime.worker.call import parse_within_memory
from thresher.stages.io.jsonl.lines import LineChunk

pytestmark = pytest.mark.usefixtures("small_heap")

SOURCE = ("f:", "in/f.jsonl")


class Narrow(JsonlReader):
    """Parses so many bytes at a time, and never a line with the word `never`."""

    most_bytes = 100
    fails_once = False

    def parse(self, task: Task) -> DocumentBatch:
        assert isinstance(task, RawChunk)
        if task.nbytes > self.most_bytes or b'"never"' in bytes(task.data):
            raise MemoryError
        if self.fails_once:
            self.fails_once = False
            raise MemoryError
        return super().parse(task)


def chunk_of(texts: list[str], *, ends: bool = True) -> RawChunk:
    """Lines as they stand in a file, from its byte 1000 on."""
    lines = "\n".join(json.dumps({"text": text}) for text in texts) + "\n" * ends
    return LineChunk(lines.encode(), 1000, SOURCE)


def parsed(source: JsonlReader, chunk: RawChunk) -> tuple[list[str], list[str], list[str]]:
    """Texts and ids of the records, and the messages of those that were set aside."""
    texts: list[str] = []
    ids: list[str] = []
    messages: list[str] = []
    for batch in parse_within_memory(source, chunk):
        texts += batch.values("text") if len(batch) else []
        assert batch.ids is not None
        ids += batch.ids.strings()
        messages += [message for failed in batch._failed for message in failed.messages]
    return texts, ids, messages


@given(st.lists(st.text(alphabet="ab", max_size=60), min_size=1, max_size=40), st.booleans())
def test_a_chunk_that_is_too_much_gives_the_same_records_in_pieces(texts: list[str], ends: bool) -> None:
    chunk = chunk_of(texts, ends=ends)
    assert parsed(Narrow("in"), chunk) == parsed(JsonlReader("in"), chunk)


def test_a_line_that_never_fits_is_set_aside_with_its_place_and_the_others_go_on() -> None:
    texts, _, messages = parsed(Narrow("in"), chunk_of(["a", "never", "b"]))
    assert texts == ["a", "b"]
    (message,) = messages
    assert message.startswith("in/f.jsonl, byte 1014: memory ran out twice while the record was parsed; give the run")


def test_a_line_is_tried_again_before_it_is_set_aside() -> None:
    source = Narrow("in")
    source.fails_once = True
    assert parsed(source, chunk_of(["a"]))[0] == ["a"]


def test_a_chunk_of_another_format_is_never_cut_at_a_line_feed() -> None:
    class Binary(JsonlReader):
        def parse(self, task: Task) -> DocumentBatch:
            raise MemoryError

    (batch,) = parse_within_memory(Binary("in"), RawChunk(b"\x00\n\x01\n", 7, ("f:", "in/f.tar")))
    (failed,) = batch.take_failed()
    assert batch.num_items == 0
    assert failed.messages[0].startswith("in/f.tar, byte 7: memory ran out twice while the record was parsed; give")
    assert failed.lines == [b"\x00\n\x01\n"]


def test_what_is_no_chunk_of_lines_is_tried_twice_and_then_fails_its_task() -> None:
    class Never(JsonlReader):
        def parse(self, task: Task) -> DocumentBatch:
            raise MemoryError

    with pytest.raises(MemoryError, match="memory ran out twice while Never parsed"):
        list(parse_within_memory(Never("in"), Task(data=1)))
