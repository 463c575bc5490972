# SPDX-License-Identifier: Apache-2.0
"""Removal of paragraphs about cookies, privacy and terms of use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.kernels.edits.policy_phrases import PLACEHOLDER, POLICY_PHRASES
from thresher.stages.text.columns.byte_tests import for_each, utf8
from thresher.stages.text.document_modifier import DocumentModifier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts

_KELVIN = "\u212a".encode()
"""The only non-ASCII character that lowercases to an ASCII letter (k), besides one that no phrase can contain."""
_NEEDLES = tuple(utf8(phrase) for phrase in (*POLICY_PHRASES, PLACEHOLDER))


class BoilerPlateStringModifier(DocumentModifier):
    """Remove paragraphs about cookies and privacy at the top or bottom; empty texts that contain `lorem ipsum`.

    Two line feeds separate paragraphs. Paragraphs that contain a policy phrase are removed if they form one block at
    the top or bottom of the text, and not the whole text. A text with `lorem ipsum` becomes empty.
    """

    def __init__(self, remove_if_at_top_or_bottom: bool = True) -> None:
        """`remove_if_at_top_or_bottom`: `False` empties every text that contains such a paragraph anywhere."""
        self.remove_if_at_top_or_bottom = remove_if_at_top_or_bottom

    def modify_document(self, text: str) -> str:
        """Return the text without that block."""
        small = text.lower()
        if PLACEHOLDER not in small and not any(phrase in small for phrase in POLICY_PHRASES):
            return text
        paragraphs = text.split("\n\n")
        found = []
        for number, paragraph in enumerate(paragraphs):
            small = paragraph.lower()
            if PLACEHOLDER in small:
                return ""
            if any(phrase in small for phrase in POLICY_PHRASES):
                if not self.remove_if_at_top_or_bottom:
                    return ""
                found.append(number)
        if not found or not _is_at_one_end(found, len(paragraphs)):
            return text
        return "\n\n".join(paragraphs[found[-1] + 1 :] if found[0] == 0 else paragraphs[: found[0]])

    def may_change(self, texts: Texts) -> npt.NDArray[np.bool_]:
        """Return a mask of the texts that contain one of the phrases in any case."""
        return for_each(texts, _holds_phrase)


def _is_at_one_end(found: list[int], paragraphs: int) -> bool:
    """Return True if the paragraph numbers form one contiguous block at the top or bottom, and not the whole text."""
    is_block = found[-1] - found[0] + 1 == len(found)
    return is_block and len(found) < paragraphs and (found[0] == 0 or found[-1] == paragraphs - 1)


def _holds_phrase(piece: bytes) -> bool:
    small = piece.lower()
    if _KELVIN in small:
        small = small.replace(_KELVIN, b"k")
    return any(needle in small for needle in _NEEDLES)
