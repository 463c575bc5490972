# SPDX-License-Identifier: Apache-2.0
"""Words of languages that are written without spaces between them."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thresher.errors import MissingPackageError, UsageError
from thresher.stages.text.columns import segmenters
from thresher.stages.text.columns.segmenters import SEGMENTERS, words_of
from thresher.stages.text.rules.lines.repeated_ngrams import RepeatingDuplicateNGramsFilter, RepeatingTopNGramsFilter
from thresher.stages.text.rules.words.word_counts import (
    LongWordFilter,
    MeanWordLengthFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)

for _package in {package.module for package in SEGMENTERS.values()}:
    pytest.importorskip(_package, reason="the extra `segmenters` is not installed")

RULES = [
    LongWordFilter,
    MeanWordLengthFilter,
    RepeatingDuplicateNGramsFilter,
    RepeatingTopNGramsFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
]


@pytest.mark.parametrize(
    ("lang", "text", "words"),
    [
        ("zh", "我们去 公园。", ["我们", "去", "公园", "。"]),
        ("zh-Hant", "我們", ["我們"]),
        ("ja", "東京に住む\n犬", ["東京", "に", "住む", "犬"]),
        ("th", "ภาษาไทยยาก🙂", ["ภาษา", "ไทย", "ยาก", "🙂"]),
        ("lo", "ພາສາລາວ", ["ພາສາ", "ລາວ"]),
        ("km", "ភាសាខ្មែរគឺ", ["ភាសាខ្មែរ", "គឺ"]),
        ("en", "don't 我们去", ["don't", "我们去"]),
        ("de", "a\u3000b", ["a", "b"]),
    ],
)
def test_words(lang: str, text: str, words: list[str]) -> None:
    assert words_of(text, lang) == words


@pytest.mark.parametrize("lang", SEGMENTERS)
def test_no_text_makes_a_segmenter_fail_and_none_of_it_is_lost(lang: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.text(max_size=40) | st.text("我们去ไทย犬の \n\0a1.", max_size=40))
    @example("")
    @example("\ud800")
    @example("\0\u200b\ufeff")
    @example("犬" * 3000)
    def check(text: str) -> None:
        found = "".join(words_of(text, lang))
        expected = "".join(text.encode("utf-16", "replace").decode("utf-16").split())
        assert len(found.replace("\0", "")) == len(expected.replace("\0", ""))

    check()


@pytest.mark.parametrize("rule", RULES)
def test_with_a_segmenter_python_does_the_work(rule: type[WordCountFilter]) -> None:
    assert rule(lang="zh").counts() is None
    assert rule(lang="de").counts() is not None
    assert isinstance(rule(lang="th").score_document("ไทย ไทย \ud800"), int | float)
    assert rule(lang="ja").score_document(" ") == rule().score_document(" ")


def test_a_phrase_of_a_language_without_spaces_is_found_without_spaces() -> None:
    text = "我们去公园。我们去学校。"
    assert RepeatingTopNGramsFilter(2, lang="zh").score_document(text) == 6 / 12
    assert RepeatingTopNGramsFilter(2).score_document(text) == 1.0


def test_a_segmenter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(segmenters.SEGMENTERS, "xh", segmenters.Package("no_such_package", list))
    with pytest.raises(MissingPackageError, match=r"lang: 'xh' needs the package 'no_such_package'\. Install: pip "):
        WordCountFilter(lang="xh")


@pytest.mark.parametrize("lang", ["english", "chinese", "jp", "cn", "xx", "e", "", "e n", "zh中"])
def test_what_is_no_code_of_a_language_is_refused(lang: str) -> None:
    with pytest.raises(UsageError, match="is not a language code; give an ISO 639 code"):
        WordCountFilter(lang=lang)


@pytest.mark.parametrize("lang", ["zho", "zh-Hant", "ZH_cn", "cmn"])
def test_every_code_of_a_language_finds_its_segmenter(lang: str) -> None:
    assert segmenters.is_segmented(lang)
    assert WordCountFilter(lang=lang).score_document("我们去公园") == WordCountFilter(lang="zh").score_document(
        "我们去公园"
    )
