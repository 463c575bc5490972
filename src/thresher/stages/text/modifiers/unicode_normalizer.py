# SPDX-License-Identifier: Apache-2.0
"""Normal forms of Unicode."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Literal

from thresher.errors import UsageError
from thresher.stages.text.byte_tests import not_ascii
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts import Texts

NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
FORMS: tuple[NormalForm, ...] = ("NFC", "NFD", "NFKC", "NFKD")


class UnicodeNormalizer(DocumentModifier):
    """Bring a text into a normal form of Unicode, so that what looks alike is written alike."""

    def __init__(self, form: NormalForm = "NFC") -> None:
        """`form`: `NFC` puts letters and marks together, `NFD` takes them apart; `NFKC` and `NFKD` also replace
        characters by plain ones that mean nearly the same (`ﬁ`, `²`, full-width letters)."""
        if form not in FORMS:
            raise UsageError(f"UnicodeNormalizer.form: {form!r} is no normal form; there is {', '.join(FORMS)}")
        self.form = form

    def modify_document(self, text: str) -> str:
        """The text in its normal form."""
        return unicodedata.normalize(self.form, text)

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """ASCII is in every normal form."""
        return not_ascii(texts)
