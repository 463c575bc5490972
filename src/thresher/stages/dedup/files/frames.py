# SPDX-License-Identifier: Apache-2.0
"""Files of compressed frames with checksums, and a table of contents at their end.

A frame belongs to a section, and has a note: plain data that a reader needs to decide whether it wants the frame.
Frames are compressed with Zstandard, or with LZ4, which takes less than half of the time and half as much room again.
"""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec
import zstandard

from thresher.core.files.filesystem import StorageOptions, open_read
from thresher.stages.io.file_writer import LocalFile

if TYPE_CHECKING:
    from thresher.core.source import FileFacts

_LEVEL = 1
_LZ4_LEVEL = -2
"""Below zero: in less time, and less. The default takes a third more time, and a tenth less room."""
_MAGIC = b"thrframe"
_TAIL_BYTES = 16
_CHECKSUM_BYTES = 4


class FrameEntry(NamedTuple):
    """One entry in the table of contents."""

    offset: int
    """Position of the frame in the file."""
    length: int
    """Its size in the file."""
    note: Any
    """Note of the writer about it."""
    size: int = -1
    """Its size before it was compressed, if that was with LZ4; otherwise -1."""


class FrameWriter:
    """Writes frames to a local file."""

    def __init__(self, path: str) -> None:
        self._file = LocalFile(path)
        self._sections: dict[str, list[FrameEntry]] = {}
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    def add(self, section: str, content: Any, note: Any = None) -> None:
        """Add a frame."""
        packed = self._compressor.compress(content)
        self._sections.setdefault(section, []).append(FrameEntry(self._file.nbytes, len(packed), note))
        self._file.append(packed)

    def add_quickly(self, section: str, content: bytes, note: Any = None) -> None:
        """Add a frame that is compressed in less time, and less."""
        packed = _lz4().compress(content, asbytes=True)
        packed += zlib.crc32(packed).to_bytes(_CHECKSUM_BYTES, "little")
        self._sections.setdefault(section, []).append(FrameEntry(self._file.nbytes, len(packed), note, len(content)))
        self._file.append(packed)

    def close(self, records: int, facts: Any = None) -> FileFacts:
        """Write the table of contents, with `facts` about the whole file, plain data."""
        contents = self._compressor.compress(msgspec.msgpack.encode([facts, self._sections]))
        self._file.append(contents)
        self._file.append(len(contents).to_bytes(8, "little") + _MAGIC)
        return self._file.close(records)

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


class FrameReader:
    """An open file of frames."""

    def __init__(self, file: BinaryIO, nbytes: int) -> None:
        self._file = file
        self._unpacker = zstandard.ZstdDecompressor()
        file.seek(nbytes - _TAIL_BYTES)
        tail = file.read(_TAIL_BYTES)
        if tail[8:] != _MAGIC:
            raise OSError(f"{getattr(file, 'name', 'a file of a phase')} is damaged: it does not end as it should")
        length = int.from_bytes(tail[:8], "little")
        file.seek(nbytes - _TAIL_BYTES - length)
        facts, sections = msgspec.msgpack.decode(self._unpacker.decompress(file.read(length)))
        self.facts: Any = facts
        self._sections: dict[str, list[Any]] = sections

    def frames(self, section: str) -> list[FrameEntry]:
        """Return the frames of a section, in the order in which they were written."""
        return [FrameEntry(*entry) for entry in self._sections.get(section, [])]

    def read(self, frame: FrameEntry) -> bytes:
        """Return the content of a frame; its checksum is verified."""
        self._file.seek(frame.offset)
        packed = self._file.read(frame.length)
        if frame.size < 0:
            return self._unpacker.decompress(packed)
        content, checksum = packed[:-_CHECKSUM_BYTES], packed[-_CHECKSUM_BYTES:]
        if zlib.crc32(content) != int.from_bytes(checksum, "little"):
            raise OSError(f"{getattr(self._file, 'name', 'a file of a phase')} is damaged: a checksum is wrong")
        unpacked: bytes = _lz4().decompress(content, frame.size, asbytes=True)
        return unpacked


@functools.cache
def _lz4() -> Any:
    import pyarrow as pa

    return pa.Codec("lz4", compression_level=_LZ4_LEVEL)


@contextlib.contextmanager
def open_frames(path: str, nbytes: int, storage_options: StorageOptions = None) -> Iterator[FrameReader]:
    """Open a file of frames."""
    with contextlib.closing(open_read(path, storage_options=storage_options)) as file:
        yield FrameReader(file, nbytes)
