# SPDX-License-Identifier: Apache-2.0
"""What is inside a file, told by its first bytes: a name may lie, the content does not."""

from __future__ import annotations

import enum
import re

SNIFF_BYTES = 1024
"""How much of a file `content_of` wants to see."""

BOM = b"\xef\xbb\xbf"


class Content(enum.Enum):
    """What a file of JSON lines holds."""

    PLAIN = "text"
    GZIP = "gzip"
    ZSTD = "zstd"
    BZIP2 = "bzip2"
    XZ = "xz"
    UTF16 = "UTF-16 text"
    PARQUET = "Parquet"
    BINARY = "binary data"

    @property
    def packed(self) -> bool:
        """Whether it must be unpacked."""
        return self in _PACKED

    @property
    def unreadable(self) -> bool:
        """Whether there is no way to find lines in it."""
        return self in _UNREADABLE


_PACKED = frozenset({Content.GZIP, Content.ZSTD, Content.BZIP2, Content.XZ})
_UNREADABLE = frozenset({Content.UTF16, Content.PARQUET, Content.BINARY})

_MAGIC: tuple[tuple[re.Pattern[bytes], Content], ...] = (
    (re.compile(rb"\x1f\x8b"), Content.GZIP),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL), Content.ZSTD),
    (re.compile(rb"BZh[1-9](?:\x31\x41\x59\x26\x53\x59|\x17\x72\x45\x38\x50\x90)"), Content.BZIP2),
    (re.compile(rb"\xfd7zXZ\x00"), Content.XZ),
    (re.compile(rb"\xff\xfe|\xfe\xff"), Content.UTF16),
    (re.compile(rb"PAR1"), Content.PARQUET),
)
_PACKED_NAME = re.compile(r"\.(gz|gzip|zst|bz2|xz)$", re.IGNORECASE)


def content_of(head: bytes, name: str) -> Content:
    """What a file holds that begins with `head` (`SNIFF_BYTES` of it, or all).

    The name matters in one case: bytes that are neither text nor any known format under the name of a packed file are a
    damaged file, not a text with bad lines.
    """
    for magic, content in _MAGIC:
        if magic.match(head):
            return content
    if _PACKED_NAME.search(name) and not _looks_like_text(head):
        return Content.BINARY
    return Content.PLAIN


def _looks_like_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The last character may be cut by the end of `head`.
        return error.start >= len(head) - 3 and b"\0" not in head
    return b"\0" not in head
