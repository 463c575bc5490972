# SPDX-License-Identifier: Apache-2.0
"""DocumentStatistics writes what plain Python would count, and adds histograms to the report."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from thresher.core.documents.batch import DocumentBatch
from thresher.core.tally import context_of
from thresher.errors import UsageError
from thresher.stages.text.document_statistics import STATISTICS, DocumentStatistics

PLAIN = ["bytes", "characters", "words", "lines", "mean_word_length", "mean_line_length", "alphabetic_share"]
PLAIN += ["digit_share", "white_space_share", "distinct_line_share", "longest_word", "paragraphs"]


def counted(text: str) -> dict[str, Any]:
    words, lines = text.split(), [line for line in text.split("\n") if line.strip()]
    per = max(len(text), 1)
    return {
        "bytes": len(text.encode("utf-8", "surrogatepass")),
        "characters": len(text),
        "words": len(words),
        "lines": len(lines),
        "mean_word_length": sum(map(len, words)) / max(len(words), 1),
        "mean_line_length": sum(map(len, lines)) / max(len(lines), 1),
        "alphabetic_share": sum(map(str.isalpha, text)) / per,
        "digit_share": sum(character in "0123456789" for character in text) / per,
        "white_space_share": sum(character in "\t\n\r\b " for character in text) / per,
        "distinct_line_share": len(set(lines)) / max(len(lines), 1),
        "longest_word": max(map(len, words), default=0),
        "paragraphs": len(text.split("\n\n")),
    }


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("aé中1 \n\t\u3000.\0"), max_size=40), min_size=1, max_size=3))
def test_the_columns_hold_what_plain_python_counts(texts: list[str]) -> None:
    made = DocumentStatistics(PLAIN).process(DocumentBatch([{"text": text} for text in texts]))
    for text, record in zip(texts, made.to_pyarrow().to_pylist(), strict=True):
        assert {name: record[name] for name in PLAIN} == counted(text)


def test_the_usual_ones_come_without_asking_and_the_record_stays_as_it_is() -> None:
    made = DocumentStatistics(prefix="s_").process(batch_of([{"id": 1, "text": "ab cd\nef"}]))
    assert written(made) == [
        {
            "id": 1,
            "text": "ab cd\nef",
            "s_characters": 8,
            "s_words": 3,
            "s_lines": 2,
            "s_mean_word_length": 2.0,
            "s_alphabetic_share": 0.75,
            "s_digit_share": 0.0,
            "s_white_space_share": 0.25,
        }
    ]


def test_the_report_has_histograms() -> None:
    stage = DocumentStatistics(["words", "digit_share", "mean_word_length"], columns=False)
    texts = ["", "1", "a b", "a b c", "12 3456 a", "x" * 99]
    made = stage.process(batch_of([{"text": text} for text in texts]))
    assert written(made) == [{"text": text} for text in texts]
    assert context_of(stage).noted.counts == {
        "words 0": 1,
        "words 2^00: 1": 2,
        "words 2^01: 2 to 3": 3,
        "digit_share 0.0 to 0.1": 4,
        "digit_share 0.6 to 0.7": 1,
        "digit_share 0.9 to 1.0": 1,
        "mean_word_length 00 to 01": 1,
        "mean_word_length 01 to 02": 3,
        "mean_word_length 02 to 03": 1,
        "mean_word_length 30 or more": 1,
    }


def test_histograms_add_up_wherever_batches_are_cut() -> None:
    batch = batch_of([{"text": "word " * n} for n in range(40)])
    whole, parts = DocumentStatistics(), DocumentStatistics()
    whole.process(batch)
    for start in range(0, 40, 7):
        parts.process(batch.take(range(start, min(start + 7, 40))))
    assert context_of(whole).noted.counts == context_of(parts).noted.counts


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_has_a_value_for_every_text(name: str) -> None:
    made = DocumentStatistics([name]).process(DocumentBatch([{"text": text} for text in ("", " ", "a\n\nb http://x")]))
    assert all(value >= 0 for value in made.values(name))


def test_a_record_without_text_is_set_aside() -> None:
    made = DocumentStatistics(["words"]).process(batch_of([{"text": None}, {"text": "a"}]))
    assert written(made) == [{"text": "a", "words": 1}]
    assert made._failed[0].error == "field-missing"
    assert written(DocumentStatistics().process(batch_of([]))) == []
    assert written(DocumentStatistics().process(batch_of([{}]))) == []


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"there is no 'word'\. Did you mean 'words'\? There is: bytes, characters"):
        DocumentStatistics(["word"])
