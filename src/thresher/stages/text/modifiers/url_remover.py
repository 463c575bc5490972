# SPDX-License-Identifier: Apache-2.0
"""Web addresses."""

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

# `https?://\S+|www\.\S+` in any case, written so that the search for its first letter is fast.
_ADDRESS = re.compile(r"[hHwW](?:(?<=[hH])[tT][tT][pP][sSſ]?://|(?<=[wW])[wW][wW]\.)\S+")


class UrlRemover(DocumentModifier):
    """Take out web addresses: `http://`, `https://` or `www.`, in any case, and all up to the next white space."""

    def modify_document(self, text: str) -> str:
        """The text without addresses; the white space around them stays."""
        return _ADDRESS.sub("", text)

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Texts in which an address could begin."""
        return holding(texts, b"://", b"ww.", b"WW.", b"wW.", b"Ww.")

    def edits(self, texts: Texts) -> Edits:
        """Addresses go."""
        from thresher.kernels.edits import find_edits
        from thresher.kernels.url_spans import find

        return find_edits(find, texts, (b"",))

    def preloads(self) -> list[str]:
        """The compiled search."""
        return ["thresher.kernels.url_spans"]
