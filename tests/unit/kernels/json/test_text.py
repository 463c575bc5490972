# SPDX-License-Identifier: Apache-2.0
"""The texts of a field, read from JSON lines without a decoder: what a real decoder finds, on every line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thresher.core.documents.json_records import field_values
from thresher.core.source import ReadContext
from thresher.kernels.counts.text_counts import PADDING
from thresher.kernels.json.text import (
    ABSENT,
    OK,
    OTHER,
    SLOW,
    _position_buffer,
    _scan_lines,
    are_objects,
    extract_texts,
    with_decoded,
)
from thresher.stages.io.jsonl.json_lines import line_fault
from thresher.stages.io.jsonl.lines import record_spans
from thresher.stages.io.jsonl.reader import JsonlReader

DATA = Path(__file__).parents[5] / "shared" / "data"

keys = st.sampled_from(["text", "tex", "texts", "", "Text", "é", "id", "\\text"]) | st.text(max_size=5)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.text(alphabet='ab\n\t"\\/\b\f\r\0é€😀 ', max_size=150)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
styles = st.sampled_from(
    [
        {"ensure_ascii": True},
        {"ensure_ascii": False},
        {"ensure_ascii": False, "separators": (",", ":")},
        {"ensure_ascii": True, "separators": (" ,\t", "  :\r ")},
    ]
)
members = st.lists(st.tuples(keys, values), max_size=6)
padding = st.sampled_from([b"", b"", b" ", b"\t", b"\r", b" \r"])


def object_line(pairs: list[tuple[str, object]], style: dict[str, object], around: bytes) -> bytes:
    """A line with its keys in order, also those that come twice."""
    comma, colon = style.get("separators", (", ", ": "))
    ascii_only = style["ensure_ascii"]
    inside = comma.join(
        json.dumps(key, ensure_ascii=ascii_only) + colon + json.dumps(value, **style) for key, value in pairs
    )
    return around + b"{" + inside.encode() + b"}" + around


objects = st.builds(object_line, members, styles, padding)


def extracted(lines: list[bytes], field: str = "text") -> tuple[list[bytes], list[int]]:
    """Texts and statuses of lines that lie in one buffer."""
    data = np.frombuffer(b"\n".join(lines), dtype=np.uint8)
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    ends = (lengths + 1).cumsum() - 1
    texts, statuses = extract_texts(data, ends - lengths, ends, field)
    assert not len(lines) or len(texts.data) >= texts.ends.max() + PADDING
    spans = zip(texts.starts.tolist(), texts.ends.tolist(), strict=True)
    return [texts.data[start:end].tobytes() for start, end in spans], statuses.tolist()


def expected(line: bytes, field: str = "text") -> tuple[int, bytes]:
    """What a real decoder finds: a text, nothing, something else, or that the line is no JSON."""
    try:
        line.decode("utf-8")
        (value,) = field_values([line], field)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return SLOW, b""
    if value is None:
        return ABSENT, b""
    return (OK, value.encode("utf-8")) if isinstance(value, str) else (OTHER, b"")


def check(lines: list[bytes], field: str = "text") -> list[int]:
    texts, statuses = extracted(lines, field)
    for line, text, status in zip(lines, texts, statuses, strict=True):
        if status == SLOW:
            assert text == b""
        else:
            assert (status, text) == expected(line, field), line
    return statuses


@settings(max_examples=400)
@given(st.lists(objects, min_size=1, max_size=6), st.sampled_from(["text", "", "é", "a", "Text"]))
@example([b'{"text":"a","text":null}', b'{"text":null,"text":"b"}', b'{"text":"long","text":"s"}'], "text")
@example([b'{"text":{"text":"inner"}}', b'{"a":{"text":"inner"},"b":[{"text":1}]}'], "text")
@example([b"{}", b" { } ", b'{"text":""}'], "")
def test_the_text_is_what_a_decoder_finds(lines: list[bytes], field: str) -> None:
    for line, status in zip(lines, check(lines, field), strict=True):
        # Only keys with an escape in them are left to the decoder, nothing else in a line that is an object.
        assert status != SLOW or b"\\" in line


@settings(max_examples=600)
@given(objects, st.data())
def test_a_damaged_line_is_never_taken_for_something_that_it_is_not(line: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, max(0, len(line) - 1)))
    cut = data.draw(st.integers(0, 3))
    added = data.draw(
        st.binary(max_size=3)
        | st.sampled_from([b"\\", b'"', b"\\u", b"\\ud800", b"\\udc00", b"{", b"}", b"[", b",", b"-", b".", b"e", b"0"])
    )
    damaged = line[:place] + added + line[place + cut :]
    try:
        damaged.decode("utf-8")
    except UnicodeDecodeError:
        return  # refused before: lines are valid UTF-8
    check([damaged])
    spans = np.array([0], dtype=np.int64), np.array([len(damaged)], dtype=np.int64)
    if are_objects(np.frombuffer(damaged, dtype=np.uint8), *spans).all():
        assert line_fault(memoryview(damaged)) is None


@given(st.lists(objects, min_size=1, max_size=6))
def test_every_object_of_ordinary_depth_is_recognised(lines: list[bytes]) -> None:
    view = memoryview(b"\n".join(lines) + b"\n")
    assert are_objects(np.frombuffer(view, dtype=np.uint8), *record_spans(view)).all()


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300), st.booleans())
def test_every_character_survives(text: str, ascii_only: bool) -> None:
    line = json.dumps({"text": text}, ensure_ascii=ascii_only).encode()
    assert extracted([line]) == ([text.encode()], [OK])


@pytest.mark.parametrize("length", [0, 1, 62, 63, 64, 65, 127, 128, 129, 1000])
@pytest.mark.parametrize("end", ["", "\n", "\\", '"', "é", "😀"])
def test_blocks_leave_no_trace(length: int, end: str) -> None:
    for lead in range(0, 70, 7):
        texts = ["x" * lead + end + "y" * length, "z" * length + end]
        lines = [json.dumps({"text": text}).encode() for text in texts]
        assert extracted(lines) == ([text.encode() for text in texts], [OK, OK])


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b'{"te\\u0078t": "x"}', SLOW),
        (b'{"text": "x", "te\\u0078t": "y"}', SLOW),
        (b'{"a\\nb": 1, "text": "x"}', OK),
        (b'{"a\\nbcd": 1, "text": "x"}', SLOW),
        (b'{"text": "\\ud83d"}', SLOW),
        (b'{"text": "\\udc00"}', SLOW),
        (b'{"text": "\\ud83dx"}', SLOW),
        (b'{"text": "\\ud83d\\u0041"}', SLOW),
        (b'{"text": "\\ud83d\\ude00"}', OK),
        (b'{"text": "\\u0000"}', OK),
        (b'{"text": "\x7f"}', OK),
        (b'{"text": "a\tb"}', SLOW),
        (b'{"text": "a\x00b"}', SLOW),
        (b'{"text": "\\x41"}', SLOW),
        (b'{"text": "\\u00g0"}', SLOW),
        (b'{"text": "x"}\r', OK),
        (b'\xef\xbb\xbf{"text": "x"}', SLOW),
        (b'{"text": "x"} {}', SLOW),
        (b'{"text": "x",}', SLOW),
        (b'{,"text": "x"}', SLOW),
        (b'{"text" "x"}', SLOW),
        (b'{"text": }', SLOW),
        (b'{"text":', SLOW),
        (b'{"text"', SLOW),
        (b'{"text', SLOW),
        (b"{", SLOW),
        (b"[]", SLOW),
        (b'"text"', SLOW),
        (b"null", SLOW),
        (b" ", SLOW),
        (b"", SLOW),
        (b'{"text": null}', ABSENT),
        (b'{"text": nul}', SLOW),
        (b'{"text": nan}', SLOW),
        (b'{"a": NaN, "text": "x"}', SLOW),
        (b'{"a": 01, "text": "x"}', SLOW),
        (b'{"a": -, "text": "x"}', SLOW),
        (b'{"a": 1., "text": "x"}', SLOW),
        (b'{"a": .5, "text": "x"}', SLOW),
        (b'{"a": 1e, "text": "x"}', SLOW),
        (b'{"a": +1, "text": "x"}', SLOW),
        (b'{"a": -0.5E+10, "text": "x"}', OK),
        (b'{"a": 0, "text": "x"}', OK),
        (b'{"text": 0}', OTHER),
        (b'{"text": false}', OTHER),
        (b'{"text": []}', OTHER),
        (b'{"text": {"text": "x"}}', OTHER),
        (b'{"a": [1, {"b": [}], "text": "x"}', SLOW),
        (b'{"a": [1 2], "text": "x"}', SLOW),
        (b'{"a": [1, 2,], "text": "x"}', SLOW),
        (b'{"a": {"b": 1,}, "text": "x"}', SLOW),
        (b'{"a": {1: 1}, "text": "x"}', SLOW),
        (b'{"a": [1}, "text": "x"}', SLOW),
        (b'{"a": {"b": 1], "text": "x"}', SLOW),
        (b'{"a": ' + b"[" * 60 + b"]" * 60 + b', "text": "x"}', OK),
        (b'{"a": ' + b"[" * 500 + b"]" * 500 + b', "text": "x"}', SLOW),
    ],
)
def test_what_each_line_is_taken_for(line: bytes, status: int) -> None:
    assert check([line]) == [status]
    assert check([b'{"text": "before"}', line, b'{"text": "behind"}']) == [OK, status, OK]


@pytest.mark.parametrize("field", ["a\\b", 'a"b', "a\nb", "\0"])
def test_a_field_that_json_must_escape_is_left_to_the_decoder(field: str) -> None:
    assert extracted([json.dumps({field: "x"}).encode()], field) == ([b""], [SLOW])


def test_lines_may_lie_anywhere_in_the_buffer() -> None:
    data = np.frombuffer(b'xx{"text":"b"}yy{"text":"a"}', dtype=np.uint8)
    starts, ends = np.array([16, 2, 2, 16]), np.array([28, 14, 14, 27])
    texts, statuses = extract_texts(data, starts, ends, "text")
    assert statuses.tolist() == [OK, OK, OK, SLOW]
    assert texts.data[: texts.ends[2]].tobytes() == b"abb"


def test_places_outside_the_buffer_are_not_looked_at() -> None:
    data = np.frombuffer(b'{"text":"b"}', dtype=np.uint8)
    starts, ends = np.array([-1, 0, 5, 12]), np.array([12, 13, 4, 12])
    assert extract_texts(data, starts, ends, "text")[1].tolist() == [SLOW] * 4


@pytest.mark.parametrize("behind", [b"x" * 600, b"\\n" * 300, b"\\\\" * 300, b"x" * 30 + b'"}' + b"x" * 600])
@pytest.mark.parametrize("size", [9, 10, 40, 74, 300])
def test_nothing_is_written_behind_the_room_for_the_lines(behind: bytes, size: int) -> None:
    data = np.frombuffer(b'{"text":"' + behind, dtype=np.uint8)
    room = np.full(size + PADDING + 2000, 7, dtype=np.uint8)
    found = np.zeros((3, 1), dtype=np.int64)
    key = np.frombuffer(b"text", dtype=np.uint8)
    _scan_lines(data, np.array([0]), np.array([size]), key, (room[: size + PADDING], _position_buffer()), found)
    assert (room[size + PADDING :] == 7).all()
    assert found[2, 0] == SLOW


def test_what_a_decoder_found_takes_its_place() -> None:
    lines = [b'{"text": "a"}', b'{"te\\u0078t": "x"}', b'{"text": "b"}', b"{}"]
    data = np.frombuffer(b"\n".join(lines), dtype=np.uint8)
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    ends = (lengths + 1).cumsum() - 1
    texts, _ = extract_texts(data, ends - lengths, ends, "text")
    changed = with_decoded(texts, np.array([1, 3]), ["é\ud800", ""])
    found = [changed.data[s:e].tobytes() for s, e in zip(changed.starts, changed.ends, strict=True)]
    assert found == [b"a", b"\xc3\xa9\xed\xa0\x80", b"b", b""]
    assert len(changed.data) == changed.ends.max() + PADDING


def test_no_byte_behind_the_buffer_is_read() -> None:
    """The buffer ends where memory ends: a read behind it kills the process."""
    script = """
