# SPDX-License-Identifier: Apache-2.0
"""Unpacking .gz, .bz2, .xz and .zst files piece by piece, with everything that can be saved from a damaged one."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from thresher.stages.io.content import Content
from thresher.stages.io.damage import corrupt, trailing_garbage, truncated
from thresher.stages.io.zstd_frames import unpack_zstd

_READ_BYTES = 2**18
_GIVE_BYTES = 2**20


class Unpacker(Protocol):
    """What all these libraries offer for one member of a packed file."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int) -> bytes:
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
    """One that gives what it has after every byte; slower, for damaged files."""


class _CarefulGzip:
    """zlib behind the same methods: unlike isal it gives every byte that it could unpack before a fault."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=31)
        self._rest = b""

    @property
    def eof(self) -> bool:
        return self._unpacker.eof

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def unused_data(self) -> bytes:
        return self._unpacker.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        unpacked = self._unpacker.decompress(self._rest + data, max_length)
        self._rest = self._unpacker.unconsumed_tail
        return unpacked


def _fast_gzip() -> Any:
    from isal import igzip_lib

    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


_CODECS = {
    Content.GZIP: Codec("gzip", b"\x1f\x8b", _fast_gzip, _CarefulGzip),  # type: ignore[arg-type]  # properties are fine
    Content.BZIP2: Codec("bzip2", b"BZh", bz2.BZ2Decompressor, bz2.BZ2Decompressor),
    Content.XZ: Codec("xz", b"\xfd7zXZ\x00", lzma.LZMADecompressor, lzma.LZMADecompressor),
}


def unpack(opened: BinaryIO, path: str, content: Content) -> Iterator[bytes]:
    """The unpacked bytes of a file that is opened at its beginning; ends with a `DamagedInputError` where it is damaged."""
    if content is Content.ZSTD:
        return unpack_zstd(opened, path)
    return _unpack_members(opened, path, _CODECS[content])


def _unpack_members(opened: BinaryIO, path: str, codec: Codec) -> Iterator[bytes]:
    """One member after the other; zeros behind the last one are padding."""
    start, ahead = 0, b""
    while True:
        member = _Member(opened, path, codec, start)
        yield from member.unpacked(ahead)
        ahead, end = member.unused, member.position - len(member.unused)
        while not ahead.strip(b"\0"):
            end += len(ahead)
            ahead = opened.read(_READ_BYTES)
            if not ahead:
                return
        padding = len(ahead) - len(ahead.lstrip(b"\0"))
        start, ahead = end + padding, ahead[padding:]
        while len(ahead) < len(codec.magic) and (more := opened.read(_READ_BYTES)):
            ahead += more
        if not ahead.startswith(codec.magic):
            raise trailing_garbage(path, start, codec.name)


class _Member:
    """One member of a packed file, from byte `start` on."""

    def __init__(self, opened: BinaryIO, path: str, codec: Codec, start: int) -> None:
        self._opened = opened
        self._path = path
        self._codec = codec
        self._start = start
        self._given = 0
        self.position = start
        """How far the file was read."""
        self.unused = b""
        """What was read and belongs to the next member."""

    def unpacked(self, ahead: bytes) -> Iterator[bytes]:
        """All its bytes; `ahead` was read already."""
        unpacker = self._codec.open()
        while not unpacker.eof:
            data = b""
            if unpacker.needs_input:
                data, ahead = ahead or self._opened.read(_READ_BYTES), b""
                if not data:
                    raise truncated(self._path, self.position, self._codec.name)
                self.position += len(data)
            try:
                given = unpacker.decompress(data, _GIVE_BYTES)
            except Exception as error:
                # Every library has its own exception (and isal's is no public name): whatever it is, the data is bad.
                yield from self._saved()
                raise corrupt(self._path, self.position, self._codec.name, error) from error
            self._given += len(given)
            if given:
                yield given
        self.unused = unpacker.unused_data

    def _saved(self) -> Iterator[bytes]:
        """What the failed call could have given: the member is unpacked again, in tiny steps near the fault."""
        unpacker = self._codec.open_careful()
        self._opened.seek(self._start)
        careful_from = self.position - 2 * _READ_BYTES
        place, to_skip = self._start, self._given
        while not unpacker.eof:
            step = _READ_BYTES if place + _READ_BYTES < careful_from else 1
            data = self._opened.read(step) if unpacker.needs_input else b""
            if not data and unpacker.needs_input:
                return
            place += len(data)
            try:
                given = unpacker.decompress(data, _GIVE_BYTES)
            except Exception:
                self.position = place
                return
            if len(given) > to_skip:
                yield given[to_skip:]
            to_skip = max(0, to_skip - len(given))


class UnpackedFile:
    """A packed file that is read like a plain one."""

    def __init__(self, opened: BinaryIO, pieces: Iterator[bytes]) -> None:
        self._opened = opened
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readinto(self, target: memoryview) -> int:
        """Fill `target` as far as one unpacked piece goes; 0 at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(self._rest), len(target))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """Close the file behind it."""
        self._opened.close()
