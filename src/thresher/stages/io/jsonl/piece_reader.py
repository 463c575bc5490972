# SPDX-License-Identifier: Apache-2.0
"""Reading of the lines that belong to a unit of JSON lines, whatever the compression of its files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from thresher.core.files.filesystem import StorageOptions
from thresher.core.source import ReadContext
from thresher.core.unit import Piece, Unit
from thresher.stages.io.compression.content import SNIFF_BYTES, Content, content_of
from thresher.stages.io.compression.zstd_frames import find_frames, unpack_zstd
from thresher.stages.io.jsonl.lines import (
    HEAD_BYTES,
    ByteSource,
    Cut,
    CutRules,
    Damage,
    LineCutter,
    Lines,
    record_spans,
)
from thresher.stages.io.listing import open_piece

_UNREADABLE = {
    Content.UTF16: ("utf-16", "the file is UTF-16 text; JSON lines are UTF-8: convert it, for example with iconv"),
    Content.PARQUET: ("not-json-lines", "the file is Parquet; read it with ParquetReader"),
    Content.BINARY: (
        "corrupt-input",
        "the file has the name of a compressed file, but holds neither compressed data nor text; fetch it again",
    ),
}


@dataclass(frozen=True)
class PieceCut:
    """A cut and the file that it comes from."""

    piece: Piece
    """The file."""
    cut: Cut
    """The lines, or the failure."""
    consumed: int = 0
    """Number of bytes read from the file on disk; only set for a stream."""


def cut_unit(
    unit: Unit, context: ReadContext, every: int | None = None, storage_options: StorageOptions = None
) -> Iterator[PieceCut]:
    """Yield the content of a unit, in order, up to its limit; `every` splits a stream at unit boundaries."""
    rules = CutRules(
        chunk_bytes=context.chunk_bytes,
        max_record_bytes=context.max_record_bytes,
        before_large=context.before_large,
    )
    if every is not None:
        rules = replace(rules, every=every)
    found = (found for piece in unit.pieces for found in _cut_piece(piece, rules, storage_options))
    return found if unit.limit is None else _first_records(found, unit.limit)


def count_records(unit: Unit, storage_options: StorageOptions = None) -> int:
    """Return the number of records of a unit, up to its limit; an invalid line counts as one."""
    found = cut_unit(unit, ReadContext(), storage_options=storage_options)
    return sum(_records_in(item.cut) for item in found)


def _records_in(cut: Cut) -> int:
    return len(record_spans(cut.buffer)[0]) if isinstance(cut, Lines) else 1


def _first_records(found: Iterator[PieceCut], limit: int) -> Iterator[PieceCut]:
    for item in found:
        count = _records_in(item.cut)
        if count <= limit:
            yield item
        elif isinstance(item.cut, Lines):
            end = int(record_spans(item.cut.buffer)[1][limit - 1])
            yield PieceCut(item.piece, Lines(item.cut.offset, item.cut.buffer[: end + 1]))
        limit -= count
        if limit <= 0:
            return


def _cut_piece(piece: Piece, rules: CutRules, storage_options: StorageOptions) -> Iterator[PieceCut]:
    whole = piece.size < 0  # standard input, which cannot be split
    if whole:
        from thresher.stages.io.jsonl.standard_input import open_standard_input

        opened = open_standard_input(piece)
    else:
        opened = open_piece(piece, max(0, piece.start - 1) if not piece.row else piece.start, storage_options)
    with contextlib.closing(opened):
        if piece.start > 0:
            content = Content.ZSTD if piece.row else Content.PLAIN
        else:
            head = opened.read(SNIFF_BYTES)
            opened.seek(0)
            content = content_of(head, piece.path)
        if content.unreadable:
            error, message = _UNREADABLE[content]
            yield PieceCut(piece, Damage(0, head[:HEAD_BYTES], error, message))
        elif content is Content.PLAIN and not whole:
            source: ByteSource = opened  # type: ignore[assignment]  # typeshed leaves readinto out of BinaryIO
            yield from (PieceCut(piece, cut) for cut in LineCutter(source, _block_rules(piece, rules)))
        elif content is Content.ZSTD and piece.end >= 0:
            from thresher.stages.io.compression.unpack import UnpackedFile

            source = UnpackedFile(unpack_zstd(opened, piece.start))
            yield from (PieceCut(piece, cut) for cut in LineCutter(source, _frame_rules(piece, rules)))
        else:
            source = _unpacked(opened, content) if content.compressed else opened  # type: ignore[assignment]  # as above
            for cut in LineCutter(source, rules):
                yield PieceCut(piece, cut, opened.tell())


def _unpacked(opened: BinaryIO, content: Content) -> ByteSource:
    from thresher.stages.io.compression.unpack import UnpackedFile, unpack

    return UnpackedFile(unpack(opened, content))


def _block_rules(piece: Piece, rules: CutRules) -> CutRules:
    """Return the rules for a block, which owns the lines that start in it: those after the first line feed, searched
    from the byte before the block."""
    start = max(0, piece.start - 1)
    stop = piece.size if piece.end < 0 else piece.end
    skip = piece.start > 0
    return replace(rules, position=start, skip_first_line=skip, stop=stop, expected_bytes=piece.size - start)


def _frame_rules(piece: Piece, rules: CutRules) -> CutRules:
    """Return the rules for frames, which own the lines that start after their first byte, up to the first byte of the
    next frames.

    So no unit needs to know how the frame before it ended: it skips everything up to its first line feed.
    """
    frames = find_frames(piece.path, piece.start, piece.end) or []
    stop = piece.row + sum(frame.unpacked for frame in frames) + 1
    return replace(rules, position=piece.row, skip_first_line=piece.row > 0, stop=stop)
