# SPDX-License-Identifier: Apache-2.0
"""Schema-less codec for Thrift's compact protocol, in which Parquet stores its footer and page headers.

A struct becomes a dict from field number to `(kind, value)`, a list `(kind, values)`, so that decoded data can be
changed and encoded again. Input is untrusted: bad data raises a `ValueError`, and never causes a large allocation.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MAX_DEPTH = 32

Struct = dict[int, tuple[int, Any]]


class Decoder:
    """Reads values from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int = 0) -> Struct:
        """Read a struct."""
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        fields: Struct = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            fields[number] = (kind, kind == TRUE) if kind in (TRUE, FALSE) else (kind, self._value(kind, depth))
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (TRUE, FALSE, BYTE):
            return self._byte()
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == DOUBLE:
            return self._take(8)
        if kind == BINARY:
            return self._take(self._varint())
        if kind in (LIST, SET):
            return self._list(depth)
        if kind == STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"no field is of kind {kind} in Parquet")

    def _list(self, depth: int) -> tuple[int, list[Any]]:
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        if count > len(self._data) - self.position:  # an item takes at least one byte
            raise ValueError("a list is longer than the data")
        return head & 15, [self._value(head & 15, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise ValueError("the data ends too early")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number has too many bytes")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def encode_struct(fields: Struct) -> bytes:
    """Return the bytes of a struct as `Decoder.struct` reads it."""
    made = bytearray()
    last = 0
    for number, (kind, value) in sorted(fields.items()):
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        delta = number - last
        made += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + _zigzag(number)
        last = number
        if kind not in (TRUE, FALSE):
            made += _encoded(kind, value)
    return bytes(made) + b"\0"


def _encoded(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE, BYTE):
        return bytes([value])
    if kind in (I16, I32, I64):
        return _zigzag(value)
    if kind == BINARY:
        return _varint(len(value)) + bytes(value)
    if kind in (LIST, SET):
        item, values = value
        head = bytes([len(values) << 4 | item]) if len(values) < 15 else bytes([0xF0 | item]) + _varint(len(values))
        return head + b"".join(_encoded(item, one) for one in values)
    return encode_struct(value) if kind == STRUCT else bytes(value)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
