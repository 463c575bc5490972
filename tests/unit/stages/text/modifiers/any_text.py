# SPDX-License-Identifier: Apache-2.0
"""Texts of every kind for tests of modifiers, and texts as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from thresher.kernels.counts.text_counts import PADDING, Texts
from thresher.kernels.edits.rewrite import rewritten
from thresher.stages.text.document_modifier import DocumentModifier

SURROGATES = st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF)
any_text = st.text(
    alphabet=st.one_of(st.characters(), SURROGATES, st.sampled_from(' \n\r\t*_[]()"<&;#@.:+-/kKİ\u212a'))
)
"""Any character, half surrogate pairs among them, and often those that modifiers look for."""


def as_bytes(texts: Sequence[str]) -> Texts:
    """Texts in one buffer, as a batch holds them."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    starts = ends - np.array([len(text) for text in encoded], dtype=np.int64)
    return Texts(np.frombuffer(b"".join([*encoded, bytes(PADDING)]), dtype=np.uint8), starts, ends)


def check_edits(modifier: DocumentModifier, texts: Sequence[str]) -> None:
    """What a kernel makes of texts must be what the definition makes of them, but for those that it is in doubt about,
    and those it must leave alone."""
    given = as_bytes(texts)
    edits = modifier.edits(given)
    if edits is None:
        return
    new = rewritten(given, edits)
    assert len(edits.doubtful) == len(new.starts) == len(texts)
    for row, text in enumerate(texts):
        made = new.data[new.starts[row] : new.ends[row]].tobytes().decode("utf-8", "surrogatepass")
        flags = int(edits.doubtful[row])
        assert made == (text if flags else modifier.modify_document(text))
        if flags:
            assert modifier.modify_flagged(text, flags) == modifier.modify_document(text)


def check_byte_test(modifier: DocumentModifier, texts: Sequence[str]) -> None:
    """A text that the test over bytes says no to must stay as it is."""
    flags = modifier.may_change(as_bytes(texts))
    if flags is None:
        return
    assert len(flags) == len(texts)
    for text, maybe in zip(texts, flags.tolist(), strict=True):
        assert maybe or modifier.modify_document(text) == text
