# SPDX-License-Identifier: Apache-2.0
"""LanguageFilter with the bundled model, in a chain of rules. With fastText models: `rules/test_fasttext_rules.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.json_batches import batch_of, written
from thresher.core.planning.score_dependence import scoring_part
from thresher.errors import UsageError
from thresher.stages.text.judging.score_filter import ScoreFilter
from thresher.stages.text.language.language_filter import LanguageFilter
from thresher.stages.text.language.models import KERNELS
from thresher.stages.text.rules.words.word_counts import WordCountFilter

pytest.importorskip("py3langid", reason="needs the extra `langid`")
TEXTS = {
    "en": "This is an English sentence about the weather, which is fine.",
    "de": "Das ist ein deutscher Satz über das Wetter, und das ist schön.",
    "fi": "Tämä on suomenkielinen lause säästä, ja sää on kaunis tänään.",
    "none": "",
}
BATCH = [{"id": code, "text": text} for code, text in TEXTS.items()]


def test_documents_in_the_languages_are_kept_without_a_model_file() -> None:
    made = ScoreFilter(LanguageFilter(languages=["eng", "de"])).process(batch_of(BATCH))
    assert [record["id"] for record in written(made)] == ["en", "de"]
    (finnish, nothing) = made._dropped[0].scores or []
    assert finnish[0] < 0.01
    assert nothing == [0.0, ""]


def test_without_languages_a_certain_one_is_enough() -> None:
    stage = ScoreFilter(LanguageFilter(language_threshold=0.5), score_field="language")
    made = written(stage.process(batch_of(BATCH)))
    assert [record["language"][1] for record in made] == ["en", "de", "fi"]


def test_a_batch_gets_the_scores_that_each_text_gets_alone() -> None:
    rule = LanguageFilter(languages=["fi", "de"])
    made = written(
        ScoreFilter(LanguageFilter(languages=["fi", "de"]), score_field="s", invert=True).process(batch_of(BATCH))
    )
    kept = written(ScoreFilter(LanguageFilter(languages=["fi", "de"]), score_field="s").process(batch_of(BATCH)))
    for record in made + kept:
        assert record["s"] == rule.score_document(record["text"])
    assert sorted(record["id"] for record in made + kept) == sorted(TEXTS)


def test_it_judges_what_the_rules_before_it_left_and_names_itself_in_reports() -> None:
    chain = ScoreFilter([WordCountFilter(min_words=11), LanguageFilter(languages="en")])
    made = chain.process(batch_of(BATCH))
    assert [record["id"] for record in written(made)] == ["en"]
    assert [(dropped.rule, dropped.threshold) for dropped in made._dropped] == [
        ("WordCountFilter", {"min_words": 11, "max_words": 100000}),
        ("LanguageFilter", {"language_threshold": 0.65}),
    ]


def test_kernels_are_loaded_before_the_workers_start() -> None:
    assert set(KERNELS) <= set(ScoreFilter(LanguageFilter(languages="en")).preloads())


def test_a_subclass_with_its_own_score_is_asked_for_each_text() -> None:
    class Everything(LanguageFilter):
        def score_document(self, text: str) -> list[Any]:
            return [1.0, text[:2]]

    stage = ScoreFilter(Everything(languages="en"), score_field="s")
    assert [record["s"] for record in written(stage.process(batch_of(BATCH)))] == [[1.0, t[:2]] for t in TEXTS.values()]
    assert stage.preloads() == []


def test_another_threshold_can_be_tried_on_kept_scores() -> None:
    rule = LanguageFilter(languages="en")
    assert scoring_part(rule) == scoring_part(LanguageFilter(languages="en", language_threshold=0.9))
    assert scoring_part(rule) != scoring_part(LanguageFilter(languages="de"))


def test_a_language_that_the_model_lacks_is_refused_where_it_is_written() -> None:
    with pytest.raises(UsageError, match=r"LanguageFilter\.languages: the model does not know 'klingon'"):
        LanguageFilter(languages=["en", "klingon"])


def test_a_language_in_the_place_of_the_model_is_told_apart_from_a_missing_file() -> None:
    with pytest.raises(UsageError, match=r"model_path: there is no file 'de'; .*: languages=\['de'\]"):
        LanguageFilter("de")
