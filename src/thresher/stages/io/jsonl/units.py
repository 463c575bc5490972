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
from thresher.core.unit import Unit
from thresher.stages.io.compression.content import SNIFF_BYTES, Content, content_of
from thresher.stages.io.compression.zstd_frames import Frame, find_frames, unpacked_size
from thresher.stages.io.listing import Splitting, Stretch, units_of, whole_file

_COMPRESSION_RATIO = 8
"""Assumed compression ratio of a compressed file."""
_LARGE_FRAME = 4
"""Files with frames larger than this multiple of `blocksize` are streamed, so that units stay close to the requested
size."""
_SNIFF_AT_ONCE = 64
"""Number of remote files that are sniffed at once."""


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


def list_jsonl_units(files: Iterator[FileInfo], splitting: Splitting) -> Iterator[Unit]:
    """Yield the units of `files`, in input order."""
    return units_of(_stretches(files, splitting), splitting)


def _stretches(files: Iterator[FileInfo], splitting: Splitting) -> Iterator[Stretch]:
    for file in _sniff(files, splitting.storage_options):
        if splitting.packs(file.weight):
            yield Stretch(file.number, 0, whole_file(file.info), file.info.size, file.weight, packable=True)
        else:
            yield from _split(file, splitting.blocksize)


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


def _split(file: _File, blocksize: int) -> Iterator[Stretch]:
    frames = None
    if file.content is Content.PLAIN:
        starts = range(0, file.info.size, blocksize)
        yield from (_part(file, n, start, min(start + blocksize, file.info.size)) for n, start in enumerate(starts))
        return
    if file.content is Content.ZSTD and not is_url(file.info.path):
        frames = find_frames(file.info.path)
    if frames is None or any(frame.unpacked > _LARGE_FRAME * blocksize for frame in frames):
        piece, size, stream = whole_file(file.info), file.info.size, not file.content.unreadable
        yield Stretch(file.number, 0, piece, size, size, packable=False, stream=stream)
    else:
        yield from _frame_groups(file, frames, blocksize)


def _frame_groups(file: _File, frames: Sequence[Frame], blocksize: int) -> Iterator[Stretch]:
    start, row, unpacked, block = 0, 0, 0, 0
    for number, frame in enumerate(frames):
        unpacked += frame.unpacked
        last = number == len(frames) - 1
        if unpacked - row >= blocksize or last:
            yield _part(file, block, start, file.info.size if last else frame.end, row)
            start, row, block = frame.end, unpacked, block + 1


def _part(file: _File, block: int, start: int, end: int, row: int = 0) -> Stretch:
    piece = msgspec.structs.replace(whole_file(file.info), start=start, end=end, row=row)
    return Stretch(file.number, block, piece, end - start, end - start, packable=False)