import ctypes, json, mmap
import numpy as np
from thresher.kernels.json.text import extract_texts
PAGE = mmap.PAGESIZE
area = mmap.mmap(-1, 2 * PAGE)
address = ctypes.addressof(ctypes.c_char.from_buffer(area))
assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address + PAGE), PAGE, 0) == 0
page = np.frombuffer(area, dtype=np.uint8)[:PAGE]
for text in ("", "a", "x" * 60, "x" * 200, "\\n" * 70, "é" * 40, "😀" * 40):
    for ascii_only in (True, False):
        whole = json.dumps({"a": [1.5, None, True], "text": text}, ensure_ascii=ascii_only).encode()
        for cut in range(len(whole) + 1):
            line = whole[:cut]
            page[PAGE - cut:] = np.frombuffer(line, dtype=np.uint8)
            start, end = np.array([PAGE - cut]), np.array([PAGE])
            texts, statuses = extract_texts(page, start, end, "text")
            assert (statuses[0] == 0) == (cut == len(whole)), line
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def _data_files() -> list[Path]:
    return [path for folder in ("text", "hostile") for path in sorted((DATA / folder).glob("*.jsonl*"))]


@pytest.mark.skipif(not _data_files(), reason=f"no test data at {DATA}")
@pytest.mark.parametrize("path", _data_files(), ids=lambda path: path.name)
def test_real_and_hostile_files_give_what_a_decoder_finds(path: Path) -> None:
    reader = JsonlReader(str(path))
    context = ReadContext(chunk_bytes=2**20, max_record_bytes=2**24)
    slow = total = 0
    for unit in reader.list_units():
        for item in reader.read(unit, context):
            raw = None if item.task is None else reader.parse(item.task).raw_lines
            if raw is None or not len(raw) or total > 50_000:
                continue
            data = np.frombuffer(raw.buffer, dtype=np.uint8)
            for field in ("text", "id"):
                texts, statuses = extract_texts(data, raw.starts, raw.ends, field)
                for row, line in enumerate(raw.lines()):
                    if statuses[row] != SLOW:
                        text = texts.data[texts.starts[row] : texts.ends[row]].tobytes()
                        assert (int(statuses[row]), text) == expected(bytes(line), field)
            slow += int((statuses == SLOW).sum())
            total += len(raw)
    assert slow <= total // 100 or "deep" in path.name or "wrong" in path.name or total < 200
