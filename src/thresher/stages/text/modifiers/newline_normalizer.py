# SPDX-License-Identifier: Apache-2.0
"""Runs of line ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from thresher.stages.text.byte_tests import holding
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts import Texts
    from thresher.kernels.edits import Edits

_LINE_FEEDS = re.compile(r"\n{3,}")
_CRLF = re.compile(r"(?:\r\n){3,}")


class NewlineNormalizer(DocumentModifier):
    """Make two line ends of three or more in a row, of line feeds as of carriage returns with line feeds."""

    def modify_document(self, text: str) -> str:
        """The text with at most one blank line in a row."""
        if "\n\n\n" in text:
            text = _LINE_FEEDS.sub("\n\n", text)
        if "\r\n\r\n\r\n" in text:
            text = _CRLF.sub("\r\n\r\n", text)
        return text

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Texts with three line ends in a row."""
        return holding(texts, b"\n\n\n", b"\r\n\r\n\r\n")

    def edits(self, texts: Texts) -> Edits:
        """All line ends of a run but the first two go."""
        from thresher.kernels.edits import find_edits
        from thresher.kernels.line_end_runs import find

        return find_edits(find, texts, (b"",))

    def preloads(self) -> list[str]:
        """The compiled search."""
        return ["thresher.kernels.line_end_runs"]
