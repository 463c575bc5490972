# SPDX-License-Identifier: Apache-2.0
"""Reader of JSON lines, plain or compressed, from local files and URLs. Files are split into units:

    plain text             blocks of `blocksize` bytes; a block owns the lines that start in it
    zstd, many frames      consecutive frames up to `blocksize` unpacked bytes (local files with recorded frame sizes)
    other compressed       one stream, split every `blocksize` unpacked bytes while it is read
    small files            grouped, in order, up to `blocksize` or 500 files
    `files_per_partition`  exactly that many whole files, whatever they hold

Listing reads only the first bytes of each file, because a file name may be wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, ClassVar

import msgspec

from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.files.filesystem import FileInfo, StorageOptions, is_url, open_piece, read_start, read_starts
from thresher.core.task import RawChunk, Task
from thresher.core.unit import Piece, Unit
from thresher.stages.io.compression.content import SNIFF_BYTES, Content, content_of
from thresher.stages.io.compression.zstd_frames import Frame, find_frames, unpack_zstd, unpacked_size
from thresher.stages.io.file_reader import FileReader
from thresher.stages.io.listing import AcceptedFiles, Splitting, Stretch, units_of, whole_file

if TYPE_CHECKING:
    from thresher.core.source import ReadContext, SourceItem
    from thresher.stages.io.jsonl.lines import ByteSource, Cut, CutRules
    from thresher.stages.io.parquet.run_schema import SourceColumns


class JsonlReader(FileReader):
    """Read JSON lines (.jsonl, .json, .ndjson), plain or packed as .gz, .zst, .bz2 or .xz; `-` is standard input."""

    accepted: ClassVar[AcceptedFiles] = AcceptedFiles(
        "JsonlReader", (".jsonl", ".json", ".ndjson"), (".gz", ".gzip", ".zst", ".bz2", ".xz")
    )

    takes_standard_input = True

    def needs_arrow(self) -> bool:
        """Return False: records stay lines."""
        return False

    def list_units(self) -> Iterator[Unit]:
        """Yield all units in input order, while listing continues."""
        if self.reads_standard_input:
            from thresher.stages.io.jsonl.standard_input import standard_input_unit

            stream = msgspec.structs.replace(standard_input_unit(), limit=self.limit)
            return iter([stream])
        splitting = Splitting(self.blocksize, self.files_per_partition, storage_options=self.storage_options)
        units = list_jsonl_units(self.files(), splitting)
        return units if self.limit is None else self._limited(units, self.limit)

    def _limited(self, units: Iterator[Unit], limit: int) -> Iterator[Unit]:
        """Yield units up to the first `limit` records. The last unit of the input need not be counted."""
        unit = next(units, None)
        while unit is not None and limit > 0:
            limited = msgspec.structs.replace(unit, limit=limit)
            unit = next(units, None)
            count = self.count_records(limited) if unit is not None else 0
            limit -= count
            yield limited if limit <= 0 or unit is None else msgspec.structs.replace(limited, limit=None)

    def count_records(self, unit: Unit) -> int:
        """Return the number of records of a unit, up to its limit; one that cannot be read counts."""
        from thresher.core.source import ReadContext

        return sum(
            _records_in(item.cut) for item in cut_unit(unit, ReadContext(), storage_options=self.storage_options)
        )

    def listed_schema(self) -> SourceColumns | None:
        """Return the fields of a sample of the files; `None` for standard input, and with a limit, which may end before
        the sample does."""
        if self.reads_standard_input or self.limit is not None:
            return None
        from thresher.stages.io.jsonl.sample import sample_columns

        return sample_columns(self)

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield chunks of whole lines; a stream is split into units every `blocksize` unpacked bytes."""
        from thresher.core.source import SourceItem

        if unit.stream:
            yield from self._read_stream(unit, context)
        elif len(unit.pieces) > 1:
            yield from self._read_pack(unit, context)
        else:
            for found in cut_unit(unit, context, storage_options=self.storage_options):
                yield SourceItem(unit, _task_of(found, context))

    def _read_stream(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        from thresher.core.source import SourceItem
        from thresher.stages.io.jsonl.standard_input import BLOCK_BYTES

        current: Unit | None = None
        size = min(self.blocksize, BLOCK_BYTES) if self.reads_standard_input else self.blocksize
        for found in cut_unit(unit, context, size, self.storage_options):
            block = unit.block(found.cut.offset // size)
            if current is not None and block.id != current.id:
                yield SourceItem(current, None, closes=True)
                current = None
            if block.id not in context.done:
                current = block
                yield SourceItem(block, _task_of(found, context), consumed=found.consumed)
        if current is not None:
            yield SourceItem(current, None, closes=True)

    def _read_pack(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Read small files, and parse them here, so that many of them form one batch."""
        from thresher.core.source import SourceItem

        batches: list[DocumentBatch] = []
        gathered = 0
        for found in cut_unit(unit, context, storage_options=self.storage_options):
            batch = self.parse(_task_of(found, context))
            if batches and gathered + batch.nbytes > context.chunk_bytes:
                yield SourceItem(unit, concat_batches(batches))
                batches, gathered = [], 0
            batches.append(batch)
            gathered += batch.nbytes
        if batches:
            yield SourceItem(unit, concat_batches(batches))

    def parse(self, task: Task) -> DocumentBatch:
        """Return the records of a chunk; lines that are not JSON objects in valid UTF-8 are set aside."""
        if isinstance(task, DocumentBatch):
            return task
        from thresher.stages.io.jsonl.json_lines import parse_chunk

        assert isinstance(task, RawChunk)
        return parse_chunk(task, self.fields, self)


def _task_of(found: PieceCut, context: ReadContext) -> Task:
    """Return a chunk to parse, or a batch with a failure."""
    from thresher.stages.io.jsonl.json_lines import failed_batch, failed_lines
    from thresher.stages.io.jsonl.lines import LineChunk, Lines, TooLarge

    source, cut = found.piece.source, found.cut
    if isinstance(cut, Lines):
        return LineChunk(cut.buffer, cut.offset, source)
    if isinstance(cut, TooLarge):
        message = (
            f"the line has {cut.length} bytes, more than the {context.max_record_bytes} that a record may have; "
            "give the run more memory, or leave the record out"
        )
        return failed_batch(failed_lines("record-too-large", source, [(cut.offset, message, cut.head)]))
    return failed_batch(failed_lines(cut.error, source, [(cut.offset, cut.message, cut.head)], counts=[None]))


# -- the lines of a unit, whatever the compression of its files --------------------------------------------------------

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
    from thresher.stages.io.jsonl.lines import CutRules

    rules = CutRules(
        chunk_bytes=context.chunk_bytes,
        max_record_bytes=context.max_record_bytes,
        before_large=context.before_large,
    )
    if every is not None:
        rules = replace(rules, every=every)
    found = (found for piece in unit.pieces for found in _cut_piece(piece, rules, storage_options))
    return found if unit.limit is None else _first_records(found, unit.limit)


def _records_in(cut: Cut) -> int:
    from thresher.stages.io.jsonl.lines import Lines, record_spans

    return len(record_spans(cut.buffer)[0]) if isinstance(cut, Lines) else 1


def _first_records(found: Iterator[PieceCut], limit: int) -> Iterator[PieceCut]:
    from thresher.stages.io.jsonl.lines import Lines, record_spans

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
    from thresher.stages.io.jsonl.lines import HEAD_BYTES, Damage, LineCutter

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
        if content in _UNREADABLE:
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


# -- listing ---------------------------------------------------------------------------------------------------------

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
    return units_of(jsonl_stretches(enumerate(files), splitting), splitting)


def jsonl_stretches(numbered: Iterator[tuple[int, FileInfo]], splitting: Splitting) -> Iterator[Stretch]:
    """Yield the parts of files, each file with its index in the input."""
    for file in _sniff(numbered, splitting.storage_options):
        if splitting.packs(file.weight):
            yield Stretch(file.number, 0, whole_file(file.info), file.info.size, file.weight, packable=True)
        else:
            yield from _split(file, splitting.blocksize)


def _sniff(files: Iterator[tuple[int, FileInfo]], storage_options: StorageOptions) -> Iterator[_File]:
    """Yield each file with its content type; empty files are skipped, as they hold no records."""
    numbered = ((number, info) for number, info in files if info.size > 0)
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
