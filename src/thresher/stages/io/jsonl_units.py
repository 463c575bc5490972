# SPDX-License-Identifier: Apache-2.0
"""How files of JSON lines are cut into units.

    plain text             blocks of `blocksize` bytes; a block owns the lines that start in it
    zstd, many frames      consecutive frames up to `blocksize` unpacked bytes (local files whose frames say their size)
    other packed files     one stream, cut as it is unpacked every `blocksize` bytes
    small files            packed together, in order, up to `blocksize`
    `files_per_partition`  exactly so many whole files, whatever they hold

Listing looks at the first bytes of each file, since a name may lie, and at nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from thresher.core.filesystem import FileInfo, StorageOptions, is_url, read_start, read_starts
from thresher.core.unit import Piece, Unit, file_stem, unit_id
from thresher.stages.io.content import SNIFF_BYTES, Content, content_of
from thresher.stages.io.zstd_frames import Frame, find_frames, unpacked_size

_SMALL = 64
"""A file below this fraction of `blocksize` is packed with its neighbours."""
_UNPACKS_TO = 8
"""How much larger a packed file is taken to be when unpacked."""
_LARGE_FRAME = 4
"""Frames of more than so many times `blocksize` are streamed: a unit should be about as large as the user asked for."""
_SNIFF_TOGETHER = 64
"""Remote files are looked at in groups of so many at once."""


@dataclass(frozen=True)
class Splitting:
    """How to cut."""

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
    """Its place in the input."""
    info: FileInfo
    """Where it is."""
    content: Content
    """What is in it."""
    weight: int
    """About how many bytes it has unpacked."""


class _Pack:
    """Files that wait for neighbours to share a unit with."""

    def __init__(self) -> None:
        self.files: list[_File] = []
        self.weight = 0

    def add(self, file: _File) -> None:
        """One more file."""
        self.files.append(file)
        self.weight += file.weight

    def flush(self) -> Iterator[Unit]:
        """The unit of what has gathered, if anything."""
        if self.files:
            yield _whole_files(self.files)
        self.files, self.weight = [], 0


def list_jsonl_units(files: Iterator[FileInfo], splitting: Splitting) -> Iterator[Unit]:
    """The units of `files`, in input order."""
    pack = _Pack()
    for file in _sniffed(files, splitting.storage_options):
        if splitting.files_per_partition is not None:
            pack.add(file)
            if len(pack.files) == splitting.files_per_partition:
                yield from pack.flush()
        elif file.weight * _SMALL < splitting.blocksize:
            if pack.weight + file.weight > splitting.blocksize:
                yield from pack.flush()
            pack.add(file)
        else:
            yield from pack.flush()
            yield from _split(file, splitting)
    yield from pack.flush()


def _sniffed(files: Iterator[FileInfo], storage_options: StorageOptions) -> Iterator[_File]:
    """What is in each file; empty files are left out, they hold no record."""
    numbered = ((number, info) for number, info in enumerate(files) if info.size > 0)
    for number, info in numbered:
        if not is_url(info.path):
            yield _file(number, info, read_start(info.path, SNIFF_BYTES))
            continue
        group = [(number, info), *islice(numbered, _SNIFF_TOGETHER - 1)]
        heads = read_starts([found.path for _, found in group], SNIFF_BYTES, storage_options)
        for (place, found), head in zip(group, heads, strict=True):
            yield _file(place, found, head)


def _file(number: int, info: FileInfo, head: bytes) -> _File:
    content = content_of(head, info.path)
    weight = info.size * (_UNPACKS_TO if content.packed else 1)
    if content is Content.ZSTD:
        weight = max(weight, unpacked_size(head) or 0)
    return _File(number, info, content, weight)


def _split(file: _File, splitting: Splitting) -> Iterator[Unit]:
    if file.content.unreadable:
        yield _whole_files([file])
    elif file.content is Content.PLAIN:
        yield from _blocks(file, splitting.blocksize)
    else:
        frames = None
        if file.content is Content.ZSTD and not is_url(file.info.path):
            frames = find_frames(file.info.path)
        if frames is None or any(frame.unpacked > _LARGE_FRAME * splitting.blocksize for frame in frames):
            yield msgspec.structs.replace(_whole_files([file]), stream=True)
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


def _whole_files(files: Sequence[_File]) -> Unit:
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
