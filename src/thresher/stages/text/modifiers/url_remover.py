# SPDX-License-Identifier: Apache-2.0
"""Removal of URLs."""

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

# `https?://\S+|www\.\S+` in any case, written so that the search for its first letter is fast.
_ADDRESS = re.compile(r"[hHwW](?:(?<=[hH])[tT][tT][pP][sSſ]?://|(?<=[wW])[wW][wW]\.)\S+")


class UrlRemover(DocumentModifier):
    """Remove URLs: `http://`, `https://` or `www.`, in any case, up to the next white space."""

    def modify_document(self, text: str) -> str:
        """Return the text without URLs; the white space around them stays."""
        return _ADDRESS.sub("", text)

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts in which a URL may start."""
        return holding(texts, b"://", b"ww.", b"WW.", b"wW.", b"Ww.")

    def edits(self, texts: Texts) -> Edits:
        """Return the URLs, to be removed."""
        from thresher.kernels.edits.rewrite import find_edits
        from thresher.kernels.edits.url_spans import find

        return find_edits(find, texts, (b"",))

    def preloads(self) -> list[str]:
        """Return the compiled search."""
        return ["thresher.kernels.edits.url_spans"]
