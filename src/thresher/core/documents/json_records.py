# SPDX-License-Identifier: Apache-2.0
"""JSON lines to Arrow columns and back, without loss.

A column gets a plain Arrow type only when every value in it fits that type exactly. Anything else (mixed types,
integers beyond 64 bits, nested values) is carried as JSON text under Arrow's `json` extension type and restored on
writing.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.errors import with_article

if TYPE_CHECKING:
    import pyarrow as pa

Raw = msgspec.Raw
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRINGS = msgspec.json.Decoder(list[str | None])
_BOOLS = msgspec.json.Decoder(list[bool | None])
_FLOATS = msgspec.json.Decoder(list[float | None])
_ANY = msgspec.json.Decoder()
_KEY = re.compile(rb'\s*,?\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
_NULL = b"null"
_SAFE_INT = 2**53
_NAMES_SHOWN, _NAME_CHARACTERS = 8, 40
_NUMBER_STARTS = {bytes([start]) for start in b"-0123456789"}

_LARGE = 2**20
"""Values and lines from this length on are worked on in place or by stretches, not copied again and again."""
_AIRY = re.compile(rb'": ')
"""Found in a line that is written with spaces."""
_WHITE = b" \t\n\r\x0b\x0c"


@functools.cache
def json_type() -> pa.DataType:
    """The type of a column that carries JSON texts."""
    import pyarrow as pa

    return pa.json_(pa.large_string())


def split_object(line: bytes | memoryview) -> dict[str, msgspec.Raw]:
    """Key to raw value, in the order of the line; of duplicate keys the last value counts."""
    return _OBJECT.decode(line)


def shown_fields(line: bytes | memoryview) -> str:
    """Return the names of a record's fields for a message."""
    try:
        return shown_names(list(split_object(line)))
    except msgspec.DecodeError:  # legal for the reader, such as half a surrogate pair in a name
        return "fields whose names cannot be shown"


