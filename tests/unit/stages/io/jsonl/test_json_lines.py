# SPDX-License-Identifier: Apache-2.0
"""Which lines are records: the fast check of a whole chunk agrees with the plain definition of each line."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.stages.io.reading import lines_of
from thresher.core.documents.records import FoundTexts
from thresher.core.task import RawChunk
from thresher.stages.io.jsonl import lines as line_reading
from thresher.stages.io.jsonl.json_lines import all_objects, check_lines, is_utf8, keep_fields, line_fault, parse_chunk
from thresher.stages.io.jsonl.lines import record_spans


@pytest.fixture(scope="module", params=["libraries", "kernels"], autouse=True)
def checker(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lines are checked by libraries, or by kernels where they are loaded: with the same result."""
    kernels = importlib.import_module("thresher.kernels.json.text") if request.param == "kernels" else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reading, "loaded_kernels", lambda: kernels)
        yield


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
objects = st.tuples(st.dictionaries(st.text(max_size=4), values, max_size=4), st.booleans()).map(
    lambda parts: json.dumps(parts[0], ensure_ascii=parts[1]).encode("utf-8", "surrogatepass")
)
fragments = st.sampled_from(
    [
        b"",
        b" ",
        b"\r",
        b"{}",
        b"[]",
        b"{",
        b"}",
        b"{}{}",
        b"{} {}",
        b'{"a":',
        b"1}",
        b'{"a":{}',
        b",{}",
        b'{"a":[{}',
        b"\x0c",
        b'"\xff"',
    ]
)
lines = st.one_of(objects, objects, fragments, st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"")))


def is_record(line: bytes) -> bool:
    """The plain definition, by another library."""
    try:
        text = line.decode("utf-8")
        found = json.loads(text, parse_constant=_refuse)
        json.dumps(found, ensure_ascii=False).encode("utf-8")  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


@settings(max_examples=200)
@given(st.lists(lines, max_size=8), st.booleans())
@example([b"{} {}", b'{"a":', b"1}"], True)
@example([b"{}{}", b'{"a":{}', b",{}}"], True)
@example([b'{"a":[{}', b"{}]}", b"{}{}"], True)
def test_a_line_is_a_record_exactly_if_it_is_one_json_object_in_utf8(parts: list[bytes], ends_with_feed: bool) -> None:
    content = b"\n".join(parts) + (b"\n" if ends_with_feed else b"")
    batch = parse_chunk(RawChunk(content, 100, ("file:", "path")))
    assert batch.ids is not None
    found = dict(zip(batch.ids.strings(), batch.json_lines(), strict=True))
    failed = {
        one: line
        for rows in batch._failed
        for one, line in zip(rows.ids.strings() if rows.ids else (), rows.lines, strict=True)
    }
    there = {f"file:{100 + place}": line for place, line in lines_of(content) if place or line[:3] != b"\xef\xbb\xbf"}
    assert found == {one: line for one, line in there.items() if is_record(line)}
    assert failed == {one: line for one, line in there.items() if not is_record(line)}


@given(st.lists(lines, max_size=8))
def test_the_fast_check_never_accepts_what_the_slow_one_refuses(parts: list[bytes]) -> None:
    view = memoryview(b"\n".join(parts))
    starts, ends = record_spans(view)
    if all_objects(view, starts, ends):
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            assert line_fault(view[start:end], utf8=True) is None


@given(st.lists(objects, min_size=1, max_size=8))
def test_the_fast_check_accepts_ordinary_lines(parts: list[bytes]) -> None:
    for ending in (b"\n", b"\r\n"):
        view = memoryview(ending.join(parts) + ending)
        assert all_objects(view, *record_spans(view))


@given(st.lists(lines, max_size=8))
def test_only_lines_that_are_objects_are_not_looked_at_closer(parts: list[bytes]) -> None:
    view = memoryview(b"\n".join(parts))
    starts, ends = record_spans(view)
    doubtful, _ = check_lines(view, starts, ends)
    for row in set(range(len(starts))) - set(doubtful.tolist()):
        assert line_fault(view[int(starts[row]) : int(ends[row])]) is None or not is_utf8(view)


@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_utf8_is_what_python_takes_for_it(raw: bytes) -> None:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        assert not is_utf8(memoryview(raw))
    else:
        assert is_utf8(memoryview(raw))


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"a": "\0"}', "nul-byte"),
        (bytes(4096), "nul-byte"),
        (b'{"a": "\xff"}', "invalid-utf8"),
        (b"\xff", "invalid-utf8"),
        (b"[]", "not-an-object"),
        (b"null", "not-an-object"),
        (b'"text"', "not-an-object"),
        (b'{"a": NaN}', "not-json"),
        (b"{'a': 1}", "not-json"),
        (b'{"a": 1,}', "not-json"),
        (b'{"a": 1} {"b": 2}', "not-json"),
        (b'{"a": "\\ud83d"}', "not-json"),
        (b'{"a": "' + b"x" * 20, "not-json"),
        (b'{"a":' * 50_000, "too-deep"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_bad_line_has_a_reason(line: bytes, error: str) -> None:
    fault = line_fault(memoryview(line))
    assert fault is not None
    assert fault[0] == error
    assert fault[1]


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"a": 1, "a": 2}',
        b'{"n": 123456789012345678901234567890}',
        b'{"n": 1e999}',
        b'{"a": "\\u0000"}',
        b'\t{"a": [[[]]]} \r',
    ],
)
def test_odd_lines_that_are_json_objects_are_records_as_they_are(line: bytes) -> None:
    batch = parse_chunk(RawChunk(line + b"\n", 0, ("file:", "path")))
    assert [bytes(one) for one in batch.json_lines()] == [line]
    assert not batch._failed


def test_lines_are_not_copied() -> None:
    content = b'{"a": 1}\n{"b": 2}\n'
    batch = parse_chunk(RawChunk(content, 0, ("file:", "path")))
    assert batch.raw_lines is not None
    assert batch.raw_lines.buffer is content
    assert batch.raw_lines.blob() == content


def test_fields_keep_their_bytes() -> None:
    line = b'{"a": 1.50,"b":"\\u0041", "c" : {"d":  []}, "\\u0065": 1}'
    assert bytes(keep_fields(line, frozenset("abe"))) == b'{"a": 1.50, "b": "\\u0041", "e": 1}'
    assert keep_fields(line, frozenset("abcdef")) is line


def test_the_texts_that_stages_ask_for_are_found_when_the_next_chunk_is_checked() -> None:
    from thresher.kernels.json.text import OK, SLOW, extract_texts

    content = b'{"text": "a\\n"}\nnot json\n{"te\\u0078t": "b"}\n{"text": "c"}\n'
    nothing = np.zeros(0, dtype=np.int64)
    extract_texts(np.frombuffer(b"", dtype=np.uint8), nothing, nothing, "text")
    raw = parse_chunk(RawChunk(content, 0, ("file:", "path"))).raw_lines
    assert raw is not None
    if raw.found is None:  # no kernels
        return
    assert raw.found.field == "text"
    assert raw.found.statuses.tolist() == [OK, SLOW, OK]
    assert texts_of(raw.found) == [b"a\n", b"", b"c"]
    assert texts_of(raw.take(np.array([2, 0])).found) == [b"c", b"a\n"]


def texts_of(found: FoundTexts | None) -> list[bytes]:
    assert found is not None
    return [found.data[start:end].tobytes() for start, end in zip(found.starts, found.ends, strict=True)]
