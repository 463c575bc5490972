# SPDX-License-Identifier: Apache-2.0
"""Normalization of runs of line ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from thresher.stages.text.columns.byte_tests import holding
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts
    from thresher.kernels.edits.rewrite import Edits

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