def shown_names(names: Sequence[str]) -> str:
    """Return names for a message, a few of them where there are many."""
    shown = ", ".join(repr(name[:_NAME_CHARACTERS]) for name in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return f"{shown or 'no fields'}{more}"


def lacks_text(wanted: Sequence[str], there: str) -> str:
    """Say that a record has none of the fields that were asked for; `there`: the ones that it has."""
    return f"the record has none of the fields {shown_names(wanted)}; it has {there}"


def decode_table(lines: Sequence[bytes | memoryview], fields: Sequence[str] | None = None) -> pa.Table:
    """A table with one column per key that occurs in `lines` (or per name in `fields`), in order of first
    appearance."""
    import pyarrow as pa

    columns: dict[str, list[msgspec.Raw | None]] = {name: [] for name in fields or ()}
    wanted = set(columns) if fields is not None else None
    for row, line in enumerate(lines):
        for key, value in split_object(line).items():
            if wanted is not None and key not in wanted:
                continue
            column = columns.get(key)
            if column is None:
                column = columns[key] = []
            if len(column) < row:
                column.extend([None] * (row - len(column)))
            column.append(value)
    for column in columns.values():
        column.extend([None] * (len(lines) - len(column)))
    arrays = [column_array(column) for column in columns.values()]
    return pa.table(dict(zip(columns, arrays, strict=True))) if columns else rows_without_columns(len(lines))


def rows_without_columns(count: int) -> pa.Table:
    """A table that has rows and nothing in them."""
    import pyarrow as pa

    return pa.table({"_": pa.nulls(count)}).select([])


def column_array(values: Sequence[msgspec.Raw | None]) -> pa.Array:
    """The narrowest Arrow array that holds raw JSON values without loss."""
    import pyarrow as pa

    raws = [_NULL if v is None else bytes(v).strip() for v in values]
    kinds = {raw[:1] for raw in raws} - {b"n"}
    text = b"[" + b",".join(raws) + b"]"
    if not kinds:
        return pa.nulls(len(raws))
    if kinds == {b'"'}:
        return pa.array(_STRINGS.decode(text), type=pa.large_string())
    if kinds <= {b"t", b"f"}:
        return pa.array(_BOOLS.decode(text), type=pa.bool_())
    if kinds <= _NUMBER_STARTS:
        return _number_array(raws, text)
    return json_array(raws)


def _number_array(raws: list[bytes], text: bytes) -> pa.Array:
    import pyarrow as pa

    integers = [raw for raw in raws if raw != _NULL and not any(c in raw for c in (b".", b"e", b"E"))]
    if len(integers) == sum(raw != _NULL for raw in raws):
        if any(raw == b"-0" or (len(raw) > 18 and not -(2**63) <= int(raw) < 2**63) for raw in integers):
            return json_array(raws)
        return pa.array([None if raw == _NULL else int(raw) for raw in raws], type=pa.int64())
    if any(abs(int(raw)) > _SAFE_INT for raw in integers if len(raw) > 15):
        return json_array(raws)
    try:
        return pa.array(_FLOATS.decode(text), type=pa.float64())
    except msgspec.DecodeError:
        return json_array(raws)


def json_array(raws: Sequence[bytes | None]) -> pa.Array:
    """JSON texts as an Arrow `json` array; `null` becomes a null."""
    import pyarrow as pa

    texts = [None if raw is None or raw == _NULL else raw.decode("utf-8") for raw in raws]
    return pa.ExtensionArray.from_storage(json_type(), pa.array(texts, type=pa.large_string()))


def is_json(data_type: pa.DataType) -> bool:
    """Return True if a column carries JSON texts."""
    import pyarrow as pa

    return isinstance(data_type, pa.JsonType)


def field_values(lines: Iterable[bytes | memoryview], name: str) -> list[Any]:
    """The value of one field in every line, `None` where it is missing; other fields are skipped, not decoded."""
    decoder = _field_decoder(name)
    if decoder is None:
        return [_decode_any(bytes(split_object(line).get(name, _NULL))) for line in lines]
    return [decoder.decode(line).value for line in lines]


_FIELD_DECODERS: dict[str, msgspec.json.Decoder[Any] | None] = {}


def _field_decoder(name: str) -> msgspec.json.Decoder[Any] | None:
    """`None` for a name with quotes or control characters, which a struct cannot have."""
    if name not in _FIELD_DECODERS:
        try:
            kind = msgspec.defstruct("Record", [("value", Any, None)], rename={"value": name}, gc=False)
            _FIELD_DECODERS[name] = msgspec.json.Decoder(kind)
        except ValueError:
            _FIELD_DECODERS[name] = None
    return _FIELD_DECODERS[name]


def patch_lines(
    lines: list[bytes | memoryview], changed: dict[str, tuple[pa.ChunkedArray, Any]], removed: frozenset[str]
) -> list[bytes | memoryview]:
    """`lines` with the values of some columns where their mask says so (everywhere where it is `None`)."""
    import pyarrow as pa

    patches: dict[int, dict[str, bytes]] = {row: {} for row in range(len(lines))} if removed else {}
    for name, (column, mask) in changed.items():
        rows = range(len(lines)) if mask is None else mask.nonzero()[0].tolist()
        values = encoded_column(column if len(rows) == len(lines) else column.take(pa.array(rows, pa.int64())))
        for place, row in enumerate(rows):
            patches.setdefault(row, {})[name] = values[place]
        values.clear()
    for row in list(patches):
        lines[row] = patch_line(lines[row], patches.pop(row), removed)
    return lines


def patch_line(line: bytes | memoryview, changes: dict[str, bytes], removed: frozenset[str]) -> bytes:
    """`line` with some values replaced or added at the end, and some keys removed; the rest keeps its bytes."""
    record = split_object(line)
    gone = removed.intersection(record)
    if not changes and not gone:
        return bytes(line)
    text = _stripped(line)
    members = _members(text, record)
    if members is None:
        return _rebuild_line(record, changes, gone)
    compact = _AIRY.search(text) is None
    colon, comma = (b":", b",") if compact else (b": ", b", ")
    parts: list[bytes | bytearray | memoryview] = [text[: members[0][0]] if members else b"{"]
    before = 1
    for start, value_start, end, key in members:
        if key not in gone:
            if len(parts) > 1:
                parts.append(text[before:start])
            parts += [text[start:end]] if (value := changes.get(key)) is None else [text[start:value_start], value]
        before = end
    added = [(key, value) for key, value in changes.items() if key not in record]
    for key, value in added:
        parts += [*([comma] if len(parts) > 1 else []), encode_value(key), colon, value]
    parts.append(b"}" if added else text[before:])
    return b"".join(parts)


def _stripped(line: bytes | memoryview) -> bytes | memoryview:
    """A line without white space around it; of a long one a view."""
    if len(line) < _LARGE:
        return bytes(line).strip()
    view = memoryview(line)
    start, end = 0, len(view)
    while start < end and view[start] in _WHITE:
        start += 1
    while end > start and view[end - 1] in _WHITE:
        end -= 1
    return view[start:end]


def _holds(text: bytes | memoryview, value: msgspec.Raw, place: int) -> bool:
    """Return True if `value` is at `place` in `text`."""
    if isinstance(text, bytes):
        return text.startswith(bytes(value), place)
    view = memoryview(value)
    there = text[place : place + len(view)]
    return len(there) == len(view) and all(
        bytes(there[start : start + _LARGE]) == bytes(view[start : start + _LARGE])
        for start in range(0, len(view), _LARGE)
    )


def _members(text: bytes | memoryview, record: dict[str, msgspec.Raw]) -> list[tuple[int, int, int, str]] | None:
    """Return where each key starts in `text`, and where its value starts and ends; `None` if a key comes twice."""
    members: list[tuple[int, int, int, str]] = []
    place = 1
    for key, value in record.items():
        opening = _KEY.match(text, place)
        if opening is None or not _holds(text, value, opening.end()) or _ANY.decode(opening[1]) != key:
            return None
        place = opening.end() + len(memoryview(value))
        members.append((opening.start(1), opening.end(), place, key))
    return members if bytes(text[place:]).strip() == b"}" else None


def _rebuild_line(record: dict[str, msgspec.Raw], changes: dict[str, bytes], removed: frozenset[str]) -> bytes:
    values = {key: bytes(value) for key, value in record.items() if key not in removed} | changes
    return b"{" + b", ".join(encode_value(key) + b": " + value for key, value in values.items()) + b"}"


def encode_value(value: Any) -> bytes:
    """A Python value as JSON bytes; what JSON has no form for is written as its text, what is no number as null."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain_value)
    except (ValueError, OverflowError):
        import json

        # Integers beyond 64 bits, and lone surrogates, which only an escape can hold.
        return json.dumps(_without_nan(value), default=_plain_value).encode("ascii")


def _plain_value(value: Any) -> Any:
    """Return a value that the encoder knows for one that it does not: numpy's as Python's, others as their text.

    The text that every object has, with its address in memory, says nothing and differs from run to run: refused.
    """
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    if vars(object)["__str__"] is getattr(type(value), "__str__", None) and not isinstance(value, complex):
        raise TypeError(
            f"{value!r} is {with_article(type(value))}, which no column can hold; "
            "make it a text, a number, a list or a dict"
        )
    return str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def encoded_column(column: pa.ChunkedArray | pa.Array) -> list[bytes]:
    """Every value of a column as JSON bytes."""
    import pyarrow as pa

    if is_json(column.type):
        storage = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        texts = storage.storage.to_pylist() if isinstance(storage, pa.ExtensionArray) else storage.to_pylist()
        return [_NULL if text is None else text.encode("utf-8") for text in texts]
    if column.nbytes >= _LARGE and pa.types.is_large_string(column.type):
        return [_encode_text(value) for value in column]
    encode = encode_value
    return [encode(value) for value in column.to_pylist()]


def _encode_text(value: pa.LargeStringScalar) -> bytes:
    """A text as JSON; a long one by stretches, so that it never stands as a Python string, which takes up to four
    times the room."""
    buffer = value.as_buffer()
    if buffer is None:
        return _NULL
    if buffer.size < _LARGE:
        return msgspec.json.encode(str(buffer, "utf-8"))
    view = memoryview(buffer)
    text = bytearray(b'"')
    start = 0
    while start < len(view):
        end = min(start + _LARGE, len(view))
        while end < len(view) and view[end] & 0xC0 == 0x80:  # the middle of a character
            end += 1
        text += msgspec.json.encode(str(view[start:end], "utf-8"))[1:-1]
        start = end
    text += b'"'
    return bytes(text)


def encode_rows(table: pa.Table) -> list[bytes]:
    """Every row of a table as one JSON object, keys in the order of the columns."""
    keys = [encode_value(name) + b": " for name in table.column_names]
    columns = [encoded_column(column) for column in table.columns]
    if not columns:
        return [b"{}"] * table.num_rows
    return [
        b"{" + b", ".join([key + value for key, value in zip(keys, row, strict=True)]) + b"}"
        for row in zip(*columns, strict=True)
    ]


def json_objects(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The Python values behind a `json` column."""
    return [_decode_any(raw) for raw in encoded_column(column)]


def _decode_any(raw: bytes) -> Any:
    try:
        return _ANY.decode(raw)
    except msgspec.DecodeError:
        import json

        return json.loads(raw)
