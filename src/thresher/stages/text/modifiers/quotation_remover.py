# SPDX-License-Identifier: Apache-2.0
"""Removal of quotation marks around a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts

_MARK = '"'


class QuotationRemover(DocumentModifier):
    """Remove the quotation marks of a text that starts and ends with one.

    A text of several lines keeps them if its first line ends with a mark: then only that line is the quotation.
    """

    def modify_document(self, text: str) -> str:
        """Return the text between the marks."""
        whole = text.strip()
        if len(whole) <= 2 or text[0] != _MARK or text[-1] != _MARK:
            return text
        if "\n" in whole and text.partition("\n")[0].endswith(_MARK):
            return text
        return text[1:-1]

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts with a mark at both ends."""
        import numpy as np

        quoted = np.zeros(len(texts.starts), dtype=np.bool_)
        rows = np.flatnonzero(texts.ends - texts.starts > 2)
        mark = ord(_MARK)
        quoted[rows] = (texts.data[texts.starts[rows]] == mark) & (texts.data[texts.ends[rows] - 1] == mark)
        return quoted
