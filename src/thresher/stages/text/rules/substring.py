# SPDX-License-Identifier: Apache-2.0
"""Whether a document has a text in it."""

from __future__ import annotations

from collections.abc import Callable

from thresher.errors import UsageError
from thresher.stages.text.document_filter import DocumentFilter

_POSITIONS: dict[str, Callable[[str, str], bool]] = {
    "prefix": str.startswith,
    "suffix": str.endswith,
    "any": str.__contains__,
}


class SubstringFilter(DocumentFilter):
    """Keep documents that begin with a text, end with it, or have it anywhere.

    The score is 1 if it is there, else 0. An empty substring is in every text.
    """

    def __init__(self, substring: str, position: str) -> None:
        """`position` is `prefix`, `suffix` or `any`."""
        if not isinstance(substring, str):
            raise UsageError(f"SubstringFilter.substring: {substring!r} is not a text")
        if position not in _POSITIONS:
            raise UsageError(f"SubstringFilter.position: {position!r} is none of {', '.join(_POSITIONS)}")
        self.substring = substring
        self.position = position

    def score_document(self, text: str) -> int:
        """1 if the text is there."""
        return int(_POSITIONS[self.position](text, self.substring))

    def keep_document(self, score: int) -> bool:
        """Whether it was there."""
        return score == 1
