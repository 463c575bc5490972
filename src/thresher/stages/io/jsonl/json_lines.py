# SPDX-License-Identifier: Apache-2.0
"""Parsing of chunks: finds the lines and checks that each is a JSON object in valid UTF-8.

The check decodes nothing: fields are decoded later, by the stages that need them. The bytes of a line are kept without
the line feed; a carriage return before it, or white space around the object, stays part of the line, so that an
unchanged record is written as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from thresher.core.documents.batch import MOST_REMEMBERED, DocumentBatch, FailedRows
from thresher.core.documents.json_records import lacks_text, shown_fields, split_object
from thresher.core.documents.records import FoundTexts, RawLines, RecordIds, Rows
from thresher.core.stage import ProcessingStage
from thresher.core.task import RawChunk
from thresher.stages.io.jsonl import lines as line_reading
from thresher.stages.io.jsonl.lines import record_spans
from thresher.stages.io.missing_fields import count_missing, missing_in


class _AnyObject(msgspec.Struct, gc=False):
    """Any JSON object: its fields are validated and discarded."""


_CHECK = msgspec.json.Decoder(_AnyObject).decode
_CHECK_ALL = msgspec.json.Decoder(_AnyObject).decode_lines
_OPENING, _CLOSING, _CARRIAGE_RETURN = b"{}\r"

Source = tuple[str, str]
"""The prefix of record ids and the path of a file."""


def parse_chunk(
    chunk: RawChunk, fields: Sequence[str] | None = None, reader: ProcessingStage[Any, Any] | None = None
) -> DocumentBatch:
    """Return the records of a chunk; invalid lines are set aside with their error and position.

    `reader` counts the `fields` that no record has.
    """
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
        lines = list(raw.lines())
        kept = [keep_fields(line, frozenset(fields)) for line in lines]
        lacking = {row: _lacks(fields, lines[row]) for row, line in enumerate(kept) if line == b"{}"}
        failed.extend(_set_aside(lacking, view, (starts, ends), chunk))
        starts, kept = np.delete(starts, list(lacking)), [line for line in kept if line != b"{}"]
        raw = RawLines.join(kept)
        missing = missing_in(kept, fields) if kept and reader is not None else []
        if missing and reader is not None:
            count_missing(reader, missing, split_object(lines[0]), len(kept))
    batch = DocumentBatch.from_lines(raw, RecordIds((chunk.source,), chunk.offset + starts), chunk.dataset_name)
    batch._failed.extend(failed)
    return batch


def check_lines(view: memoryview, starts: Rows, ends: Rows, find_texts: bool = False) -> tuple[Rows, FoundTexts | None]:
    """Return the lines that may not be JSON objects and need a closer check; with `find_texts` also the texts of the
    field that stages used last, which the same pass extracts."""
    kernels = line_reading.loaded_kernels()
    if kernels is None or not len(starts):
        return np.arange(0 if all_objects(view, starts, ends) else len(starts)), None
    characters = np.frombuffer(view, dtype=np.uint8)
    field = kernels.last_field() if find_texts and len(view) <= MOST_REMEMBERED else None
    if field is None:
        return np.flatnonzero(~kernels.are_objects(characters, starts, ends)), None
    texts, statuses = kernels.extract_texts(characters, starts, ends, field)
    found = FoundTexts(field, texts.data, texts.starts, texts.ends, statuses)
    return np.flatnonzero(statuses == kernels.SLOW), found


def is_utf8(view: memoryview) -> bool:
    """Return True if a buffer is valid UTF-8, without decoding it."""
    kernels = line_reading.loaded_kernels()
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
    """Return True if every line holds exactly one JSON object; one call for all lines. `False` may also mean "look
    closer".

    The decoder reads object after object and treats a line feed as white space. But if every line starts with `{` and
    ends with `}`, no object can span a line feed (JSON never allows a `{` directly after a `}`), so each line holds at
    least one object, and as many objects as lines means one each.
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
    """Return the invalid lines of `rows`, with error code and explanation; `utf8`: the buffer is known to be valid."""
    bad: dict[int, tuple[str, str]] = {}
    starts, ends = spans
    for row in rows.tolist():
        fault = line_fault(view[int(starts[row]) : int(ends[row])], utf8)
        if fault is not None:
            bad[row] = fault
    return bad


def line_fault(line: memoryview, utf8: bool = False) -> tuple[str, str] | None:
    """Return error code and explanation for a line that is not a JSON object in valid UTF-8; `utf8`: it is known to be
    valid."""
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


def failed_lines(
    error: str, source: Source, lines: Sequence[tuple[int, str, bytes]], counts: Sequence[int | None] = ()
) -> FailedRows:
    """Return the failure for records of one file, given as position in the unpacked file, explanation and raw bytes.

    `counts` gives the number of records behind each line, if not 1; `None` if unknown.
    """
    unit = "row" if source[0].endswith("r") else "byte"
    return FailedRows(
        batch=None,
        error=error,
        messages=[f"{source[1]}, {unit} {position}: {message}" for position, message, _ in lines],
        lines=[raw for _, _, raw in lines],
        ids=RecordIds((source,), np.array([position for position, _, _ in lines], dtype=np.int64)),
        counts=counts,
    )


def failed_batch(failed: FailedRows) -> DocumentBatch:
    """Return a batch that holds only a failure."""
    empty: Any = np.zeros(0, dtype=np.int64)
    assert failed.ids is not None
    batch = DocumentBatch.from_lines(RawLines(b"", empty, empty), RecordIds(failed.ids.sources, empty))
    batch._failed.append(failed)
    return batch


def _lacks(fields: Sequence[str], line: bytes | memoryview) -> tuple[str, str]:
    return "field-missing", lacks_text(fields, shown_fields(line))


def keep_fields(line: bytes | memoryview, fields: frozenset[str]) -> bytes | memoryview:
    """Return a line with only the named fields, in the order of the line; unchanged if it has no others."""
    record = split_object(line)
    if fields.issuperset(record):
        return line
    kept = [msgspec.json.encode(key) + b": " + bytes(value) for key, value in record.items() if key in fields]
    return b"{" + b", ".join(kept) + b"}"
