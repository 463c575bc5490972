# SPDX-License-Identifier: Apache-2.0
"""From bytes to records: finds the lines of a chunk and checks that each is a JSON object in valid UTF-8.

The check decodes nothing: fields are decoded later, by the stages that ask for them. The bytes of a line are kept as
they came, without the line feed; a carriage return before it, or white space around the object, stays part of the line,
so that a record that nothing changes is written as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from thresher.core.batch import MOST_REMEMBERED, DocumentBatch, FailedRows
from thresher.core.json_records import split_object
from thresher.core.records import FoundTexts, RawLines, RecordIds, Rows
from thresher.core.task import RawChunk
from thresher.stages.io import compiled
from thresher.stages.io.lines import record_spans


class _AnyObject(msgspec.Struct, gc=False):
    """Any JSON object: its fields are checked and passed over."""


_CHECK = msgspec.json.Decoder(_AnyObject).decode
_CHECK_ALL = msgspec.json.Decoder(_AnyObject).decode_lines
_OPENING, _CLOSING, _CARRIAGE_RETURN = b"{}\r"

Source = tuple[str, str]
"""The prefix of record ids and the path of a file."""


def parse_chunk(chunk: RawChunk, fields: Sequence[str] | None = None) -> DocumentBatch:
    """The records of a chunk; lines that are none are set aside with their reason and place."""
    buffer = chunk.data
    view = memoryview(buffer)
    starts, ends = record_spans(view)
    failed: list[FailedRows] = []
    utf8 = is_utf8(view)
    doubtful, found = check_lines(view, starts, ends, find_texts=fields is None)
    bad = _find_bad_lines(view, (starts, ends), doubtful if utf8 else np.arange(len(starts)), utf8)
    if bad:
        failed = _set_aside(bad, view, (starts, ends), chunk)
        good = np.ones(len(starts), dtype=bool)
        good[list(bad)] = False
        starts, ends = starts[good], ends[good]
        found = None if found is None else found.take(np.flatnonzero(good))
    raw = RawLines(buffer, starts, ends, found)
    if fields is not None:
        raw = RawLines.join([keep_fields(line, frozenset(fields)) for line in raw.lines()])
    batch = DocumentBatch.from_lines(raw, RecordIds((chunk.source,), chunk.offset + starts), chunk.dataset_name)
    batch._failed.extend(failed)
    return batch


def check_lines(view: memoryview, starts: Rows, ends: Rows, find_texts: bool = False) -> tuple[Rows, FoundTexts | None]:
    """The lines that may be no JSON objects and must be looked at closer; with `find_texts` also the texts of the field
    that stages asked for last, which the same pass finds."""
    kernels = compiled.kernels()
    if kernels is None or not len(starts):
        return np.arange(0 if all_objects(view, starts, ends) else len(starts)), None
    characters = np.frombuffer(view, dtype=np.uint8)
    field = kernels.asked_last() if find_texts and len(view) <= MOST_REMEMBERED else None
    if field is None:
        return np.flatnonzero(~kernels.are_objects(characters, starts, ends)), None
    texts, statuses = kernels.extract_texts(characters, starts, ends, field)
    found = FoundTexts(field, texts.data, texts.starts, texts.ends, statuses)
    return np.flatnonzero(statuses == kernels.SLOW), found


def is_utf8(view: memoryview) -> bool:
    """Whether a buffer is valid UTF-8, decided without making a text of it."""
    kernels = compiled.kernels()
    if kernels is not None:
        return bool(kernels.is_valid(np.frombuffer(view, dtype=np.uint8)))
    import pyarrow as pa

    offsets = pa.py_buffer(np.array([0, len(view)], dtype=np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(view)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def all_objects(view: memoryview, starts: Rows, ends: Rows) -> bool:
    """Whether every line holds exactly one JSON object; one call for all lines. `False` may also mean "look closer".

    The decoder goes from object to object and takes a line feed for white space. But where every line begins with `{`
    and ends with `}`, no object can reach over a line feed (nothing in JSON allows a `{` behind a `}`), so each line
    holds at least one, and as many objects as lines means one each.
    """
    if not len(starts):
        return True
    characters = np.frombuffer(view, dtype=np.uint8)
    last = characters[ends - 1]
    last = np.where(last == _CARRIAGE_RETURN, characters[ends - 2], last)
    if bool((characters[starts] != _OPENING).any()) or bool((last != _CLOSING).any()):
        return False
    try:
        return len(_CHECK_ALL(view)) == len(starts)
    except (msgspec.DecodeError, RecursionError):
        return False


def _find_bad_lines(view: memoryview, spans: tuple[Rows, Rows], rows: Rows, utf8: bool) -> dict[int, tuple[str, str]]:
    """Those of `rows` that are no records, with the kind of error and what is wrong; `utf8`: the buffer is valid."""
    bad: dict[int, tuple[str, str]] = {}
    starts, ends = spans
    for row in rows.tolist():
        fault = line_fault(view[int(starts[row]) : int(ends[row])], utf8)
        if fault is not None:
            bad[row] = fault
    return bad


def line_fault(line: memoryview, utf8: bool = False) -> tuple[str, str] | None:
    """Kind of error and explanation for a line that is not a JSON object in valid UTF-8 (known to be valid: `utf8`)."""
    fault: tuple[str, str] | None = None
    try:
        _CHECK(line)
    except msgspec.ValidationError as error:
        fault = "not-an-object", f"the line is JSON, but not an object ({error})"
    except msgspec.DecodeError as error:
        fault = "not-json", f"the line is not JSON ({error})"
    except RecursionError:
        fault = "too-deep", "the line is nested too deeply to be read"
    if fault is None and utf8:
        return None
    raw = bytes(line)
    if b"\0" in raw:
        return "nul-byte", f"byte {raw.index(0)} of the line is a NUL, which JSON does not allow"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return "invalid-utf8", f"byte {error.start} of the line is not valid UTF-8 ({error.reason})"
    return fault


def _set_aside(
    bad: dict[int, tuple[str, str]], view: memoryview, spans: tuple[Rows, Rows], chunk: RawChunk
) -> list[FailedRows]:
    groups: dict[str, list[int]] = defaultdict(list)
    for row, (error, _) in bad.items():
        groups[error].append(row)
    starts, ends = spans
    return [
        failed_lines(
            error,
            chunk.source,
            [(chunk.offset + int(starts[row]), bad[row][1], bytes(view[starts[row] : ends[row]])) for row in rows],
        )
        for error, rows in groups.items()
    ]


def failed_lines(error: str, source: Source, lines: Sequence[tuple[int, str, bytes]]) -> FailedRows:
    """Records of one file that could not be read: place in the unpacked file, explanation, raw bytes."""
    place = "row" if source[0].endswith("r") else "byte"
    return FailedRows(
        batch=None,
        error=error,
        messages=[f"{source[1]}, {place} {position}: {message}" for position, message, _ in lines],
        lines=[raw for _, _, raw in lines],
        ids=RecordIds((source,), np.array([position for position, _, _ in lines], dtype=np.int64)),
    )


def failed_batch(failed: FailedRows) -> DocumentBatch:
    """A batch that holds nothing but a failure."""
    empty: Any = np.zeros(0, dtype=np.int64)
    assert failed.ids is not None
    batch = DocumentBatch.from_lines(RawLines(b"", empty, empty), RecordIds(failed.ids.sources, empty))
    batch._failed.append(failed)
    return batch


def keep_fields(line: bytes | memoryview, fields: frozenset[str]) -> bytes | memoryview:
    """A line with the named fields only, in the order of the line; as it came when it has no others."""
    record = split_object(line)
    if fields.issuperset(record):
        return line
    kept = [msgspec.json.encode(key) + b": " + bytes(value) for key, value in record.items() if key in fields]
    return b"{" + b", ".join(kept) + b"}"
