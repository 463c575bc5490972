# SPDX-License-Identifier: Apache-2.0
"""Unpacking of .gz, .bz2, .xz and .zst files piece by piece, with salvage of damaged ones."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from thresher.stages.io.compression.content import Content
from thresher.stages.io.compression.zstd_frames import Feed, unpack_zstd
from thresher.stages.io.damage import corrupt, trailing_garbage, truncated

_LEAST_BYTES, _MOST_BYTES = 2**13, 2**18
"""Bytes passed to a decompressor at a time: few at first, because bytes after the end of a small member are copied."""
_GIVE_BYTES = 2**20
_XZ_MEMORY = 2**29
"""Memory limit for unpacking a .xz file; the highest level of xz needs an eighth of it."""


class Unpacker(Protocol):
    """The common interface of these libraries for one member of a compressed file."""

    @property
    def eof(self) -> bool:
        """Return True at the end of the member."""

    @property
    def needs_input(self) -> bool:
        """Return True if no output is left without more input."""

    @property
    def unused_data(self) -> bytes:
        """Return the input after the end of the member."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Decompress bytes to at most `max_length` unpacked ones."""


@dataclass(frozen=True)
class Codec:
    """A compression format."""

    name: str
    """Its usual name."""
    magic: bytes
    """The first bytes of every member."""
    open: Callable[[], Unpacker]
    """Creates a decompressor for one member."""
    open_careful: Callable[[], Unpacker]
    """Creates a decompressor for damaged files: slower, but it returns more before it fails."""
    careful_bytes: int
    """Bytes passed to that one at a time near a fault."""


class _CarefulGzip:
    """zlib with the same interface. It returns every byte before a fault, and raises on the next call."""

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
    """Yield the unpacked bytes of a file opened at its beginning; raise a `DamagedInputError` where it is damaged."""
    if content is Content.ZSTD:
        return unpack_zstd(opened)
    return _unpack_members(opened, _CODECS[content])


def _unpack_members(opened: BinaryIO, codec: Codec) -> Iterator[bytes]:
    """Yield the bytes of all members; zeros after the last one are padding."""
    feed = Feed(opened)
    while True:
        yield from _Member(feed, codec).unpacked()
        while padding := feed.take(_MOST_BYTES):
            rest = len(padding.lstrip(b"\0"))
            if rest:
                feed.unread(rest)
                break
        head = feed.peek(len(codec.magic))
        if not head:
            return
        if head != codec.magic:
            raise trailing_garbage(feed.position, codec.name)


class _Member:
    """One member of a compressed file; the feed is at its beginning."""

    def __init__(self, feed: Feed, codec: Codec) -> None:
        self._feed = feed
        self._codec = codec
        self._start = feed.position
        self._given = 0

    def unpacked(self) -> Iterator[bytes]:
        """Yield all its bytes, and leave the feed at its end."""
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
                        yield from self._salvaged(end)
                    raise truncated(end, self._codec.name)
            try:
                given = unpacker.decompress(data, _GIVE_BYTES)
            except MemoryError:
                raise
            except Exception as error:
                # Every library has its own exception, and that of isal is private: any exception means damaged data.
                fault = self._feed.position
                yield from self._salvaged(fault)
                raise corrupt(fault, self._codec.name, error) from error
            self._given += len(given)
            if given:
                yield given
        self._feed.unread(len(unpacker.unused_data))

    def _salvaged(self, fault: int) -> Iterator[bytes]:
        """Yield what a careful decompressor recovers beyond the output so far, by unpacking the member again, if
        possible."""
        if not self._feed.seekable:
            return
        unpacker = self._codec.open_careful()
        to_skip = self._given
        for data in self._reread(fault):
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

    def _reread(self, fault: int) -> Iterator[bytes]:
        """Yield the compressed bytes of the member up to the fault again, in small steps near the fault."""
        self._feed.go_to(self._start)
        while (left := fault - 2 * _MOST_BYTES - self._feed.position) > 0:
            yield self._feed.take(min(left, _MOST_BYTES))
        data = self._feed.take(fault - self._feed.position)
        step = self._codec.careful_bytes
        yield from (data[n : n + step] for n in range(0, len(data), step))


class UnpackedFile:
    """A compressed file with the interface of a plain one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        """`pieces` are its unpacked bytes."""
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readinto(self, target: memoryview, /) -> int:
        """Fill `target` from one unpacked piece; return 0 at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(self._rest), len(target))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
