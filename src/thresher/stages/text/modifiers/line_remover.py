# SPDX-License-Identifier: Apache-2.0
"""Removal of known lines, and of surplus line ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError
from thresher.stages.text.columns.byte_tests import holding, utf8
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts
    from thresher.kernels.edits.rewrite import Edits


class LineRemover(DocumentModifier):
    """Remove lines that are equal to one of the patterns."""

    def __init__(self, patterns: list[str]) -> None:
        """`patterns`: whole lines, without their line feed."""
        self.patterns = _checked(patterns)
        self._lines = frozenset(self.patterns)

    def modify_document(self, text: str) -> str:
        """Return the text without those lines."""
        unwanted = self._lines
        lines = text.split("\n")
        kept = [line for line in lines if line not in unwanted]
        return "\n".join(kept) if len(kept) < len(lines) else text

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts that contain one of the patterns anywhere."""
        return holding(texts, *map(utf8, self.patterns))


def _checked(patterns: Any) -> list[str]:
    if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
        raise UsageError(f"LineRemover.patterns: {patterns!r} is not a list of lines; give one such as ['Read more']")
    lines = list(dict.fromkeys(patterns))
    long = [pattern for pattern in lines if "\n" in pattern]
    if long:
        raise UsageError(
            f"LineRemover.patterns: {long[0]!r} contains a line feed, so no line can equal it; leave it out"
        )
    return lines


_LINE_FEEDS = re.compile(r"\n{3,}")
_CRLF = re.compile(r"(?:\r\n){3,}")


class NewlineNormalizer(DocumentModifier):
    """Replace three or more line ends in a row with two."""

    def modify_document(self, text: str) -> str:
        """Return the text with at most one blank line in a row."""
        if "\n\n\n" in text:
            text = _LINE_FEEDS.sub("\n\n", text)
        if "\r\n\r\n\r\n" in text:
            text = _CRLF.sub("\r\n\r\n", text)
        return text

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts with three line ends in a row."""
        return holding(texts, b"\n\n\n", b"\r\n\r\n\r\n")

    def edits(self, texts: Texts) -> Edits:
        """Remove all line ends of a run after the first two."""
        from thresher.kernels.edits.line_end_runs import find
        from thresher.kernels.edits.rewrite import find_edits

        return find_edits(find, texts, (b"",))

    def preloads(self) -> list[str]:
        """Return the compiled search."""
        return ["thresher.kernels.edits.line_end_runs"]
