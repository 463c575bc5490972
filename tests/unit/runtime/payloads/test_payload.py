# SPDX-License-Identifier: Apache-2.0
"""Tasks come back from their bytes as they went in."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.records import RawLines, RecordIds
from thresher.core.task import FileGroupTask, RawChunk, Task
from thresher.runtime.payloads.large_bytes import APART_BYTES, HUGE_BYTES, bytes_of, writable_copy
from thresher.runtime.payloads.payload import (
    ALIGNMENT,
    Encoded,
    EncodeError,
    Payload,
    decode_inline,
    decode_result,
    encode,
    layout,
    read_spilled,
    spill,
)


def there_and_back(task: Task) -> Task:
    return decode_inline(encode(task).inline())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_any_plain_data_survives(data: object) -> None:
    task = Task("set", data, {"k": 1})
    back = there_and_back(task)
    assert type(back) is Task
    assert (back.data, back.dataset_name, back.metadata) == (data, "set", {"k": 1})


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=6))
def test_parts_lie_aligned_and_apart(lengths: list[int]) -> None:
    starts, total = layout(lengths)
    assert all(start % ALIGNMENT == 0 for start in starts)
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert total == ends[-1]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.binary(min_size=1, max_size=200))
def test_what_is_written_in_a_row_lies_where_the_layout_says(buffers: list[bytes], head: bytes) -> None:
    encoded = Encoded(head, [memoryview(b) for b in buffers], (len(head), *map(len, buffers)))
    written = b"".join(encoded.laid_out())
    starts, total = layout(encoded.lengths)
    assert len(written) == total == encoded.nbytes == encoded.inline().nbytes
    for start, part in zip(starts, [head, *buffers], strict=True):
        assert written[start : start + len(part)] == part


def test_a_small_task_is_one_part() -> None:
    assert encode(Task(data=[1, 2, 3])).inline().lengths == ()


def test_the_lines_of_a_batch_are_not_copied_by_the_reader() -> None:
    lines = [b'{"id": %d, "text": "%s"}' % (n, b"x" * 100) for n in range(100)]
    raw = RawLines.join(lines)
    ids = RecordIds((("abc:", "a.jsonl"),), np.arange(100, dtype=np.int64))
    payload = encode(DocumentBatch.from_lines(raw, ids, "d")).inline()
    assert len(payload.lengths) > 1

    back = decode_inline(payload)
    assert isinstance(back, DocumentBatch)
    assert back.raw_lines is not None
    assert back.ids is not None
    assert [bytes(line) for line in back.raw_lines.lines()] == lines
    assert back.ids.strings() == ids.strings()
    assert memoryview(back.raw_lines.buffer).readonly
    assert memoryview(back.raw_lines.buffer).obj is payload.data


def test_a_table_survives() -> None:
    table = pa.table({"text": ["a" * 1000, None, "ü"] * 50, "n": [1, 2, None] * 50})
    back = there_and_back(DocumentBatch(table))
    assert isinstance(back, DocumentBatch)
    assert back.to_pyarrow().equals(table)


def test_a_chunk_survives() -> None:
    chunk = RawChunk(b'{"a":1}\n' * 1000, 17, ("abc:", "a.jsonl"))
    back = there_and_back(chunk)
    assert isinstance(back, RawChunk)
    assert bytes(back.data) == chunk.data
    assert (back.offset, back.source) == (17, ("abc:", "a.jsonl"))


@pytest.mark.parametrize("is_writable", [True, False])
def test_an_array_is_a_read_only_view_and_its_copy_changes_nothing_else(is_writable: bool) -> None:
    array = np.zeros(10_000)
    array.flags.writeable = is_writable
    payload = encode(Task(data=array)).inline()
    view = decode_inline(payload).data
    assert np.shares_memory(view, np.frombuffer(payload.data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        view += 1
    own = view.copy()
    own += 1
    assert decode_inline(payload).data.sum() == 0


def test_a_task_that_is_opened_with_its_own_buffers_can_be_changed_and_changes_nothing_else() -> None:
    payload = encode(Task(data=np.zeros(10_000))).inline()
    first, second = decode_inline(payload, own=True), decode_inline(payload, own=True)
    first.data += 1
    assert first.data.sum() == 10_000
    assert second.data.sum() == 0
    assert decode_inline(payload).data.sum() == 0


def test_views_that_are_passed_on_can_be_opened_for_writing_again() -> None:
    arrays = {"a": np.arange(10_000), "b": [np.ones(5_000), b"\x97\x98" * 10], "small": np.ones(3)}
    view = decode_inline(encode(Task(data=arrays)).inline())
    assert not view.data["a"].flags.writeable
    own = decode_inline(encode(view).inline(), own=True).data
    own["a"] += 1
    own["b"][0] += 1
    assert own["a"][:2].tolist() == [1, 2]
    assert own["b"][0].sum() == 10_000
    assert own["b"][1] == arrays["b"][1]


def test_who_asked_for_results_may_change_them() -> None:
    view = decode_inline(encode(Task(data=np.zeros(10_000))).inline())
    result = decode_result(encode(view).inline())
    result.data += 1
    assert result.data.sum() == 10_000
    table = pa.table({"clip": [b"x" * 200_000] * 10})
    kept = encode(DocumentBatch(table)).inline()
    back = decode_result(kept)
    assert isinstance(back, DocumentBatch)
    clip = back.to_pyarrow().column("clip").chunk(0).buffers()[2]
    assert np.shares_memory(np.frombuffer(clip, np.uint8), np.frombuffer(kept.data, np.uint8))  # Arrow is constant


def test_the_parts_of_an_encoded_task_are_the_buffers_of_the_task_itself() -> None:
    """So the copy to where they are sent from is the only one that the sender makes."""
    arrays = [np.arange(100_000), np.asfortranarray(np.ones((300, 300)))]
    encoded = encode(Task(data={"arrays": arrays}))
    assert encoded.nbytes < 1.01 * sum(array.nbytes for array in arrays)
    for array, buffer in zip(arrays, encoded.buffers, strict=True):
        assert np.shares_memory(array, np.frombuffer(buffer, np.uint8))

    table = pa.table({"clip": pa.array([b"x" * 200_000] * 10, pa.large_binary())})
    encoded = encode(DocumentBatch(table))
    clip = np.frombuffer(table.column("clip").chunk(0).buffers()[2], np.uint8)
    assert any(np.shares_memory(clip, np.frombuffer(buffer, np.uint8)) for buffer in encoded.buffers)
    assert encoded.nbytes < 1.01 * table.nbytes


def test_of_a_slice_of_a_table_only_its_own_rows_are_sent() -> None:
    table = pa.table({"clip": pa.array([b"x" * 2_000_000] * 10, pa.large_binary())})
    encoded = encode(DocumentBatch(table.slice(3, 2)))
    assert encoded.nbytes < 4_100_000
    back = decode_inline(encoded.inline())
    assert isinstance(back, DocumentBatch)
    assert back.to_pyarrow().equals(table.slice(3, 2))


class Clips(Task):
    """Payloads of `bytes`."""


@pytest.mark.parametrize("size", [APART_BYTES, 5_000_001])
def test_large_bytes_are_sent_as_they_are_and_come_back_as_bytes(size: int) -> None:
    clips = [bytes([number]) * size for number in range(20)]
    for _ in range(2):  # that such a type holds large bytes is found out with its first task
        encoded = encode(Clips(data={"clips": [*clips, clips[0]], "names": ["a", "b"], "one": np.ones(1000)}))
        assert len(encoded.head) < 10_000
        assert [view.obj for view in encoded.buffers[1:]] == clips  # once each, though one is there twice
        assert all(view.obj is clip for view, clip in zip(encoded.buffers[1:], clips, strict=True))
        back = decode_inline(encoded.inline()).data
        assert back["clips"] == [*clips, clips[0]]
        assert {type(clip) for clip in back["clips"]} == {bytes}
        assert back["clips"][-1] is back["clips"][0]
        assert (back["names"], back["one"].sum()) == (["a", "b"], 1000)


@pytest.mark.parametrize("size", [HUGE_BYTES - 1, HUGE_BYTES, HUGE_BYTES + 4097])
def test_copies_in_huge_pages_have_every_byte_of_their_source(size: int) -> None:
    source = np.random.default_rng(size).bytes(size + 3)
    part = memoryview(source)[3:]
    copied, writable = bytes_of(part), writable_copy(part)
    assert type(copied) is bytes
    assert copied == source[3:] == writable
    writable[-1] ^= 0xFF
    assert copied == source[3:] != writable


def test_large_bytes_in_a_class_that_travels_by_value() -> None:
    class Local(Task):
        """Known in this function alone."""

    clips = [b"x" * 600_000, b"y" * 600_000]
    for _ in range(2):
        encoded = encode(Local(data=clips))
        assert decode_inline(encoded.inline()).data == clips
    assert len(encoded.head) < 10_000


def test_a_read_only_array_stays_read_only() -> None:
    array = np.zeros(10_000)
    array.flags.writeable = False
    assert not there_and_back(Task(data=array)).data.flags.writeable


def test_a_class_that_plain_pickle_cannot_find_travels_by_value() -> None:
    class Local(Task):
        """Known in this function alone."""

    back = there_and_back(Local(data=lambda x: x + 1))
    assert back.data(1) == 2
    assert type(back) is Local  # in one process it is the very same class


def test_a_class_of_the_main_script_travels_by_value_from_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    class InMain(Task):
        """As if the main script had defined it."""

    InMain.__module__, InMain.__qualname__ = "__main__", "InMain"
    monkeypatch.setattr(__main__, "InMain", InMain, raising=False)
    by_name = encode(InMain(data=1)).head
    by_value = encode(InMain(data=1), from_main=True).head
    monkeypatch.delattr(__main__, "InMain")
    with pytest.raises(AttributeError):
        decode_inline(Payload((), by_name))
    assert decode_inline(Payload((), by_value)).data == 1


def test_what_cannot_be_sent_is_named_with_a_way_out() -> None:
    with pytest.raises(EncodeError, match=r"Task cannot be sent to another process.*setup"):
        encode(Task(data=threading.Lock()))


@pytest.mark.parametrize("data", [list(b"x" * 200_000), list(range(50_000)), np.arange(50_000)])
def test_a_spilled_task_is_read_from_its_file(tmp_path: Path, data: Any) -> None:
    payload = spill(encode(Task(data=data)), str(tmp_path / "payload"))
    assert np.array_equal(read_spilled(payload).data, data)
    assert (tmp_path / "payload").stat().st_size == payload.nbytes


def test_file_groups_survive() -> None:
    assert there_and_back(FileGroupTask(data=["a", "b"])).data == ["a", "b"]
