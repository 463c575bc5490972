# SPDX-License-Identifier: Apache-2.0
"""Extraction of a part of a text."""

from __future__ import annotations

from typing import Any

from thresher.errors import UsageError
from thresher.stages.text.document_modifier import DocumentModifier


class Slicer(DocumentModifier):
    """Keep the part of each text between two positions, each given as a number of characters or as a text to find."""

    def __init__(
        self,
        left: int | str | None = 0,
        right: int | str | None = None,
        include_left: bool = True,
        include_right: bool = True,
        strip: bool = True,
    ) -> None:
        """`left`: a number as in `text[left:]`, or a text whose first occurrence is the start; `None` is the beginning.

        `right`: a number as in `text[:right]`, or a text whose last occurrence is the end; `None` is the end. A text in
        which one of them is missing becomes empty. `include_left`, `include_right`: keep the texts that were searched
        for. `strip`: remove white space at both ends.
        """
        self.left, self.right = _checked("left", left), _checked("right", right)
        self.include_left, self.include_right, self.strip = include_left, include_right, strip

    def modify_document(self, text: str) -> str:
        """Return the selected part of the text."""
        left, right = self.left, self.right
        start = left if isinstance(left, int) else 0
        if isinstance(left, str):
            start = text.find(left)
            if start < 0:
                return ""
            start += 0 if self.include_left else len(left)
        end = right if isinstance(right, int) else len(text)
        if isinstance(right, str):
            end = text.rfind(right)
            if end < 0:
                return ""
            end += len(right) if self.include_right else 0
        kept = text[start:end]
        return kept.strip() if self.strip else kept


def _checked(name: str, given: Any) -> int | str | None:
    if given is None or (isinstance(given, int | str) and not isinstance(given, bool)):
        return given
    raise UsageError(f"Slicer.{name}: {given!r} is neither a number of characters, nor a text to look for, nor None")
