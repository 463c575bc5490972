# SPDX-License-Identifier: Apache-2.0
"""Detection of the content of a file by its first bytes, because its name may be wrong."""

from __future__ import annotations

import enum
import re

SNIFF_BYTES = 1024
"""Number of bytes that `content_of` needs."""

BOM = b"\xef\xbb\xbf"


class Content(enum.Enum):
    """The content of a JSON lines file."""

    PLAIN = "text"
    GZIP = "gzip"
    ZSTD = "zstd"
    BZIP2 = "bzip2"
    XZ = "xz"
    UTF16 = "UTF-16 text"
    PARQUET = "Parquet"
    BINARY = "binary data"

    @property
    def compressed(self) -> bool:
        """Return True if it must be unpacked."""
        return self in _COMPRESSED

    @property
    def unreadable(self) -> bool:
        """Return True if it cannot contain lines."""
        return self in _UNREADABLE


_COMPRESSED = frozenset({Content.GZIP, Content.ZSTD, Content.BZIP2, Content.XZ})
_UNREADABLE = frozenset({Content.UTF16, Content.PARQUET, Content.BINARY})

_MAGIC: tuple[tuple[re.Pattern[bytes], Content], ...] = (
    (re.compile(rb"\x1f\x8b"), Content.GZIP),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL), Content.ZSTD),
    (re.compile(rb"BZh[1-9](?:\x31\x41\x59\x26\x53\x59|\x17\x72\x45\x38\x50\x90)"), Content.BZIP2),
    (re.compile(rb"\xfd7zXZ\x00"), Content.XZ),
    (re.compile(rb"\xff\xfe|\xfe\xff"), Content.UTF16),
    (re.compile(rb"PAR1"), Content.PARQUET),
)
_COMPRESSED_NAME = re.compile(r"\.(gz|gzip|zst|bz2|xz)$", re.IGNORECASE)


def content_of(head: bytes, name: str) -> Content:
    """Return the content of a file that starts with `head` (`SNIFF_BYTES` of it, or all).

    The name matters in one case: bytes that are neither text nor a known format, under the name of a compressed file,
    are a damaged file, not a text with bad lines.
    """
    for magic, content in _MAGIC:
        if magic.match(head):
            return content
    if _COMPRESSED_NAME.search(name) and not _looks_like_text(head):
        return Content.BINARY
    return Content.PLAIN


def _looks_like_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The last character may be cut by the end of `head`.
        return error.start >= len(head) - 3 and b"\0" not in head
    return b"\0" not in head
