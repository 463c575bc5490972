# SPDX-License-Identifier: Apache-2.0
"""What constructors of rules, modifiers, readers and writers refuse, all by one mechanism."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thresher import (
    DocumentFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    JsonlReader,
    JsonlWriter,
    MeanWordLengthFilter,
    NumberOfLinesOfCodeFilter,
    ThresherError,
    TokenCountFilter,
    UrlsFilter,
    WordCountFilter,
)
from thresher.errors import UsageError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: WordCountFilter(min_words="50"),
            "WordCountFilter.min_words: '50' is a text; it must be a whole number",
        ),
        (lambda: WordCountFilter(min_words=True), "WordCountFilter.min_words: true is a truth value"),
        (lambda: WordCountFilter(min_words=1.5), "WordCountFilter.min_words: 1.5 is a number; it must be a whole"),
        (lambda: UrlsFilter(max_url_to_text_ratio=[0.1]), "UrlsFilter.max_url_to_text_ratio: [0.1] is a list"),
        (lambda: JsonlReader("in", blocksize=1.5), "JsonlReader.blocksize: 1.5 is"),
        (lambda: JsonlWriter("out", compression=3), "JsonlWriter.compression: 3 is"),
        (lambda: WordCountFilter(minwords=3), "has no parameter 'minwords'. Did you mean 'min_words'?"),
        (lambda: JsonlReader(), "JsonlReader.file_paths: JsonlReader needs it and it is not given"),
        (lambda: WordCountFilter(1, 2, "en", 4), "WordCountFilter takes 3 arguments, and 4 were given"),
        (lambda: WordCountFilter(1, min_words=1), "WordCountFilter.min_words: given twice, by position and by name"),
    ],
)
def test_a_wrong_argument_is_refused_at_once_with_its_name_and_what_is_legal(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ThresherError, match=re.escape(message)) as refused:
        make()
    assert refused.value.exit_code == 2
    assert isinstance(refused.value, ValueError | TypeError)


def test_a_wrong_type_is_also_a_type_error_and_a_wrong_value_a_value_error() -> None:
    with pytest.raises(TypeError):
        WordCountFilter(min_words="50")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ValueError, match="above max_words"):
        WordCountFilter(min_words=50, max_words=5)


def test_all_mistakes_of_a_constructor_are_told_at_once() -> None:
    with pytest.raises(UsageError) as refused:
        WordCountFilter(min_words="a", max_words=None)  # type: ignore[arg-type]  # the point of the test
    assert "2 problems" in str(refused.value)
    assert "1. WordCountFilter.min_words" in str(refused.value)
    assert "2. WordCountFilter.max_words" in str(refused.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: WordCountFilter(min_words=10, max_words=9),
        lambda: MeanWordLengthFilter(min_mean_word_length=4.5, max_mean_word_length=4),
        lambda: NumberOfLinesOfCodeFilter(min_lines=10, max_lines=1),
        lambda: GopherQualityFilter(min_doc_words=10, max_doc_words=9),
        lambda: WordCountFilter(max_words=5),
    ],
)
def test_bounds_that_nothing_lies_between_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match=r"min_\w+: .* is above max_\w+"):
        make()


def test_a_bound_that_is_turned_off_is_no_bound() -> None:
    for off in (None, 0):
        assert GopherQualityFilter(min_doc_words=50, max_doc_words=off).min_doc_words == 50
    assert WordCountFilter(min_words=9, max_words=9).keep_document(9)


@pytest.mark.parametrize("make", [UrlsFilter, lambda nan: FineWebQualityFilter(short_line_thr=nan)])
def test_nan_is_no_threshold(make: Callable[[float], Any]) -> None:
    with pytest.raises(UsageError, match="nan is not a number"):
        make(float("nan"))


def test_paths_and_numbers_of_numpy_are_taken(tmp_path: Path) -> None:
    assert JsonlReader(tmp_path).file_paths == str(tmp_path)
    assert JsonlReader([tmp_path, "b"]).file_paths == [str(tmp_path), "b"]
    assert JsonlWriter(tmp_path).path == str(tmp_path)  # type: ignore[arg-type]  # hints name texts alone
    assert WordCountFilter(min_words=np.int64(5)).min_words == 5  # type: ignore[arg-type]  # as a notebook has it
    assert UrlsFilter(np.float32(0.5)).max_url_to_text_ratio == 0.5  # type: ignore[arg-type]  # as a notebook has it


def test_a_class_of_a_user_takes_what_it_likes() -> None:
    class Mine(DocumentFilter):
        def __init__(self, most: int) -> None:
            self.most = most

    assert Mine("many").most == "many"  # type: ignore[arg-type, comparison-overlap]  # the point of the test


def test_a_checked_constructor_still_shows_its_signature_and_docstring() -> None:
    assert list(inspect.signature(WordCountFilter).parameters) == ["min_words", "max_words", "lang"]
    assert WordCountFilter.__init__.__doc__ == "Both bounds are inclusive."
    assert "min_tokens" in inspect.signature(TokenCountFilter).parameters
