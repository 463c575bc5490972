# SPDX-License-Identifier: Apache-2.0
"""What each rule finds in a text, and what it keeps: one example per line."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.stages.text.rules.all_rules import COUNTED, PLAIN
from tests.unit.stages.text.rules.texts import texts
from thresher.core.planning.score_dependence import scoring_part
from thresher.errors import UsageError
from thresher.stages.text.judging.rule import DocumentFilter
from thresher.stages.text.rules.characters.character_shares import (
    AlphaFilter,
    NonAlphaNumericFilter,
    NumbersFilter,
    ParenthesesFilter,
    WhiteSpaceFilter,
)
from thresher.stages.text.rules.characters.patterns import SubstringFilter
from thresher.stages.text.rules.code.source_files import NumberOfLinesOfCodeFilter
from thresher.stages.text.rules.lines.line_marks import BulletsFilter, EllipsisFilter, PunctuationFilter
from thresher.stages.text.rules.lines.paragraphs import BoilerPlateStringFilter
from thresher.stages.text.rules.lines.repeated_ngrams import RepeatingDuplicateNGramsFilter, RepeatingTopNGramsFilter
from thresher.stages.text.rules.lines.repeated_passages import (
    RepeatedLinesByCharFilter,
    RepeatedLinesFilter,
    RepeatedParagraphsByCharFilter,
    RepeatedParagraphsFilter,
)
from thresher.stages.text.rules.web.urls import PornographicUrlsFilter, UrlsFilter
from thresher.stages.text.rules.words.word_counts import (
    CommonEnglishWordsFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)

EXAMPLES: list[tuple[DocumentFilter, str, float]] = [
    (AlphaFilter(), "ab1 ", 2 / 4),
    (AlphaFilter(), "é中ा²", 3 / 4),  # a vowel sign is alphabetic, which `str.isalpha` denies
    (BoilerPlateStringFilter(), "Our PRIVACY policy\n\ntext", 1 / 2),
    (BoilerPlateStringFilter(), "privacy\npolicy", 0.0),
    (BoilerPlateStringFilter(), "COOKIE policy".replace("K", "\u212a"), 1.0),  # the Kelvin sign becomes a k
    (BoilerPlateStringFilter(), "a\n\nb\n\nLorem Ipsum dolor", 1.0),
    (BoilerPlateStringFilter(), "privacy policy\n\n\n\n", 1 / 3),  # blank paragraphs count
    (BulletsFilter(), "• a\n\u3000‣ b\n- c\n* d", 2 / 4),
    (BulletsFilter(), "a •\n\n \n", 0.0),  # blank lines do not count
    (CommonEnglishWordsFilter(), "the cat and the dog", 2),  # up to the bound
    (CommonEnglishWordsFilter(stop_at_false=False), "the cat and the dog", 3),
    (CommonEnglishWordsFilter(stop_at_false=False), "The cat, and, the", 1),
    (CommonEnglishWordsFilter(0), "the the", 0),
    (EllipsisFilter(), "a...\nb…\nc", 2 / 3),
    (EllipsisFilter(), "Read MORE \r\nmore", 1 / 2),
    (LongWordFilter(), "ab \U0001f642\U0001f642\U0001f642", 3),
    (MeanWordLengthFilter(), "a bbb", 2.0),
    (NonAlphaNumericFilter(), "ab é\n.", 2 / 6),  # the space and the letter outside ASCII
    (NumberOfLinesOfCodeFilter(), "a\nb\n", 3),
    (NumberOfLinesOfCodeFilter(), "a\r\u2028b", 1),
    (NumbersFilter(), "12ab", 2 / 4),
    (NumbersFilter(), "١٢ab", 0.0),  # digits of other scripts
    (ParenthesesFilter(), "(a)[b]{c}⟨d⟩", 8 / 12),
    (PornographicUrlsFilter(), "see https://porn.example", 1),
    (PornographicUrlsFilter(), "porn at https://example.org", 0),
    (PornographicUrlsFilter(url_regex=r"www\.\S+"), "www.porn.example", 1),
    (PunctuationFilter(), 'a.\nb?  \n"c"\nd', 1 / 4),
    (PunctuationFilter(), "a…\nb:\nc。", 1.0),
    (RepeatedLinesFilter(), "x\nx\n\ny", 2 / 3),
    (RepeatedLinesFilter(), "x\nx \nx\r", 1.0),  # white space makes lines different
    (RepeatedLinesByCharFilter(), "long line\nlong line\nx", 10 / 19),
    (RepeatedParagraphsFilter(), "x\n\nx\n\ny", 2 / 3),
    (RepeatedParagraphsFilter(), "x\n\n\n\nx", 2 / 3),
    (RepeatedParagraphsByCharFilter(), "long one\n\nlong one\n\nx", 9 / 17),
    (RepeatingTopNGramsFilter(2), "a b x a b", 6 / 9),
    (RepeatingTopNGramsFilter(2), "a b a  b", 3 / 8),  # two spaces: no match in the text
    (RepeatingTopNGramsFilter(2), "a b xa bx a b", 9 / 13),  # inside longer words too
    (RepeatingTopNGramsFilter(3), "a b", 1.0),  # fewer than n words
    (RepeatingDuplicateNGramsFilter(2), "a b a b", 3 / 7),
    (RepeatingDuplicateNGramsFilter(2), "a a a a", 5 / 7),  # three words that came before, and two spaces
    (RepeatingDuplicateNGramsFilter(5), "a b c d", 1.0),
    (SubstringFilter("ab", "prefix"), "abc", 1),
    (SubstringFilter("ab", "suffix"), "abc", 0),
    (SubstringFilter("b", "any"), "abc", 1),
    (SymbolsToWordsFilter(), "# ## #a# ... word […]", 4 / 6),
    (SymbolsToWordsFilter(), "read more", 0.0),  # two words, so no mark
    (UrlsFilter(), "see https://a.b/%41?c=d#e;f", len("https://a.b/%41?c=d#e") / 27),
    (UrlsFilter(), "http://a%4 HTTP://a http:// http://é", len("http://a") / 36),
    (UrlsFilter(url_regex=r"(www)\.\S+"), "at www.a", 5 / 8),  # all of a match counts, whatever its groups
    (WhiteSpaceFilter(), "a\t\b\u3000", 2 / 4),
    (WordCountFilter(), "a\x1cb\x85c\u200bd", 3),  # the last one is no white space
    (WordsWithoutAlphabetsFilter(), "a1 22 é -", 2 / 4),
]


@pytest.mark.parametrize(
    ("rule", "text", "score"), EXAMPLES, ids=[f"{r.name}-{n}" for n, (r, *_) in enumerate(EXAMPLES)]
)
def test_score(rule: DocumentFilter, text: str, score: float) -> None:
    assert rule.score_document(text) == score


EMPTY: dict[str, tuple[float, bool]] = {
    "AlphaFilter": (0.0, False),
    "BoilerPlateStringFilter": (0.0, True),
    "BulletsFilter": (1.0, False),
    "CommonEnglishWordsFilter": (0, False),
    "CommonEnglishWordsFilter-all": (0, False),
    "EllipsisFilter": (1.0, False),
    "HTMLBoilerplateFilter": (0.0, False),
    "LongWordFilter": (0, True),
    "MeanWordLengthFilter": (0.0, False),
    "NonAlphaNumericFilter": (1.0, False),
    "NumberOfLinesOfCodeFilter": (1, False),
    "NumbersFilter": (1.0, False),
    "ParenthesesFilter": (1.0, False),
    "PornographicUrlsFilter": (0, True),
    "PunctuationFilter": (1.0, False),
    "PythonCommentToCodeFilter": (0.0, False),
    "RepeatedLinesFilter": (0.0, False),
    "RepeatedLinesByCharFilter": (0.0, False),
    "RepeatedParagraphsFilter": (1.0, True),
    "RepeatedParagraphsByCharFilter": (0.0, False),
    "SubstringFilter": (0, False),
    "SymbolsToWordsFilter": (1.0, False),
    "UrlsFilter": (1.0, False),
    "UrlsFilter-own": (1.0, False),
    "WhiteSpaceFilter": (1.0, False),
    "WordCountFilter": (0, False),
    "WordsWithoutAlphabetsFilter": (0.0, False),
    "XMLHeaderFilter": (0, True),
}
EVERY = {**COUNTED, **PLAIN}


@pytest.mark.parametrize("name", EVERY)
def test_the_score_of_an_empty_text_is_defined(name: str) -> None:
    rule = EVERY[name]
    score = rule.score_document("")
    expected = EMPTY.get(name, (0.0, False) if name.startswith("General") else (1.0, False))
    assert (score, rule.keep_document(score)) == expected


@pytest.mark.parametrize("name", EVERY)
def test_no_text_makes_a_rule_fail(name: str) -> None:
    rule = EVERY[name]

    @settings(max_examples=100, deadline=None)
    @given(texts | st.text(st.characters(), max_size=20))
    @example("")
    @example(" ")
    @example("\n\n")
    @example("word")
    @example("\ud800 lone\udfff surrogates")
    @example("\0")
    @example('"' * 99 + "'''`\\")
    @example("/*" * 99 + "<![x[<!--<script>")
    def check(text: str) -> None:
        score = rule.score_document(text)
        assert isinstance(score, int | float)
        assert isinstance(rule.keep_document(score), bool)

    check()


@pytest.mark.parametrize(
    ("rule", "kept", "not_kept"),
    [
        (AlphaFilter(), [0.25, 1.0], [0.2499]),
        (BoilerPlateStringFilter(), [0.0, 0.4], [0.41]),
        (BulletsFilter(), [0.9], [0.91]),
        (CommonEnglishWordsFilter(), [2, 3], [1, 0]),
        (EllipsisFilter(), [0.3], [0.31]),
        (LongWordFilter(), [0, 1000], [1001]),
        (MeanWordLengthFilter(), [3, 10, 5.5], [2.99, 10.01, 0.0]),
        (NonAlphaNumericFilter(), [0.0, 0.25], [0.2501, 1.0]),
        (NumberOfLinesOfCodeFilter(), [10, 20000], [9, 20001]),
        (NumbersFilter(), [0.15], [0.1501]),
        (ParenthesesFilter(), [0.1], [0.1001]),
        (PornographicUrlsFilter(), [0], [1]),
        (PunctuationFilter(), [0.85], [0.8501]),
        (RepeatedLinesFilter(), [0.7, 1.0], [0.69, 0.0]),
        (RepeatedLinesByCharFilter(), [0.8], [0.79]),
        (RepeatedParagraphsFilter(), [0.7], [0.69]),
        (RepeatedParagraphsByCharFilter(), [0.8], [0.79]),
        (RepeatingTopNGramsFilter(), [0.2], [0.2001]),
        (RepeatingDuplicateNGramsFilter(), [0.2], [0.2001]),
        (SymbolsToWordsFilter(), [0.1], [0.1001]),
        (UrlsFilter(), [0.0, 0.2], [0.21, 1.0]),
        (WhiteSpaceFilter(), [0.25], [0.2501]),
        (WordCountFilter(min_words=2, max_words=4), [2, 4], [1, 5]),
        (WordsWithoutAlphabetsFilter(), [0.8], [0.79]),
    ],
    ids=lambda value: value.name if isinstance(value, DocumentFilter) else "",
)
def test_bounds_are_allowed_values(rule: DocumentFilter, kept: list[float], not_kept: list[float]) -> None:
    assert all(rule.keep_document(score) for score in kept)
    assert not any(rule.keep_document(score) for score in not_kept)


def test_thresholds_name_the_parameters() -> None:
    assert WordCountFilter(min_words=7).thresholds() == {"min_words": 7, "max_words": 100000}
    assert UrlsFilter().thresholds() == {"max_url_to_text_ratio": 0.2}
    assert RepeatingTopNGramsFilter(3).thresholds() == {"n": 3, "max_repeating_ngram_ratio": 0.2}


@pytest.mark.parametrize("name", COUNTED)
def test_another_bound_leaves_the_scores_of_a_rule_valid(name: str) -> None:
    rule, other = COUNTED[name], copy.copy(COUNTED[name])
    for bound in rule.thresholds():
        if bound.startswith(("min_", "max_")):
            setattr(other, bound, getattr(rule, bound) + 1)
    counts_to_its_bound = name.startswith("CommonEnglishWordsFilter")
    assert (scoring_part(other) == scoring_part(rule)) is not counts_to_its_bound
    assert scoring_part(rule) is not None


def test_of_phrases_that_come_equally_often_neither_the_first_nor_the_last_always_counts() -> None:
    texts = [f"aaaa{n} bbbb cc{n} d eeeeee ffff{n}" for n in range(40)]
    scores = {RepeatingTopNGramsFilter(2).score_document(text) for text in texts}
    assert len(scores) > 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RepeatingTopNGramsFilter(0),
            r"RepeatingTopNGramsFilter\.n: 0 is not a number of words; give 1 or more",
        ),
        (
            lambda: SubstringFilter("a", "middle"),
            r"SubstringFilter\.position: 'middle' is not one of prefix, suffix, any",
        ),
        (lambda: UrlsFilter(url_regex="("), r"UrlsFilter\.url_regex: '\(' is not a regular expression: .+"),
        (
            lambda: PornographicUrlsFilter(url_regex=3),
            r"PornographicUrlsFilter\.url_regex: 3 is not a regular expression",
        ),
        (lambda: WordCountFilter(lang=None), r"WordCountFilter\.lang: None is not a language code"),
    ],
)
def test_wrong_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
