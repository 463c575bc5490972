# SPDX-License-Identifier: Apache-2.0
"""The sets of datatrove: which check drops a document, under which name, and that kernels agree with every check."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of
from tests.unit.kernels.texts import hard_texts, made_up_texts, real_texts
from tests.unit.stages.text.test_kernels_agree import assert_agrees, counts_of
from thresher.errors import UsageError
from thresher.stages.text.judging.rule import CountRule, is_counted
from thresher.stages.text.judging.score_filter import RuleSet
from thresher.stages.text.rules.lines.paragraphs import C4ParagraphFilter
from thresher.stages.text.rules.sets.fineweb_quality import FineWebQualityFilter
from thresher.stages.text.rules.sets.gopher_quality import GopherQualityFilter
from thresher.stages.text.rules.sets.gopher_repetition import GopherRepetitionFilter

PROSE = "The cat sat with the dog and looked at the bird that they have seen before today in the old garden."
CHECKS: list[CountRule] = [
    *GopherQualityFilter()._judges,
    *GopherRepetitionFilter(top_n_grams=((1, 0.2), (2, 0.2), (4, 0.16)), dup_n_grams=((1, 0.1), (3, 0.1)))._judges,
    *GopherRepetitionFilter()._judges[-6:],
    *FineWebQualityFilter()._judges,
    *FineWebQualityFilter(line_punct_exclude_zero=True, short_line_length=3)._judges,
    C4ParagraphFilter(),
    C4ParagraphFilter(min_paragraph_len=5),
]
NAMES = [f"{check.name}-{number}" for number, check in enumerate(CHECKS)]


def reason_of(rules: RuleSet, text: str) -> tuple[str, Any, Any] | None:
    """Rule, score and threshold with which a set drops a text."""
    kept = rules.process(batch_of([{"text": text}]))
    if len(kept):
        assert kept.values("text") == [text]
        return None
    (dropped,) = kept._dropped
    return dropped.rule, *(dropped.scores or [None]), dropped.threshold


def prose(*more: str) -> str:
    return " ".join(
        [PROSE, PROSE.lower().replace("the", "a"), "Words of it and more of them that be with us to stay", *more]
    )


GOPHER_QUALITY = [
    ("the end", "gopher_short_doc", 2, {"min_doc_words": 50}),
    ("- " * 60, "gopher_short_doc", 0, {"min_doc_words": 50}),  # punctuation makes no words
    ("ab " * 60, "gopher_below_avg_threshold", 2.0, {"min_avg_word_length": 3}),
    ("abcdefghijkl " * 60, "gopher_above_avg_threshold", 12.0, {"max_avg_word_length": 10}),
    ("#abc " * 60, "gopher_too_many_hashes", 1.0, {"max_symbol_word_ratio": 0.1}),
    ("abc... " * 60, "gopher_too_many_ellipsis", 1.0, {"max_symbol_word_ratio": 0.1}),
    ("abc… " * 60, "gopher_too_many_ellipsis", 1.0, {"max_symbol_word_ratio": 0.1}),
    ("- the cat\r\n" * 60, "gopher_too_many_bullets", 1.0, {"max_bullet_lines_ratio": 0.9}),
    ("\u3000•the cat\u2028" * 60, "gopher_too_many_bullets", 1.0, {"max_bullet_lines_ratio": 0.9}),
    (("the" + " abc" * 12 + "...\n") * 5, "gopher_too_many_end_ellipsis", 1.0, {"max_ellipsis_lines_ratio": 0.3}),
    ("the cat 1234 " * 60, "gopher_below_alpha_threshold", 2 / 3, {"max_non_alpha_words_ratio": 0.8}),
    ("the cat " * 60, "gopher_enough_stop_words", 1, {"min_stop_words": 2}),
]


@pytest.mark.parametrize(("text", "rule", "score", "threshold"), GOPHER_QUALITY)
def test_gopher_quality_names_the_check_that_failed(text: str, rule: str, score: float, threshold: Any) -> None:
    assert reason_of(GopherQualityFilter(), text) == (rule, score, threshold)


GOPHER_REPETITION = [
    ("", "empty", 0, {"min_characters": 1}),
    ("one\n\none\n\none", "dup_para_frac", 2 / 3, {"dup_para_frac": 0.3}),
    (f"a\n\nb\n\nc\n\n{PROSE}\n\n{PROSE}", "dup_para_char_frac", len(PROSE) / (2 * len(PROSE) + 11), None),
    ("x\ny\nx\nx", "dup_line_frac", 0.5, {"dup_line_frac": 0.3}),
    ("\n\nx\n\n", "dup_line_frac", 1 / 3, {"dup_line_frac": 0.3}),  # nothing before and nothing behind is the same
    ("a b a b c", "top_2_gram", 6 / 9, {"top_n_grams": 0.2}),
]


@pytest.mark.parametrize(("text", "rule", "score", "threshold"), GOPHER_REPETITION)
def test_gopher_repetition_names_the_check_that_failed(text: str, rule: str, score: float, threshold: Any) -> None:
    found = reason_of(GopherRepetitionFilter(), text)
    assert found is not None
    assert found[:2] == (rule, score)
    assert threshold is None or found[2] == threshold


def test_words_without_a_space_between_them_make_the_same_n_gram() -> None:
    rules = GopherRepetitionFilter(top_n_grams=(), dup_n_grams=((2, 0.1),))
    assert reason_of(rules, "ab c d a bc e f") == ("duplicated_2_n_grams", 3 / 15, {"dup_n_grams": 0.1})


def test_the_top_n_gram_is_the_first_of_those_that_come_equally_often() -> None:
    rules = GopherRepetitionFilter(top_n_grams=((1, 0.0),), dup_n_grams=())
    assert reason_of(rules, "long b b long") == ("top_1_gram", 8 / 13, {"top_n_grams": 0.0})


FINEWEB = [
    (" \n\t\n", "empty", 0, {"min_lines": 1}),
    ("no mark here\nnor here ", "line_punct_ratio", 0.0, {"line_punct_thr": 0.12}),
    ("a mark. \n", "line_punct_ratio", 0.0, {"line_punct_thr": 0.12}),  # white space at the end stays
    ("Short.\nShort too.\n", "short_line_ratio", 1.0, {"short_line_thr": 0.67}),
    (f"{PROSE}\n\n{PROSE}", "char_dup_ratio", 0.5, {"char_duplicates_ratio": 0.01}),
    (
        "One-word-line-of-thirty-one-chars。\nAnd-another-word-in-a-line-of-it।",
        "list_ratio",
        0.5,
        {"new_line_ratio": 0.3},
    ),
]


@pytest.mark.parametrize(("text", "rule", "score", "threshold"), FINEWEB)
def test_fineweb_quality_names_the_check_that_failed(text: str, rule: str, score: float, threshold: Any) -> None:
    assert reason_of(FineWebQualityFilter(), text) == (rule, score, threshold)


def test_prose_passes_every_set() -> None:
    for rules in (GopherQualityFilter(), FineWebQualityFilter(), GopherRepetitionFilter()):
        assert reason_of(rules, prose("At last it ends as stories do.")) is None


def test_lines_without_any_mark_may_be_let_through() -> None:
    text = "a line of text that is long enough to be no short one"
    assert reason_of(FineWebQualityFilter(), text) is not None
    assert reason_of(FineWebQualityFilter(line_punct_exclude_zero=True), text) is None
    assert reason_of(FineWebQualityFilter(stop_chars=["one"]), text) is None


@pytest.mark.parametrize("off", [None, 0])
def test_none_or_zero_turns_a_check_off(off: int | None) -> None:
    rules = GopherQualityFilter(min_doc_words=off, max_symbol_word_ratio=off, min_stop_words=off)
    assert reason_of(rules, "#one #two #three") is None
    assert "gopher_short_doc" not in [judge.name for judge in rules._judges]
    lines = GopherRepetitionFilter(dup_line_frac=off, dup_line_char_frac=off, top_n_grams=(), dup_n_grams=())
    assert reason_of(lines, "x\nx\nx") is None


def test_stop_words_of_other_languages_are_counted_without_the_kernel() -> None:
    rules = GopherQualityFilter(min_doc_words=1, min_avg_word_length=None, stop_words=["der", "und"])
    assert not is_counted(rules._judges[-1])
    assert reason_of(rules, "der Hund und die Katze") is None
    assert reason_of(rules, "the dog and the cat") == ("gopher_enough_stop_words", 0, {"min_stop_words": 2})


def test_a_wrong_pair_of_n_and_share_says_how_to_write_it() -> None:
    with pytest.raises(UsageError, match=r"top_n_grams: \[0\.2\] is not a pair of .* write it as \[2, 0\.2\]"):
        GopherRepetitionFilter(top_n_grams=[[0.2]])


@pytest.mark.parametrize("number", range(len(CHECKS)), ids=NAMES)
def test_a_check_never_fails_and_kernels_agree_with_it(number: int) -> None:
    rule = CHECKS[number]

    @settings(max_examples=100, deadline=None)
    @given(st.lists(hard_texts, min_size=1, max_size=4))
    @example(["", " ", "\n", "\n\n", "\r\n", "a", "\n a\n\n\n b \n", "\ud800", "a\n\nb\n\na\n\n"])
    def check(documents: list[str]) -> None:
        assert_agrees(rule, counts_of(documents), documents)

    check()


def test_kernels_agree_on_long_texts_of_hard_pieces() -> None:
    documents = made_up_texts(5, 150)
    counts = counts_of(documents)
    for rule in CHECKS:
        assert_agrees(rule, counts, documents)


def test_kernels_agree_on_real_texts() -> None:
    documents = [text for text in real_texts(60) if len(text) < 200_000]
    counts = counts_of(documents)
    for rule in CHECKS:
        assert_agrees(rule, counts, documents)


def test_bounds_that_are_not_there_are_infinite() -> None:
    check = GopherQualityFilter()._judges[0]
    assert check.allowed() == (50, math.inf)
    assert check.thresholds() == {"min_doc_words": 50}
