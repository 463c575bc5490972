# SPDX-License-Identifier: Apache-2.0
"""The format of an indexed data set: a .bin file of token ids, and an .idx file that says where each document is.

All numbers are little-endian. The .bin file holds the ids of all documents, one after the other, and nothing else. The
.idx file holds, in this order:

- the bytes `MMIDIDX` and two zeros;
- the version, 1, in 8 bytes;
- the type of ids in one byte: 8 for 2 bytes without sign, 4 for 4 bytes with sign;
- the number of sequences in 8 bytes, and the number of borders of documents, one more than there are documents, in 8;
- the length of each sequence in tokens, 4 bytes each;
- where each sequence begins in the .bin file, 8 bytes each;
- the borders of documents as numbers of sequences, from 0 to the number of sequences, 8 bytes each.

What is written here has one sequence for each document.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from thresher.core.source import FileFacts
from thresher.errors import InputError
from thresher.models.token_lists import TokenLists
from thresher.stages.io.file_writer import LocalFile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.documents.batch import DocumentBatch

BIN, IDX = ".bin", ".idx"
SUFFIXES = (BIN, IDX)
_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
HEADER_BYTES = _HEADER.size
TYPES = {"uint16": 8, "int32": 4}
"""Types of ids that are written, and their codes."""
WIDTHS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}
"""Bytes of an id by the code of its type, of all types that the format knows."""
_ROWS = 2**16
"""Entries of an index that are made at a time."""


class Header(NamedTuple):
    """The beginning of an .idx file."""

    code: int
    """Code of the type of ids."""
    sequences: int
    """Number of sequences."""
    borders: int
    """Number of borders of documents: one more than there are documents."""

    @property
    def width(self) -> int:
        """Return the bytes of an id."""
        return WIDTHS[self.code]

    @property
    def documents(self) -> int:
        """Return the number of documents."""
        return self.borders - 1

    @property
    def kind(self) -> str:
        """Return the name of the type of ids, or its code if nothing here writes it."""
        return next((name for name, code in TYPES.items() if code == self.code), f"type {self.code}")

    @property
    def nbytes(self) -> int:
        """Return the size of the whole .idx file."""
        return HEADER_BYTES + 12 * self.sequences + 8 * self.borders

    def encode(self) -> bytes:
        """Return the bytes at the beginning of the file."""
        return _HEADER.pack(_MAGIC, 1, self.code, self.sequences, self.borders)


def decode_header(data: bytes, path: str) -> Header:
    """Return the header that a file begins with; raise if it is none."""
    if len(data) < HEADER_BYTES or not data.startswith(_MAGIC):
        raise InputError(f"{path} is not an index of token ids: it does not begin as one; give the prefix of a pair")
    _, version, code, sequences, borders = _HEADER.unpack(data[:HEADER_BYTES])
    if version != 1 or code not in WIDTHS or not borders:
        raise InputError(
            f"{path}: version {version}, type {code} and {borders:,} borders of documents; version 1, a type from 1 to "
            "8 and at least one border are supported. The file is damaged, or of another program"
        )
    return Header(code, sequences, borders)


class TokenFiles:
    """Writes the token ids of the documents of one unit to a pair of files."""

    def __init__(self, path: str, tokens_field: str) -> None:
        self._path = path
        self._field = tokens_field
        self._bin = LocalFile(path + BIN)
        self._idx: LocalFile | None = None
        self._kind = ""
        self._lengths: list[npt.NDArray[np.int32]] = []

    def write(self, batch: DocumentBatch) -> None:
        """Add the documents of a batch."""
        import numpy as np

        lists = TokenLists.of_column(batch.column(self._field))
        kind = str(lists.ids.dtype)
        assert kind in TYPES, "the stage before has made the column"
        assert self._kind in ("", kind), "all ids of a run have one type"
        self._kind = kind
        ids = np.ascontiguousarray(lists.ids, dtype=lists.ids.dtype.newbyteorder("<"))
        self._bin.append(ids.view(np.uint8).data)
        self._lengths.append(lists.lengths.astype(np.int32))

    def close(self) -> list[FileFacts]:
        """Write the index, and finish both files."""
        import numpy as np

        lengths = np.concatenate(self._lengths) if self._lengths else np.zeros(0, dtype=np.int32)
        count = len(lengths)
        tokens = self._bin.close(count)
        if not count:
            return []
        self._idx = LocalFile(self._path + IDX)
        header = Header(TYPES[self._kind], count, count + 1)
        for piece in index_pieces(header, lengths):
            self._idx.append(piece)
        index = self._idx.close(count)
        return [
            FileFacts(tokens.nbytes, count, tokens.sha256, suffix=BIN),
            FileFacts(index.nbytes, 0, index.sha256, suffix=IDX),
        ]

    def abort(self) -> None:
        """Remove both files."""
        self._bin.abort()
        if self._idx is not None:
            self._idx.abort()


def index_pieces(header: Header, lengths: npt.NDArray[np.int32]) -> Iterator[bytes]:
    """Yield the bytes of an .idx file with one sequence for each document."""
    import numpy as np

    yield header.encode()
    yield lengths.astype("<i4").tobytes()
    begin = 0
    for start in range(0, len(lengths), _ROWS):
        sizes = lengths[start : start + _ROWS].astype(np.int64) * header.width
        ends = begin + np.cumsum(sizes)
        yield (ends - sizes).astype("<i8").tobytes()
        begin = int(ends[-1])
    for start in range(0, header.borders, _ROWS):
        yield np.arange(start, min(start + _ROWS, header.borders), dtype="<i8").tobytes()
