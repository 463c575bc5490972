# SPDX-License-Identifier: Apache-2.0
"""Every rule agrees with a plain definition on every text, and keeps what its bounds allow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings

from tests.unit.stages.text.rules.texts import real_texts, texts
from thresher.stages.text.document_filter import DocumentFilter
from thresher.stages.text.rules.mean_word_length import MeanWordLengthFilter
from thresher.stages.text.rules.non_alpha_numeric import NonAlphaNumericFilter
from thresher.stages.text.rules.repeated_lines import RepeatedLinesFilter
from thresher.stages.text.rules.urls import UrlsFilter
from thresher.stages.text.rules.word_count import WordCountFilter

# -- the plain definitions --------------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    words, current = [], ""
    for character in text:
        if character.isspace():
            words.append(current)
            current = ""
        else:
            current += character
    return [word for word in [*words, current] if word]


def mean_word_length(text: str) -> float:
    lengths = [len(word) for word in words_of(text)]
    return sum(lengths) / len(lengths) if lengths else 0.0


def non_alpha_numeric(text: str) -> float:
    common = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n?!,."
    return sum(character not in common for character in text) / len(text) if text else 1.0


def repeated_lines(text: str) -> float:
    lines = [line for line in text.split("\n") if line.strip()]
    return len(set(lines)) / len(lines) if lines else 0.0


URL = re.compile(r"http[s]?://(?:[a-zA-Z]|[0-9]|[$-_@.&+]|[!*\(\),]|(?:%[0-9a-fA-F][0-9a-fA-F]))+")


def url_share(text: str) -> float:
    return sum(len(match[0]) for match in URL.finditer(text)) / len(text) if text else 1.0


ORACLES: list[tuple[DocumentFilter, Callable[[str], Any]]] = [
    (WordCountFilter(), lambda text: len(words_of(text))),
    (MeanWordLengthFilter(), mean_word_length),
    (NonAlphaNumericFilter(), non_alpha_numeric),
    (RepeatedLinesFilter(), repeated_lines),
    (UrlsFilter(), url_share),
]
NAMES = [rule.name for rule, _ in ORACLES]


@pytest.mark.parametrize(("rule", "oracle"), ORACLES, ids=NAMES)
def test_score_is_the_plain_definition(rule: DocumentFilter, oracle: Callable[[str], Any]) -> None:
    @settings(max_examples=150, deadline=None)
    @given(texts)
    @example("")
    @example(" \n\u3000")
    @example("\ud800 lone surrogate")
    @example("a\x1cb\x85c\u200bd")
    @example("x\r\nx\r\nx")
    @example("http://a\u00e9b https://c#d http://http://e %41")
    def check(text: str) -> None:
        assert rule.score_document(text) == oracle(text)

    check()


@pytest.mark.parametrize(("rule", "oracle"), ORACLES, ids=NAMES)
def test_score_is_the_plain_definition_on_real_text(rule: DocumentFilter, oracle: Callable[[str], Any]) -> None:
    found = [text for text in real_texts(40) if len(text) < 60_000]
    assert len(found) > 200
    assert all(rule.score_document(text) == oracle(text) for text in found)


@pytest.mark.parametrize(
    ("rule", "kept", "not_kept"),
    [
        (WordCountFilter(min_words=2, max_words=4), [2, 4], [1, 5]),
        (MeanWordLengthFilter(), [3, 10, 5.5], [2.99, 10.01, 0.0]),
        (NonAlphaNumericFilter(), [0.0, 0.25], [0.2501, 1.0]),
        (RepeatedLinesFilter(), [0.7, 1.0], [0.69, 0.0]),
        (UrlsFilter(), [0.0, 0.2], [0.21, 1.0]),
    ],
    ids=NAMES,
)
def test_bounds_are_allowed_values(rule: DocumentFilter, kept: list[float], not_kept: list[float]) -> None:
    assert all(rule.keep_document(score) for score in kept)
    assert not any(rule.keep_document(score) for score in not_kept)


@pytest.mark.parametrize("rule", [rule for rule, _ in ORACLES], ids=NAMES)
def test_an_empty_text_is_never_kept(rule: DocumentFilter) -> None:
    assert not rule.keep_document(rule.score_document(""))


def test_thresholds_name_the_parameters() -> None:
    assert WordCountFilter(min_words=7).thresholds() == {"min_words": 7, "max_words": 100000}
    assert UrlsFilter().thresholds() == {"max_url_to_text_ratio": 0.2}
