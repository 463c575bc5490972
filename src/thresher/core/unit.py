# SPDX-License-Identifier: Apache-2.0
"""Units: the pieces of input that are committed, retried and resumed, and the record ids that derive from them.

Ids depend only on the path below the reader's root and on positions, never on worker counts, batch borders, the
executor or the location of the folder.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
STEM_LENGTH = 60
STREAM = "-stream"
"""Replaces the number in the id of a stream."""


def file12(relative_path: str) -> str:
    """Return the name of a file inside ids: 12 hex digits of the SHA-256 of its path below the reader's root."""
    return hashlib.sha256(relative_path.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def unit_id(relative_path: str, block: int) -> str:
    """Return the id of the `block`-th unit of a file."""
    return f"{file12(relative_path)}-{block:06d}"


def stream_id(unit_id: str) -> str:
    """Return the id of a stream, given the id of any unit cut from it."""
    return unit_id.rsplit("-", 1)[0] + STREAM


def file_stem(relative_path: str) -> str:
    """Return the file name without its extensions, with unsafe characters replaced."""
    name = relative_path.rsplit("/", 1)[-1]
    stem = name[:1] + name[1:].split(".", 1)[0]
    return _UNSAFE.sub("_", stem)[:STEM_LENGTH] or "_"


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """A range of one input file."""

    path: str
    """Local path or URL."""
    relative: str
    """Path below the reader's root, with forward slashes."""
    size: int
    """Size of the whole file in bytes, for change detection."""
    version: str = ""
    """Modification time or ETag, for change detection."""
    start: int = 0
    """First byte (JSON lines), first row group (Parquet), or first byte of the first frame (zstd)."""
    end: int = -1
    """End of the range (exclusive); -1 means the end of the file."""
    row: int = 0
    """Index of the first row (Parquet), or offset of the first byte in the unpacked file (zstd frames)."""

    @property
    def source(self) -> tuple[str, str]:
        """Return the start of the ids of records that are known by their byte in the file, and the path."""
        return f"{file12(self.relative)}:", self.path

    @property
    def row_source(self) -> tuple[str, str]:
        """Return the start of the ids of records that are known by their number in the file, and the path."""
        return f"{file12(self.relative)}:r", self.path


class Unit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of the input that is committed, retried and resumed as a whole."""

    id: str
    """`file12-NNNNNN` of its first piece."""
    order: tuple[int, int]
    """Position in the input: index of the file, index of the block in it."""
    pieces: tuple[Piece, ...]
    """Ranges to read, in order. A pack of small files has more than one."""
    stem: str
    """Start of the name of the output file."""
    nbytes: int = 0
    """Bytes to read, for reports, and for progress unless there is a weight."""
    stream: bool = False
    """True for a file that cannot be split: its units are cut while it is read."""
    limit: int | None = None
    """Maximum number of records to read."""
    weight: int = 0
    """Work that the unit stands for, in a measure of the reader (media bytes, seconds of sound); 0 for its bytes."""
    phase: int = 0
    """Index of the phase that it belongs to."""

    @property
    def work(self) -> int:
        """Return what the unit counts for in progress: its weight, or its bytes."""
        return self.weight or self.nbytes

    def block(self, number: int) -> Unit:
        """Return the `number`-th unit that is cut from this stream."""
        return msgspec.structs.replace(
            self,
            id=f"{self.id.rsplit('-', 1)[0]}-{number:06d}",
            order=(self.order[0], number),
            stream=False,
            limit=None,
            nbytes=0,
            weight=0,
        )
