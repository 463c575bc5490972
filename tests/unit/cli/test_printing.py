# SPDX-License-Identifier: Apache-2.0
"""Text of documents can do nothing to the terminal that shows it."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.cli.printing import print_json, shown, shown_lines

ANY_TEXT = st.text(st.characters(codec=None))
FORBIDDEN = {"Cc", "Cs", "Zl", "Zp"}


@given(ANY_TEXT)
def test_no_character_that_a_terminal_obeys_is_left(text: str) -> None:
    for line in (shown(text), *shown_lines(text)):
        assert not [c for c in line if unicodedata.category(c) in FORBIDDEN]
        assert not set(line) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff")


@given(ANY_TEXT, st.integers(1, 50))
def test_text_fits_its_width(text: str, width: int) -> None:
    assert len(shown(text, width)) <= width


def test_plain_text_stays_as_it_is_and_the_rest_is_spelled_out() -> None:
    assert shown("Grüße, 世界") == "Grüße, 世界"
    assert shown("a\x1b[31mb\nc\u202ed\x9b") == "a\\x1b[31mb\\nc\\u202ed\\x9b"


def test_json_on_stdout_is_plain_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "a\x1b[31mb\x9b31m\u202ec"}
    print_json(value)
    out = capsys.readouterr().out
    assert json.loads(out) == value
    assert not [c for c in out.rstrip("\n") if unicodedata.category(c) in ("Cc", "Cf")]
