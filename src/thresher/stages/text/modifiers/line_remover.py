# SPDX-License-Identifier: Apache-2.0
"""Removal of lines with a known content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError
from thresher.stages.text.columns.byte_tests import holding, utf8
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts


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
