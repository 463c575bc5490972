# SPDX-License-Identifier: Apache-2.0
"""Frames of zstd files: finding them, and unpacking them block by block.

A frame records the size of its blocks, so walking over it costs a few bytes per 128 kB and no unpacking. Passing one
block at a time to the library bounds its output (128 kB, whatever a hostile file claims), and distinguishes a truncated
file from a complete one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from thresher.stages.io.damage import corrupt, trailing_garbage, truncated

_READ_BYTES = 2**20


class Feed:
    """Reads a file in large steps, returns bytes in small ones, and tracks its position."""

    def __init__(self, opened: BinaryIO, position: int = 0) -> None:
        """`opened` is at byte `position`."""
        self.position = position
        self._opened = opened
        self._held = b""
        self._used = 0

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes, fewer at the end of the file, without consuming them."""
        while len(self._held) - self._used < count:
            more = self._opened.read(_READ_BYTES)
            if not more:
                break
            self._held, self._used = self._held[self._used :] + more, 0
        return self._held[self._used : self._used + count]

    def take(self, count: int) -> bytes:
        """Return and consume the next `count` bytes, fewer at the end of the file."""
        taken = self.peek(count)
        self.position += len(taken)
        self._used += len(taken)
        return taken

    def unread(self, count: int) -> None:
        """Unread the last `count` of the bytes just taken."""
        self.position -= count
        self._used -= count

    @property
    def seekable(self) -> bool:
        """Return False for a pipe."""
        return self._opened.seekable()

    def go_to(self, position: int) -> None:
        """Continue at another position."""
        self._opened.seek(position)
        self.position, self._held, self._used = position, b"", 0


_MAGIC = b"\x28\xb5\x2f\xfd"
_HEADER_MAX = 18
_CHECKSUM = 4
_REPEATED, _RESERVED = 1, 3
_MAX_WINDOW = 2**27
"""Largest window that a frame may request (the limit of zstd itself): 128 MiB."""


@dataclass(frozen=True)
class Frame:
    """A frame of a zstd file."""

    start: int
    """Position of its first byte in the file."""
    end: int
    """Position after its last byte."""
    unpacked: int
    """Number of unpacked bytes."""


def unpacked_size(head: bytes) -> int | None:
    """Return the unpacked size of the frame that starts with `head`, if it is recorded."""
    import zstandard

    try:
        size = int(zstandard.frame_content_size(head))
    except zstandard.ZstdError:
        return None
    return size if size >= 0 else None


def find_frames(path: str, start: int = 0, end: int | None = None) -> list[Frame] | None:
    """Return the frames of a local file between bytes `start` and `end`, without skippable ones.

    `None` if a frame does not record its unpacked size, or the file is damaged: such a file can only be streamed.
    """
    with open(path, "rb", buffering=4096) as opened:
        size = opened.seek(0, io.SEEK_END)
        frames: list[Frame] = []
        position, stop = start, size if end is None else min(end, size)
        while position < stop:
            opened.seek(position)
            head = opened.read(_HEADER_MAX)
            if is_skippable(head) and len(head) >= 8:
                position += 8 + int.from_bytes(head[4:8], "little")
                continue
            frame = _find_frame(opened, position, head)
            if frame is None:
                return None
            frames.append(frame)
            position = frame.end
    return frames if position <= size else None


def _find_frame(opened: BinaryIO, position: int, head: bytes) -> Frame | None:
    import zstandard

    try:
        unpacked = unpacked_size(head)
        header = zstandard.frame_header_size(head)
        checksum = _CHECKSUM if zstandard.get_frame_parameters(head).has_checksum else 0
    except zstandard.ZstdError:
        return None
    last = _walk_blocks(opened, position + header) if unpacked is not None else None
    return None if last is None or unpacked is None else Frame(position, last + checksum, unpacked)


def _walk_blocks(opened: BinaryIO, position: int) -> int | None:
    """Return the position after the last block of a frame whose blocks start at `position`."""
    while True:
        opened.seek(position)
        header = opened.read(3)
        if len(header) < 3:
            return None
        last, kind, stored = _block(header)
        if kind == _RESERVED:
            return None
        position += 3 + stored
        if last:
            return position


def _block(header: bytes) -> tuple[bool, int, int]:
    """Return whether it is the last block, its type, and its number of bytes in the file."""
    bits = int.from_bytes(header, "little")
    kind = (bits >> 1) & 3
    return bool(bits & 1), kind, 1 if kind == _REPEATED else bits >> 3


def is_skippable(head: bytes) -> bool:
    """Return True if a frame holds no content."""
    return head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5


def unpack_zstd(opened: BinaryIO, position: int = 0) -> Iterator[bytes]:
    """Yield the unpacked bytes of all frames from byte `position`, where `opened` is, in pieces of at most 128 kB."""
    feed = Feed(opened, position)
    while True:
        head = feed.peek(_HEADER_MAX)
        if not head:
            return
        if is_skippable(head):
            _skip(feed, 8 + int.from_bytes(_whole(feed.peek(8), 8, feed)[4:], "little"))
        elif head.startswith(_MAGIC):
            yield from _unpack_frame(feed, head)
        elif _MAGIC.startswith(head):
            raise truncated(feed.position + len(head), "zstd")
        else:
            raise trailing_garbage(feed.position, "zstd")


def _skip(feed: Feed, count: int) -> None:
    while count > 0:
        step = min(count, 2**16)
        _whole(feed.take(step), step, feed)
        count -= step


def _unpack_frame(feed: Feed, head: bytes) -> Iterator[bytes]:
    import zstandard

    try:
        header = zstandard.frame_header_size(head)
        checksum = zstandard.get_frame_parameters(head).has_checksum
        unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
        unpacker.decompress(feed.take(header))
        last = False
        while not last:
            last, kind, stored = _block(_whole(feed.peek(3), 3, feed))
            if kind == _RESERVED:
                raise corrupt(feed.position, "zstd", "a block of a kind that does not exist")
            unpacked = unpacker.decompress(_whole(feed.take(3 + stored), 3 + stored, feed))
            if unpacked:
                yield unpacked
        if checksum:
            unpacked = unpacker.decompress(_whole(feed.take(_CHECKSUM), _CHECKSUM, feed))
            if unpacked:
                yield unpacked
    except zstandard.ZstdError as error:
        if len(head) < _HEADER_MAX and "not enough input" in str(error).lower():
            raise truncated(feed.position + len(head), "zstd") from error
        raise corrupt(feed.position, "zstd", error) from error


def _whole(found: bytes, count: int, feed: Feed) -> bytes:
    """Return `found` if it is complete; otherwise raise the error for a truncated file."""
    if len(found) < count:
        raise truncated(feed.position + len(feed.peek(count)), "zstd")
    return found
