# SPDX-License-Identifier: Apache-2.0
"""Units: the pieces of input that are committed, retried and resumed, and the ids that records get from them.

Ids depend on the path below the reader's root and on positions alone: never on worker counts, batch cuts, the
executor, or the place where the folder lies.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
STEM_LENGTH = 60


def file12(relative_path: str) -> str:
    """The name of a file inside ids: 12 hex digits of SHA-256 of its path below the reader's root."""
    return hashlib.sha256(relative_path.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def unit_id(relative_path: str, block: int) -> str:
    """The id of the `block`-th unit of a file."""
    return f"{file12(relative_path)}-{block:06d}"


def file_stem(relative_path: str) -> str:
    """The source's name without its extensions, made safe for any file system."""
    name = relative_path.rsplit("/", 1)[-1]
    stem = name[:1] + name[1:].split(".", 1)[0]
    return _UNSAFE.sub("_", stem)[:STEM_LENGTH] or "_"


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of one input file."""

    path: str
    """Where to open it: a local path or a URL."""
    relative: str
    """The path below the reader's root, with forward slashes."""
    size: int
    """Bytes of the whole file on disk, to notice changes."""
    version: str = ""
    """Modification time or ETag, to notice changes."""
    start: int = 0
    """First byte (JSON lines), first row group (Parquet), or first byte of the first frame (zstd)."""
    end: int = -1
    """One past the last; -1 is the end of the file."""
    row: int = 0
    """Number of the first row (Parquet), or offset in the unpacked file of the first byte (zstd frames)."""


class Unit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is committed, retried and resumed."""

    id: str
    """`file12-NNNNNN` of its first piece."""
    order: tuple[int, int]
    """Place in the input: number of the file, number of the block in it."""
    pieces: tuple[Piece, ...]
    """What to read, in order. More than one: a pack of small files."""
    stem: str
    """The start of the name of its output file."""
    nbytes: int = 0
    """Bytes to read, for progress."""
    stream: bool = False
    """A file that cannot be split: the units of this stream are cut as they are reached."""
    limit: int | None = None
    """Read at most so many records."""

    def block(self, number: int) -> Unit:
        """The `number`-th unit that is cut from this stream."""
        return msgspec.structs.replace(
            self,
            id=f"{self.id.rsplit('-', 1)[0]}-{number:06d}",
            order=(self.order[0], number),
            stream=False,
            limit=None,
            nbytes=0,
        )
