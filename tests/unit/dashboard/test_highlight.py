# SPDX-License-Identifier: Apache-2.0
"""The parts of a text that a rule counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.dashboard.highlight import _FINDERS, parts_of


@pytest.mark.parametrize(
    ("rule", "text", "marked"),
    [
        ("UrlsFilter", "see https://example.org/a?b now", ["https://example.org/a?b"]),
        ("BulletsFilter", "a\n- one\n• two", ["- one", "• two"]),
        ("EllipsisFilter", "it goes on…\nit ends.", ["it goes on…"]),
        ("RepeatedLinesFilter", "same\nother\nsame", ["same"]),
        ("CommonEnglishWordsFilter", "The dog and I", ["The", "and"]),
        ("WhiteSpaceFilter", "a    b c", ["    "]),
        ("RepeatingDuplicateNGramsFilter", "a b c d e x a b c d e", ["a b c d e", "a b c d e"]),
        ("UnknownRule", "anything", []),
    ],
)
def test_what_is_marked(rule: str, text: str, marked: list[str]) -> None:
    assert [part for part, hit in parts_of(text, rule) if hit] == marked


@given(st.text(), st.sampled_from(sorted(_FINDERS)))
def test_the_parts_are_the_text(text: str, rule: str) -> None:
    assert "".join(part for part, _ in parts_of(text, rule)) == text
