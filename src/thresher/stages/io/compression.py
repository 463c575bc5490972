# SPDX-License-Identifier: Apache-2.0
"""Unpacking .gz, .bz2, .xz and .zst files piece by piece, with everything that can be saved from a damaged one."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from thresher.stages.io.content import Content
from thresher.stages.io.damage import corrupt, trailing_garbage, truncated
from thresher.stages.io.feed import Feed
from thresher.stages.io.zstd_frames import unpack_zstd

_LEAST_BYTES, _MOST_BYTES = 2**13, 2**18
"""What an unpacker is given at a time: little at first, since what lies behind the end of a small member is copied."""
_GIVE_BYTES = 2**20
_XZ_MEMORY = 2**29
"""What unpacking a .xz file may take; the highest level of xz needs an eighth of it."""


class Unpacker(Protocol):
    """What all these libraries offer for one member of a packed file."""

    @property
    def eof(self) -> bool:
        """Whether the member is at its end."""

    @property
    def needs_input(self) -> bool:
        """Whether there is nothing left to give without more input."""

    @property
    def unused_data(self) -> bytes:
        """What was given behind the end of the member."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Take packed bytes, give at most `max_length` unpacked ones."""


@dataclass(frozen=True)
class Codec:
    """How one kind of packed file is unpacked."""

    name: str
    """What people call it."""
    magic: bytes
    """How every member begins."""
    open: Callable[[], Unpacker]
    """An unpacker for one member."""
    open_careful: Callable[[], Unpacker]
    """One for damaged files: slower, but it gives more before it fails."""
    careful_bytes: int
    """What that one is given at a time near a fault."""


class _CarefulGzip:
    """zlib behind the same methods. It gives every byte before a fault, and raises when it is asked for more."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=31)
        self._rest = b""
        self._fault: zlib.error | None = None

    @property
    def eof(self) -> bool:
        return self._unpacker.eof

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def unused_data(self) -> bytes:
        return self._unpacker.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        if self._fault is not None:
            raise self._fault
        data, self._rest = self._rest + data, b""
        before = self._unpacker.copy()
        try:
            unpacked = self._unpacker.decompress(data, max_length)
        except zlib.error as error:
            self._fault = error
            return b"".join(self._byte_by_byte(before, data))
        self._rest = self._unpacker.unconsumed_tail
        return unpacked

    def _byte_by_byte(self, unpacker: zlib._Decompress, data: bytes) -> Iterator[bytes]:
        with contextlib.suppress(zlib.error):
            for n in range(len(data)):
                yield unpacker.decompress(data[n : n + 1])


def _fast_gzip() -> Any:
    from isal import igzip_lib

    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


def _xz() -> Unpacker:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


_CODECS = {
    Content.GZIP: Codec("gzip", b"\x1f\x8b", _fast_gzip, _CarefulGzip, 4096),
    Content.BZIP2: Codec("bzip2", b"BZh", bz2.BZ2Decompressor, bz2.BZ2Decompressor, 32),
    Content.XZ: Codec("xz", b"\xfd7zXZ\x00", _xz, _xz, 32),
}


def unpack(opened: BinaryIO, content: Content) -> Iterator[bytes]:
    """The unpacked bytes of a file that is opened at its beginning; a `DamagedInputError` where it is damaged."""
    if content is Content.ZSTD:
        return unpack_zstd(opened)
    return _unpack_members(opened, _CODECS[content])


def _unpack_members(opened: BinaryIO, codec: Codec) -> Iterator[bytes]:
    """One member after the other; zeros behind the last one are padding."""
    feed = Feed(opened)
    while True:
        yield from _Member(feed, codec).unpacked()
        while padding := feed.take(_MOST_BYTES):
            rest = len(padding.lstrip(b"\0"))
            if rest:
                feed.give_back(rest)
                break
        head = feed.peek(len(codec.magic))
        if not head:
            return
        if head != codec.magic:
            raise trailing_garbage(feed.position, codec.name)


class _Member:
    """One member of a packed file; the feed stands at its beginning."""

    def __init__(self, feed: Feed, codec: Codec) -> None:
        self._feed = feed
        self._codec = codec
        self._start = feed.position
        self._given = 0

    def unpacked(self) -> Iterator[bytes]:
        """All its bytes; the feed is left at its end."""
        unpacker = self._codec.open()
        step = _LEAST_BYTES
        while not unpacker.eof:
            data = b""
            if unpacker.needs_input:
                data = self._feed.take(step)
                step = min(2 * step, _MOST_BYTES)
                if not data:
                    end = self._feed.position
                    if self._codec.open_careful is not self._codec.open:
                        yield from self._rescued(end)
                    raise truncated(end, self._codec.name)
            try:
                given = unpacker.decompress(data, _GIVE_BYTES)
            except MemoryError:
                raise
            except Exception as error:
                # Every library has its own exception, and isal's is no public name: whatever it is, the data is bad.
                fault = self._feed.position
                yield from self._rescued(fault)
                raise corrupt(fault, self._codec.name, error) from error
            self._given += len(given)
            if given:
                yield given
        self._feed.give_back(len(unpacker.unused_data))

    def _rescued(self, fault: int) -> Iterator[bytes]:
        """What a careful library finds beyond what was given: the member is unpacked again."""
        unpacker = self._codec.open_careful()
        to_skip = self._given
        for data in self._again(fault):
            more = data
            while True:
                try:
                    given = unpacker.decompress(more, _GIVE_BYTES)
                except Exception:
                    return
                if len(given) > to_skip:
                    yield given[to_skip:]
                to_skip = max(0, to_skip - len(given))
                if unpacker.needs_input or unpacker.eof:
                    break
                more = b""

    def _again(self, fault: int) -> Iterator[bytes]:
        """The packed bytes of the member up to the fault once more, in small steps from well before it on."""
        self._feed.go_to(self._start)
        while (left := fault - 2 * _MOST_BYTES - self._feed.position) > 0:
            yield self._feed.take(min(left, _MOST_BYTES))
        data = self._feed.take(fault - self._feed.position)
        step = self._codec.careful_bytes
        yield from (data[n : n + step] for n in range(0, len(data), step))


class UnpackedFile:
    """A packed file that is read like a plain one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        """`pieces` are its unpacked bytes."""
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readinto(self, target: memoryview, /) -> int:
        """Fill `target` as far as one unpacked piece goes; 0 at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(self._rest), len(target))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
