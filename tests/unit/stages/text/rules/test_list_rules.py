# SPDX-License-Identifier: Apache-2.0
"""Rules that need a pattern, a list of frequencies or a histogram."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.errors import InputError, UsageError
from thresher.stages.text.rules.characters.histogram import HistogramFilter
from thresher.stages.text.rules.characters.patterns import RegexFilter
from thresher.stages.text.rules.words.unigram_log_prob import UnigramLogProbFilter

any_text = st.text(st.characters(exclude_categories=()), max_size=60)

# -- regular expressions ----------------------------------------------------------------------------------------------


def test_a_document_with_a_match_is_dropped() -> None:
    rule = RegexFilter(r"(?i)lorem\s+ipsum")
    assert [rule.score_document(text) for text in ("Lorem\nipsum.", "lorem", "")] == [1, 0, 0]
    assert [rule.keep_document(score) for score in (1, 0)] == [False, True]


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"RegexFilter\.regex_exp: '\(' is not a regular expression: missing \)"):
        RegexFilter("(")


# -- frequencies ------------------------------------------------------------------------------------------------------


@pytest.fixture
def frequencies(tmp_path: Path) -> str:
    path = tmp_path / "frequencies.csv"
    path.write_text("word,count\nthe,60\ncat,30\ndon't,10\n")
    return str(path)


def test_the_score_is_the_mean_logarithm_of_the_frequencies(frequencies: str) -> None:
    rule = UnigramLogProbFilter(frequencies)
    assert rule.score_document("The cat!") == pytest.approx((math.log(0.6) + math.log(0.3)) / 2, abs=1e-12)
    assert rule.score_document("Don't") == pytest.approx(math.log(0.1), abs=1e-12)
    assert rule.score_document("unknown_cat") == pytest.approx((math.log(1e-9) + math.log(0.3)) / 2, abs=1e-12)


def test_a_text_without_words_has_zero_and_is_kept(frequencies: str) -> None:
    rule = UnigramLogProbFilter(frequencies)
    assert [rule.score_document(text) for text in ("", " \n", "...", "_")] == [0.0] * 4
    assert rule.keep_document(0.0)


def test_the_score_must_be_above_the_threshold(frequencies: str) -> None:
    rule = UnigramLogProbFilter(frequencies, logprobs_threshold=-3)
    assert not rule.keep_document(-3)
    assert rule.keep_document(-2.99)


@pytest.mark.parametrize("parted", ["the\t60\ncat\t40\n", "the 60\r\ncat 40", "the,60\ncat,40\n\n"])
def test_files_come_in_several_forms(parted: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(parted)
    assert UnigramLogProbFilter(str(tmp_path / "f")).score_document("cat") == pytest.approx(math.log(0.4), abs=1e-12)


@pytest.mark.parametrize(("content", "message"), [("a,1\nb\n", "line 2 of .* a word and a whole"), ("", "has no word")])
def test_a_file_that_is_no_list_of_frequencies_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(content)
    with pytest.raises(InputError, match=message):
        UnigramLogProbFilter(str(tmp_path / "f")).load_model()


# -- histograms -------------------------------------------------------------------------------------------------------


@pytest.fixture
def histogram(tmp_path: Path) -> str:
    path = tmp_path / "en"
    path.write_text("e 100\na 90\n  80\n\né 1\n] 1\nz 0\n")
    return str(path)


def test_the_score_is_the_share_of_usual_characters(histogram: str) -> None:
    rule = HistogramFilter(histogram_file=histogram)
    assert rule.score_document("aeé e") == 1.0
    assert rule.score_document("a\ne") == 1.0
    assert rule.score_document("aazz") == 0.5


def test_white_space_around_the_text_counts_in_its_length_alone(histogram: str) -> None:
    assert HistogramFilter(histogram_file=histogram).score_document(" aa ") == 0.5


def test_empty_texts_are_dropped(histogram: str) -> None:
    rule = HistogramFilter(histogram_file=histogram)
    assert [rule.score_document(text) for text in ("", "  ")] == [0.0, 0.0]
    assert not rule.keep_document(0.0)


def test_the_share_must_be_above_the_threshold(histogram: str) -> None:
    rule = HistogramFilter(histogram_file=histogram)
    assert not rule.keep_document(0.8)
    assert rule.keep_document(0.81)


def test_a_folder_with_the_published_archive_has_a_file_per_language(tmp_path: Path) -> None:
    folder = tmp_path / "histograms/checkpoint/edunov/cc60_multilingual/clean_hists"
    folder.mkdir(parents=True)
    (folder / "de").write_text("ä 1\n")
    assert HistogramFilter("de", cache_dir=str(tmp_path)).score_document("ää") == 1.0


def test_nothing_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"give histogram_file, or a cache_dir with https://.*histograms\.tar\.gz"):
        HistogramFilter()
    with pytest.raises(InputError, match="clean_hists/xx"):
        HistogramFilter("xx", cache_dir=str(tmp_path)).load_model()


# -- all of them ------------------------------------------------------------------------------------------------------


@given(any_text)
def test_every_text_has_a_score(text: str) -> None:
    check_scores(text)


def check_scores(text: str) -> None:
    assert RegexFilter(r"\bx\b").score_document(text) in (0, 1)
    assert math.log(1e-9) <= UNIGRAM.score_document(text) <= 0
    assert 0 <= HISTOGRAM.score_document(text) <= 1
    usual = sum(character in "ae" for character in text.strip())
    assert HISTOGRAM.score_document(text) == (usual / len(text) if text else 0.0)


UNIGRAM = UnigramLogProbFilter("not read")
UNIGRAM._logarithms = {"a": math.log(0.5)}
HISTOGRAM = HistogramFilter(histogram_file="not read")


@pytest.fixture(autouse=True, scope="module")
def _small_histogram(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("histogram") / "h"
    path.write_text("a\ne\n")
    HISTOGRAM.histogram_file = str(path)
    HISTOGRAM.load_model()
