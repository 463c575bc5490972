# SPDX-License-Identifier: Apache-2.0
"""Lines in a compressed file, split into frames that can be unpacked independently.

A frame (zstd), member (gzip) or stream (bz2, xz) ends after the first line that brings its content to `FRAME_BYTES`.
Frame boundaries depend on the lines alone, not on batches; a zstd frame records the length of its content, so that a
reader can split the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from thresher.core.source import FileFacts
from thresher.stages.io.file_writer import LocalFile

if TYPE_CHECKING:
    from thresher.core.documents.records import Rows

FRAME_BYTES = 4 * 2**20
"""Content size after which a frame ends. Frames of 16 MB are 1 % smaller, frames of 1 MB 3 % larger."""

ZSTD_LEVEL = 3
GZIP_LEVEL = 2
"""Level 2 of isal is as fast as 1 and compresses better; 3 takes half as long again for 3 % less (English text)."""
XZ_PRESET = 6
BZ2_LEVEL = 9

Compress = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Compression:
    """A compression format."""

    extension: str
    """The file extension that it adds."""
    compressor: Callable[[], Compress]
    """Creates a function that compresses the content of a frame."""
    reader: Callable[[str], BinaryIO]
    """Opens a compressed file to read its content."""


def _gzip() -> Compress:
    from isal import igzip

    def compress(data: bytes) -> bytes:
        # No time and no name in the header: equal records must give equal bytes.
        return igzip.compress(data, GZIP_LEVEL, mtime=0)

    return compress


def _read_gzip(path: str) -> BinaryIO:
    from isal import igzip

    return cast(BinaryIO, igzip.open(path, "rb"))  # type: ignore[no-untyped-call]  # isal annotates it in part


def _zstd() -> Compress:
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_content_size=True, write_checksum=True).compress


def _read_zstd(path: str) -> BinaryIO:
    import zstandard

    return cast(BinaryIO, zstandard.ZstdDecompressor().stream_reader(open(path, "rb"), read_across_frames=True))


def _bz2() -> Compress:
    import bz2

    return lambda data: bz2.compress(data, BZ2_LEVEL)


def _read_bz2(path: str) -> BinaryIO:
    import bz2

    return cast(BinaryIO, bz2.open(path, "rb"))


def _xz() -> Compress:
    import lzma

    return lambda data: lzma.compress(data, lzma.FORMAT_XZ, preset=XZ_PRESET)


def _read_xz(path: str) -> BinaryIO:
    import lzma

    return cast(BinaryIO, lzma.open(path, "rb"))


_GZIP = Compression(".gz", _gzip, _read_gzip)
_ZSTD = Compression(".zst", _zstd, _read_zstd)
COMPRESSIONS: dict[str, Compression] = {
    "gzip": _GZIP,
    "gz": _GZIP,
    "zstd": _ZSTD,
    "zst": _ZSTD,
    "bz2": Compression(".bz2", _bz2, _read_bz2),
    "xz": Compression(".xz", _xz, _read_xz),
}
"""Formats by the names that a user may give."""


class CompressedLines:
    """Lines in a compressed file."""

    def __init__(self, path: str, compression: str) -> None:
        self._file = LocalFile(path)
        self._compress = COMPRESSIONS[compression].compressor()
        self._pieces: list[bytes | memoryview] = []
        self._held = 0
        self._records = 0

    def write(self, text: bytes | memoryview, lengths: Rows) -> None:
        """Add lines."""
        view = memoryview(text)
        ends = lengths.cumsum()
        start = 0
        while start < view.nbytes:
            line = int(ends.searchsorted(start + FRAME_BYTES - self._held))
            if line == len(ends):
                # A copy: the buffer behind the view may be reused when the batch is gone.
                self._pieces.append(bytes(view[start:]))
                self._held += view.nbytes - start
                break
            end = int(ends[line])
            self._pieces.append(view[start:end])
            self._end_frame()
            start = end
        self._records += len(lengths)

    def _end_frame(self) -> None:
        content = b"".join(self._pieces)
        self._pieces, self._held = [], 0
        self._file.append(self._compress(content))

    def close(self) -> FileFacts:
        """Finish the file."""
        if self._pieces:
            self._end_frame()
        return self._file.close(self._records)

    def abort(self) -> None:
        """Remove the file."""
        self._pieces = []
        self._file.abort()
