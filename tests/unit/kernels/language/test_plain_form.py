# SPDX-License-Identifier: Apache-2.0
"""No text that lower case or Unicode's composed form would change is overlooked."""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernels.texts import as_texts
from thresher.kernels.language.plain_form import Forms, find_forms

MARKS = (
    "a e\u0301\u0323\u0302\u0327AÉéǅß中가\u1100\u1161\u11a8\u0915\u093c\u09c7\u09be\u0344\u2126\ufb1d\U0001d15e\ud800"
)


def forms_of(texts: list[str]) -> Forms:
    return find_forms(as_texts(texts), np.arange(len(texts), dtype=np.int64))


def is_changed(text: str) -> bool:
    return text.isupper() or unicodedata.normalize("NFC", text) != text


def test_every_character_alone_and_behind_a_letter() -> None:
    characters = [chr(number) for number in range(sys.maxunicode + 1)]
    for before in ("", "e"):
        texts = [before + character for character in characters]
        forms = forms_of(texts)
        overlooked = [text for text, found in zip(texts, forms.changed.tolist(), strict=True) if not found]
        assert not [text for text in overlooked if is_changed(text)]
        assert forms.visible.tolist() == [sum(not character.isspace() for character in text) for text in texts]


@given(st.lists(st.text(st.sampled_from(MARKS), max_size=8), max_size=20) | st.lists(st.text(max_size=20), max_size=5))
def test_marks_in_any_order(texts: list[str]) -> None:
    found = forms_of(texts).changed.tolist()
    assert not [text for text, changed in zip(texts, found, strict=True) if not changed and is_changed(text)]


def test_usual_texts_of_many_scripts_are_not_decoded() -> None:
    texts = [
        "Plain English.",
        "Früher wär's schöner.",
        "Как дела?",
        "漢字かな",
        "हिन्दी में",
        "ภาษาไทย",
        "العربية",
        "한국어",
    ]
    assert not forms_of(texts).changed.any()
    assert forms_of(["ALL CAPITALS 1", "e\u0301"]).changed.all()
