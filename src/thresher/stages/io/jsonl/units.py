# SPDX-License-Identifier: Apache-2.0
"""Splitting of JSON lines files into units.

    plain text             blocks of `blocksize` bytes; a block owns the lines that start in it
    zstd, many frames      consecutive frames up to `blocksize` unpacked bytes (local files with recorded frame sizes)
    other compressed       one stream, split every `blocksize` unpacked bytes while it is read
    small files            grouped, in order, up to `blocksize` or 500 files
    `files_per_partition`  exactly that many whole files, whatever they hold

Listing reads only the first bytes of each file, because a file name may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from thresher.core.files.filesystem import FileInfo, StorageOptions, is_url, read_start, read_starts
from thresher.core.unit import Piece, Unit, file_stem, unit_id
from thresher.stages.io.compression.content import SNIFF_BYTES, Content, content_of
from thresher.stages.io.compression.zstd_frames import Frame, find_frames, unpacked_size
from thresher.stages.io.listing import PACK_FILES

_SMALL = 64
"""A file below this fraction of `blocksize` is grouped with its neighbours."""
_COMPRESSION_RATIO = 8
"""Assumed compression ratio of a compressed file."""
_LARGE_FRAME = 4
"""Files with frames larger than this multiple of `blocksize` are streamed, so that units stay close to the requested
size."""
_SNIFF_AT_ONCE = 64
"""Number of remote files that are sniffed at once."""


@dataclass(frozen=True)
class Splitting:
    """How to split files into units."""

    blocksize: int
    """Bytes of a unit."""
    files_per_partition: int | None = None
    """Whole files per unit, instead of cutting by bytes."""
    storage_options: StorageOptions = None
    """For URLs."""


@dataclass(frozen=True)
class _File:
    """A file that is not empty."""

    number: int
    """Its index in the input."""
    info: FileInfo
    """Its path, size and version."""
    content: Content
    """Its content type."""
    weight: int
    """Approximate unpacked bytes."""


class _Pack:
    """Small files that share a unit."""

    def __init__(self) -> None:
        self.files: list[_File] = []
        self.weight = 0

    def add(self, file: _File) -> None:
        """Add a file."""
        self.files.append(file)
        self.weight += file.weight

    def flush(self) -> Iterator[Unit]:
        """Yield the unit of the collected files, if any."""
        if self.files:
            yield _unit_of_files(self.files)
        self.files, self.weight = [], 0


def list_jsonl_units(files: Iterator[FileInfo], splitting: Splitting) -> Iterator[Unit]:
    """Yield the units of `files`, in input order."""
    pack = _Pack()
    for file in _sniff(files, splitting.storage_options):
        if splitting.files_per_partition is not None:
            pack.add(file)
            if len(pack.files) == splitting.files_per_partition:
                yield from pack.flush()
        elif file.weight * _SMALL < splitting.blocksize:
            if pack.weight + file.weight > splitting.blocksize or len(pack.files) >= PACK_FILES:
                yield from pack.flush()
            pack.add(file)
        else:
            yield from pack.flush()
            yield from _split(file, splitting)
    yield from pack.flush()


def _sniff(files: Iterator[FileInfo], storage_options: StorageOptions) -> Iterator[_File]:
    """Yield each file with its content type; empty files are skipped, as they hold no records."""
    numbered = ((number, info) for number, info in enumerate(files) if info.size > 0)
    for number, info in numbered:
        if not is_url(info.path):
            yield _file(number, info, read_start(info.path, SNIFF_BYTES))
            continue
        group = [(number, info), *islice(numbered, _SNIFF_AT_ONCE - 1)]
        heads = read_starts([found.path for _, found in group], SNIFF_BYTES, storage_options)
        for (number, found), head in zip(group, heads, strict=True):
            yield _file(number, found, head)


def _file(number: int, info: FileInfo, head: bytes) -> _File:
    content = content_of(head, info.path)
    weight = info.size * (_COMPRESSION_RATIO if content.compressed else 1)
    if content is Content.ZSTD:
        weight = max(weight, unpacked_size(head) or 0)
    return _File(number, info, content, weight)


def _split(file: _File, splitting: Splitting) -> Iterator[Unit]:
    if file.content.unreadable:
        yield _unit_of_files([file])
    elif file.content is Content.PLAIN:
        yield from _blocks(file, splitting.blocksize)
    else:
        frames = None
        if file.content is Content.ZSTD and not is_url(file.info.path):
            frames = find_frames(file.info.path)
        if frames is None or any(frame.unpacked > _LARGE_FRAME * splitting.blocksize for frame in frames):
            yield msgspec.structs.replace(_unit_of_files([file]), stream=True)
        else:
            yield from _frame_groups(file, frames, splitting.blocksize)


def _blocks(file: _File, blocksize: int) -> Iterator[Unit]:
    for block, start in enumerate(range(0, file.info.size, blocksize)):
        end = min(start + blocksize, file.info.size)
        yield _unit(file, block, msgspec.structs.replace(_whole(file.info), start=start, end=end), end - start)


def _frame_groups(file: _File, frames: Sequence[Frame], blocksize: int) -> Iterator[Unit]:
    start, row, unpacked, block = 0, 0, 0, 0
    for number, frame in enumerate(frames):
        unpacked += frame.unpacked
        last = number == len(frames) - 1
        if unpacked - row >= blocksize or last:
            end = file.info.size if last else frame.end
            piece = msgspec.structs.replace(_whole(file.info), start=start, end=end, row=row)
            yield _unit(file, block, piece, end - start)
            start, row, block = frame.end, unpacked, block + 1


def _unit_of_files(files: Sequence[_File]) -> Unit:
    pieces = tuple(_whole(file.info) for file in files)
    first = _unit(files[0], 0, pieces[0], sum(file.info.size for file in files))
    return msgspec.structs.replace(first, pieces=pieces)


def _unit(file: _File, block: int, piece: Piece, nbytes: int) -> Unit:
    relative = file.info.relative
    return Unit(
        id=unit_id(relative, block),
        order=(file.number, block),
        pieces=(piece,),
        stem=file_stem(relative),
        nbytes=nbytes,
    )


def _whole(info: FileInfo) -> Piece:
    return Piece(path=info.path, relative=info.relative, size=info.size, version=info.version)
