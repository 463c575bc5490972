# SPDX-License-Identifier: Apache-2.0
"""Unicode normalization."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Literal

from thresher.errors import UsageError
from thresher.stages.text.columns.byte_tests import not_ascii
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts

NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
FORMS: tuple[NormalForm, ...] = ("NFC", "NFD", "NFKC", "NFKD")


class UnicodeNormalizer(DocumentModifier):
    """Convert each text to a Unicode normalization form."""

    def __init__(self, form: NormalForm = "NFC") -> None:
        """`form`: `NFC` composes letters and marks, `NFD` decomposes them; `NFKC` and `NFKD` also replace compatibility
        characters (`ﬁ`, `²`, full-width letters) with plain ones."""
        if form not in FORMS:
            raise UsageError(f"UnicodeNormalizer.form: {form!r} is not a normal form; there is {', '.join(FORMS)}")
        self.form = form

    def modify_document(self, text: str) -> str:
        """Return the text in its normal form."""
        return unicodedata.normalize(self.form, text)

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts with non-ASCII characters; ASCII is in every normal form."""
        return not_ascii(texts)
