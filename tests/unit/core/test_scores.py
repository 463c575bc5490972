# SPDX-License-Identifier: Apache-2.0
"""What the scores of a rule depend on, and which stages score together."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from thresher.core.documents.batch import DocumentBatch
from thresher.core.scores import JudgingStage, score_columns, scoring_groups
from thresher.core.stage import ProcessingStage
from thresher.stages.text.judging.rule import DocumentFilter
from thresher.stages.text.judging.score_filter import Filter, Score, ScoreFilter
from thresher.stages.text.modifiers.line_remover import NewlineNormalizer
from thresher.stages.text.modify import Modify
from thresher.stages.text.rules.web.urls import UrlsFilter
from thresher.stages.text.rules.words.word_counts import MeanWordLengthFilter, WordCountFilter


class Share(DocumentFilter):
    """A rule with a threshold, and with a parameter that its scores depend on."""

    def __init__(self, at_least: float, letter: str = "a") -> None:
        self.at_least = at_least
        self._pattern = re.compile(letter)

    def score_document(self, text: str) -> float:
        return len(self._pattern.findall(text)) / max(1, len(text))

    def keep_document(self, score: float) -> bool:
        return score >= self.at_least


class Handing(Share):
    """Hands itself on while it scores, so that nothing can be told of what is looked at."""

    def score_document(self, text: str) -> float:
        return _score_with(self, text)


def _score_with(rule: Any, text: str) -> float:
    return float(len(text)) * float(rule.at_least)


class Deciding(Share):
    """Looks at its threshold by a way around."""

    def score_document(self, text: str) -> float:
        return float(self.keep_document(len(text)))


class Borrowing(Share):
    """Has a method that stands elsewhere."""

    score_document = _score_with


class Aside(Share):
    """Is given its method."""

    def __init__(self, at_least: float) -> None:
        super().__init__(at_least)
        self.score_document = lambda text: len(text) * at_least  # type: ignore[method-assign]  # as users do


class Opaque(DocumentFilter):
    """Holds something whose value cannot be told."""

    def __init__(self, function: Callable[[str], int]) -> None:
        self._function = function

    def score_document(self, text: str) -> int:
        return self._function(text)

    def keep_document(self, score: int) -> bool:
        return score > 0


class Judge(ScoreFilter):
    """A filter that does more than judge."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return super().process(task.replace("text", [text.upper() for text in task.values("text")]))


def depends_on(*stages: ProcessingStage[Any, Any]) -> str | None:
    """Of the last rule."""
    return score_columns(stages, "1.0")[-1].depends_on


def names(*stages: ProcessingStage[Any, Any]) -> list[str]:
    return [column.name for column in score_columns(stages, "1.0")]


def test_every_rule_has_a_column_named_like_its_drop_reason() -> None:
    chain = ScoreFilter([UrlsFilter(), WordCountFilter(), WordCountFilter()]).with_(name="chain")
    columns = ["chain/UrlsFilter", "chain/WordCountFilter", "chain/WordCountFilter-2", "Score/len"]
    assert names(chain, Score(len, "length")) == columns
    assert names(Filter(bool, "length"), Modify(NewlineNormalizer())) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (WordCountFilter(1, 2), WordCountFilter(3, 4)),
        (MeanWordLengthFilter(1, 2), MeanWordLengthFilter(3, 4)),
        (UrlsFilter(0.1), UrlsFilter(0.2)),
        (Share(0.1), Share(0.2)),
    ],
)
def test_a_threshold_is_what_only_keep_document_looks_at(one: DocumentFilter, other: DocumentFilter) -> None:
    assert depends_on(ScoreFilter(one)) == depends_on(ScoreFilter(other)) is not None
    assert depends_on(ScoreFilter(one)) == depends_on(ScoreFilter(other, invert=True))


def test_what_scoring_looks_at_counts() -> None:
    assert depends_on(ScoreFilter(Share(0.1, "a"))) != depends_on(ScoreFilter(Share(0.1, "b")))
    assert depends_on(ScoreFilter(Share(0.1), "text")) != depends_on(ScoreFilter(Share(0.1), "title"))
    assert depends_on(ScoreFilter(WordCountFilter())) != depends_on(ScoreFilter(UrlsFilter()))


@pytest.mark.parametrize("kind", [Handing, Deciding, Borrowing])
def test_a_rule_that_may_look_at_its_threshold_depends_on_all_it_holds(kind: type[Share]) -> None:
    assert depends_on(ScoreFilter(kind(0.1))) != depends_on(ScoreFilter(kind(0.2)))
    assert depends_on(ScoreFilter(kind(0.1))) == depends_on(ScoreFilter(kind(0.1))) is not None


def test_where_it_cannot_be_told_there_is_no_answer() -> None:
    limit = 3
    assert depends_on(ScoreFilter(Aside(0.1))) is None
    assert depends_on(ScoreFilter(Opaque(lambda text: len(text) - limit))) is None
    scored = ScoreFilter(Opaque(lambda text: len(text) - limit), score_field="x")
    assert depends_on(scored, ScoreFilter(WordCountFilter())) is None
    assert depends_on(ScoreFilter(Opaque(lambda text: limit)), ScoreFilter(WordCountFilter())) is not None


def test_stages_before_a_rule_count_as_far_as_they_change_records() -> None:
    rule = ScoreFilter(WordCountFilter())
    alone = depends_on(rule)
    assert depends_on(ScoreFilter(UrlsFilter(0.1)), rule) == alone
    assert depends_on(Filter(len, "text"), rule) == alone
    assert depends_on(Modify(NewlineNormalizer()), rule) != alone
    assert depends_on(Modify(str.lower), rule) != alone
    assert depends_on(ScoreFilter(UrlsFilter(0.1), score_field="text"), rule) != alone
    assert depends_on(Judge(UrlsFilter(0.1)), rule) != alone
    assert score_columns([rule], "1.1")[0].depends_on != alone


def test_neighbours_that_see_the_same_texts_score_together() -> None:
    words, urls = ScoreFilter(WordCountFilter()), ScoreFilter(UrlsFilter())
    noted = ScoreFilter(UrlsFilter(), score_field="title")
    titles = ScoreFilter(UrlsFilter(), text_field="title")
    assert scoring_groups([words, urls, words], [0, 1, 2]) == [[0, 1, 2]]
    assert scoring_groups([words, Modify(str.lower), urls, words], [0, 1, 2, 3]) == [[0], [2, 3]]
    assert scoring_groups([words, Filter(len, "text"), urls], [0, 1, 2]) == [[0], [2]]
    assert scoring_groups([noted, words, titles], [0, 1, 2]) == [[0, 1], [2]]
    assert scoring_groups([words, Judge(UrlsFilter()), urls], [0, 1, 2]) == [[0], [2]]


def test_a_stage_that_judges_says_so_only_where_it_is_certain() -> None:
    assert ScoreFilter(WordCountFilter()).only_judges
    assert Score(len, "n").only_judges
    assert Filter(len, "text").only_judges
    assert not Judge(WordCountFilter()).only_judges
    assert not JudgingStage[Any, Any]().only_judges
