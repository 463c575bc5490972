# SPDX-License-Identifier: Apache-2.0
"""The pages of one column in one row group, and a file built from some of them.

Arrow reads a column from its first page to its last and stops at the first damaged one. Here pages are found by their
headers (or the offset index of the file), and the readable ones are passed to Arrow as a file of their own.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from thresher.stages.io.parquet.thrift_compact import I64, LIST, Decoder, Struct, encode_struct

_MAGIC = b"PAR1"
_HEADER_BYTES = 2**13
_MOST_HEADER_BYTES = 2**24
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3

# Field numbers of the structs in parquet.thrift.
_FILE_ROWS, _FILE_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_ROWS = 1, 3
_CHUNK_META, _CHUNK_INDEX_OFFSET, _CHUNK_INDEX_LENGTH = 3, 4, 5
_META_PATH, _META_VALUES, _META_BYTES, _META_DATA, _META_DICTIONARY = 3, 5, 7, 9, 11


@dataclass(frozen=True)
class Page:
    """One page of data."""

    start: int
    """Position of its header in the file."""
    nbytes: int
    """Length of header and content."""
    first_row: int
    """Number of its first row in the row group."""
    rows: int
    """Number of rows."""
    values: int
    """Number of values; more than rows if rows hold lists."""


@dataclass(frozen=True)
class ColumnPages:
    """The pages of a column chunk, as far as they can be found."""

    footer: Struct
    """The footer of the file."""
    group: int
    """Number of the row group."""
    column: int
    """Number of the leaf column."""
    dictionary: tuple[int, int] | None
    """Start and length of the dictionary page; `None` if there is none."""
    pages: tuple[Page, ...]
    """The pages of data."""


def read_footer(source: BinaryIO, size: int) -> Struct:
    """Read the footer of a file; raise a `ValueError` if it is invalid."""
    source.seek(size - 8)
    tail = source.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or not 0 < length <= size - 12:
        raise ValueError("there is no plain footer")
    source.seek(size - 8 - length)
    return Decoder(source.read(length)).struct()


def find_pages(source: BinaryIO, footer: Struct, group: int, name: str) -> ColumnPages | None:
    """Find the pages of a column; `None` if it has several leaf columns, or its pages cannot be located.

    Headers count values: if rows hold lists, only an offset index maps pages to rows.
    """
    try:
        chunks = footer[_FILE_GROUPS][1][1][group][_GROUP_COLUMNS][1][1]
        paths = [chunk[_CHUNK_META][1][_META_PATH][1][1] for chunk in chunks]
        (column,) = [number for number, path in enumerate(paths) if path[0] == name.encode()]
        chunk = chunks[column]
        rows = footer[_FILE_GROUPS][1][1][group][_GROUP_ROWS][1]
        meta = chunk[_CHUNK_META][1]
        start = meta[_META_DATA][1]
        if 0 < meta.get(_META_DICTIONARY, (0, 0))[1] < start:
            start = meta[_META_DICTIONARY][1]
        end = start + meta[_META_BYTES][1]
        if start < len(_MAGIC):
            return None
        index = _offset_index(source, chunk)
        if index is None and len(paths[column]) > 1:
            return None
    except (KeyError, IndexError, ValueError, TypeError):
        return None
    dictionary, pages = _walk(source, start, end, rows) if index is None else _indexed(source, index, start, rows)
    return ColumnPages(footer, group, column, dictionary, tuple(pages))


def _offset_index(source: BinaryIO, chunk: Struct) -> list[tuple[int, int, int]] | None:
    """Return start, length and first row of each page, if the file has a valid offset index."""
    if chunk.get(_CHUNK_INDEX_OFFSET, (0, 0))[1] < len(_MAGIC):
        return None
    source.seek(chunk[_CHUNK_INDEX_OFFSET][1])
    try:
        locations = Decoder(source.read(chunk[_CHUNK_INDEX_LENGTH][1])).struct()[1][1][1]
        found = [(location[1][1], location[2][1], location[3][1]) for location in locations]
    except (KeyError, IndexError, ValueError, TypeError):
        return None
    if not all(isinstance(number, int) and number >= 0 for location in found for number in location):
        return None
    in_order = all(one[0] + one[1] <= two[0] and one[2] <= two[2] for one, two in itertools.pairwise(found))
    return found if found and in_order and found[0][2] == 0 else None


def _indexed(
    source: BinaryIO, index: Sequence[tuple[int, int, int]], start: int, rows: int
) -> tuple[tuple[int, int] | None, list[Page]]:
    dictionary = (start, index[0][0] - start) if index[0][0] > start else None
    pages = []
    ends = [*(first for _, _, first in index[1:]), rows]
    for (location, nbytes, first), end in zip(index, ends, strict=True):
        header, length = _page_header(source, location, location + nbytes)
        values = _value_count(header)
        if values is not None and length + _number(header, 3) == nbytes:
            pages.append(Page(location, nbytes, first, end - first, values))
    return dictionary, pages


def _walk(source: BinaryIO, start: int, end: int, rows: int) -> tuple[tuple[int, int] | None, list[Page]]:
    """Follow the page headers, up to the first invalid one. Wrong row numbers would mix up records, so no page is
    returned if all headers are valid but do not add up to the row group."""
    dictionary: tuple[int, int] | None = None
    pages: list[Page] = []
    row = 0
    while start < end:
        header, length = _page_header(source, start, end)
        content = _number(header, 3)
        values = _value_count(header)
        nbytes = length + content
        if content < 0 or start + nbytes > end:
            return dictionary, pages
        if _number(header, 1) == _DICTIONARY_PAGE:
            dictionary = (start, nbytes)
        elif values is not None:
            if row + values > rows:
                return dictionary, []
            pages.append(Page(start, nbytes, row, values, values))
            row += values
        start += nbytes
    return dictionary, pages if row == rows else []


def _page_header(source: BinaryIO, start: int, end: int) -> tuple[Struct, int]:
    """Return the header of a page and its length; an empty one if it is invalid."""
    window = _HEADER_BYTES
    while True:
        source.seek(start)
        decoder = Decoder(source.read(min(window, end - start)))
        try:
            return decoder.struct(), decoder.position
        except ValueError:
            if window >= min(end - start, _MOST_HEADER_BYTES):
                return {}, 0
            window *= 16


def _value_count(header: Struct) -> int | None:
    """Return the number of values of a data page; `None` for another page."""
    number = {_DATA_PAGE: 5, _DATA_PAGE_V2: 8}.get(_number(header, 1))
    inner = header.get(number, (0, None))[1] if number is not None else None
    found = _number(inner, 1) if isinstance(inner, dict) else -1
    return found if found >= 0 else None


def _number(header: Struct, field: int) -> int:
    """Return a whole number of a struct; -1 if it is missing."""
    found = header.get(field, (0, -1))[1]
    return found if isinstance(found, int) else -1


def file_of_pages(source: BinaryIO, found: ColumnPages, pages: Sequence[Page], *, dictionary: bool) -> BinaryIO:
    """Return a Parquet file with one row group in which the column consists of `pages` alone.

    The other columns are declared but have no data: only this one can be read.
    """
    parts: list[tuple[int, int]] = [found.dictionary] if dictionary and found.dictionary is not None else []
    first_data = len(_MAGIC) + sum(nbytes for _, nbytes in parts)
    parts += [(page.start, page.nbytes) for page in pages]
    rows, values = sum(page.rows for page in pages), sum(page.values for page in pages)
    kind, groups = found.footer[_FILE_GROUPS][1]
    group: Struct = dict(groups[found.group])
    chunk_kind, chunks = group[_GROUP_COLUMNS][1]
    chunk: Struct = {
        number: field for number, field in chunks[found.column].items() if number not in range(_CHUNK_INDEX_OFFSET, 8)
    }
    meta: Struct = dict(chunk[_CHUNK_META][1])
    meta.pop(_META_DICTIONARY, None)
    if first_data > len(_MAGIC):
        meta[_META_DICTIONARY] = (I64, len(_MAGIC))
    meta[_META_DATA] = (I64, first_data)
    meta[_META_BYTES] = (I64, sum(nbytes for _, nbytes in parts))
    meta[_META_VALUES] = (I64, values)
    chunk[_CHUNK_META] = (chunk[_CHUNK_META][0], meta)
    new_chunks = [chunk if number == found.column else one for number, one in enumerate(chunks)]
    group[_GROUP_COLUMNS] = (LIST, (chunk_kind, new_chunks))
    group[_GROUP_ROWS] = (I64, rows)
    footer = encode_struct({**found.footer, _FILE_ROWS: (I64, rows), _FILE_GROUPS: (LIST, (kind, [group]))})
    end = footer + len(footer).to_bytes(4, "little") + _MAGIC
    return io.BufferedReader(_JoinedRanges(source, [_MAGIC, *parts, end]))


class _JoinedRanges(io.RawIOBase):
    """A concatenation of bytes and ranges of another file."""

    def __init__(self, source: BinaryIO, parts: Sequence[bytes | tuple[int, int]]) -> None:
        super().__init__()
        self._source = source
        self._parts = parts
        self._sizes = [len(part) if isinstance(part, bytes) else part[1] for part in parts]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: sum(self._sizes)}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, target: Any) -> int:
        start = self._position
        for part, size in zip(self._parts, self._sizes, strict=True):
            if start < size:
                wanted = min(len(target), size - start)
                if isinstance(part, bytes):
                    data = part[start : start + wanted]
                else:
                    self._source.seek(part[0] + start)
                    data = self._source.read(wanted)
                target[: len(data)] = data
                self._position += len(data)
                return len(data)
            start -= size
        return 0
