# SPDX-License-Identifier: Apache-2.0
"""Text of documents, file names and run folders as it may be shown: it is untrusted, and a terminal obeys what it is
sent."""

from __future__ import annotations

import re

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""What moves the cursor, changes the direction of writing, or cannot be seen."""


def shown(text: object, width: int = 0) -> str:
    """`text` in one line, with everything unseen spelled out; in at most `width` characters, if that is not 0."""
    plain = str(text)
    if width:
        plain = plain[: width + 1]
    safe = _UNSEEN.sub(_spelled, plain)
    return f"{safe[: width - 1]}…" if width and len(safe) > width else safe


def shown_lines(text: object) -> list[str]:
    """The lines of `text`, each safe to show."""
    return [shown(line) for line in str(text).splitlines()]


def _spelled(found: re.Match[str]) -> str:
    character = found[0]
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
