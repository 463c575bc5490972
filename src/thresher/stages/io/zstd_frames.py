# SPDX-License-Identifier: Apache-2.0
"""zstd files: where their frames lie, and unpacking them block by block.

A frame says how large its blocks are, so walking over it costs a few bytes per 128 kB and no unpacking. Giving the
library one block at a time bounds what comes out at once (128 kB, whatever a hostile file claims), and tells a file
that was cut short from one that is whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from thresher.stages.io.damage import corrupt, trailing_garbage, truncated
from thresher.stages.io.feed import Feed

_MAGIC = b"\x28\xb5\x2f\xfd"
_HEADER_MAX = 18
_CHECKSUM = 4
_REPEATED, _RESERVED = 1, 3
_MAX_WINDOW = 2**27
"""What a frame may ask for as memory (zstd's own limit): 128 MiB."""


@dataclass(frozen=True)
class Frame:
    """A frame of a zstd file."""

    start: int
    """Its first byte in the file."""
    end: int
    """One past its last byte."""
    unpacked: int
    """How many bytes it unpacks to."""


def unpacked_size(head: bytes) -> int | None:
    """How many bytes the frame unpacks to that begins with `head`, if it says so."""
    import zstandard

    try:
        size = int(zstandard.frame_content_size(head))
    except zstandard.ZstdError:
        return None
    return size if size >= 0 else None


def find_frames(path: str, start: int = 0, end: int | None = None) -> list[Frame] | None:
    """The frames of a local file between bytes `start` and `end`, skippable ones left out.

    `None` when a frame does not say its unpacked size, or the file is damaged: such a file can only be streamed.
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
    """One past the last block of a frame whose blocks begin at `position`."""
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
    """Whether it is the last block, its kind, and how many bytes it takes in the file."""
    bits = int.from_bytes(header, "little")
    kind = (bits >> 1) & 3
    return bool(bits & 1), kind, 1 if kind == _REPEATED else bits >> 3


def is_skippable(head: bytes) -> bool:
    """Whether a frame holds no data of the file."""
    return head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5


def unpack_zstd(opened: BinaryIO, position: int = 0) -> Iterator[bytes]:
    """The unpacked bytes of all frames from byte `position` on, where `opened` stands, in pieces of at most 128 kB."""
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
    """`found`, if it is as long as it should be; else the file has ended."""
    if len(found) < count:
        raise truncated(feed.position + len(feed.peek(count)), "zstd")
    return found
