# SPDX-License-Identifier: Apache-2.0
"""Every code point there is, lone surrogates too, is what Python and the `regex` module say it is."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import regex

from tests.unit.kernels.texts import as_texts
from thresher.kernels.bytes.punctuation import PUNCTUATION
from thresher.kernels.bytes.unicode_tables import CODE_POINTS
from thresher.kernels.counts.text_counts import Counts, Texts

ALPHA = regex.compile("[[:alpha:]]")
EVERY = [chr(point) for point in range(CODE_POINTS)]


@cache
def one_by_one() -> Texts:
    """A text of its own for each character."""
    return as_texts(EVERY)


@cache
def between_letters() -> Texts:
    """Each character between two letters."""
    return as_texts([f"a{character}b" for character in EVERY])


def count_of(texts: Texts, name: str) -> npt.NDArray[np.int64]:
    counts = Counts(texts)
    counts.fill([(name, 0)], np.arange(len(texts.starts)))
    return counts[name, 0]


def expected(flags: list[bool]) -> npt.NDArray[np.int64]:
    return np.array(flags, dtype=np.int64)


def test_what_is_white_space() -> None:
    white = expected([character.isspace() for character in EVERY])
    assert white.sum() == 29
    assert (count_of(one_by_one(), "words") == 1 - white).all()
    assert (count_of(between_letters(), "words") == 1 + white).all()
    assert (count_of(between_letters(), "word_characters") == 3 - white).all()


def test_a_character_is_one_code_point() -> None:
    assert (count_of(one_by_one(), "code_points") == 1).all()
    not_white = expected([not character.isspace() for character in EVERY])
    assert (count_of(one_by_one(), "longest_word") == not_white).all()


@pytest.mark.parametrize(
    ("name", "property_of"),
    [
        ("alphabetic", str.isalpha),
        ("alphanumeric", str.isalnum),
        ("alpha_characters", lambda c: ALPHA.match(c) is not None),
        ("isalpha_words", str.isalpha),
        ("alpha_words", lambda c: ALPHA.match(c) is not None),
        ("non_symbol_words", lambda c: c not in PUNCTUATION and not c.isspace()),
        ("common", lambda c: c in "\n?!,." or (c.isascii() and c.isalnum())),
        ("digits", lambda c: c.isascii() and c.isdigit()),
        ("white_space", lambda c: c in "\t\n\r\b "),
        ("parentheses", lambda c: c in "{}[]()⟨⟩"),
        ("hashes", lambda c: c == "#"),
        ("ellipses", lambda c: c == "…"),
        ("curly", lambda c: c == "{"),
        ("line_feeds", lambda c: c == "\n"),
        ("bullet_lines", lambda c: c in "•‣⁃⁌⁍∙○●◘◦⦾⦿"),
        ("ellipsis_lines", lambda c: c == "…"),
        ("unpunctuated_lines", lambda c: c not in ".?!\"'" and not c.isspace()),
    ],
)
def test_what_a_character_counts_as(name: str, property_of) -> None:
    found = count_of(one_by_one(), name)
    differing = np.flatnonzero(found != expected([bool(property_of(character)) for character in EVERY]))
    assert [hex(point) for point in differing[:5]] == []
