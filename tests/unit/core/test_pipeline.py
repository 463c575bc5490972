# SPDX-License-Identifier: Apache-2.0
"""Pipelines as a script or a notebook makes and runs them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thresher import (
    AddId,
    DocumentFilter,
    JsonlWriter,
    LocalExecutor,
    Modify,
    NewlineNormalizer,
    Pipeline,
    Score,
    ScoreFilter,
    SerialExecutor,
    WordCountFilter,
    processing_stage,
)
from thresher.core.task import Task
from thresher.errors import UsageError

DOCUMENTS = [{"text": "one two three", "n": 1}, {"text": "short", "n": 2}, {"text": "a\n\n\n\nb c"}]


class Calm(DocumentFilter):
    def score_document(self, text: str) -> float:
        return float(text.isupper())

    def keep_document(self, score: float) -> bool:
        return score == 0


@pytest.mark.parametrize("executor", ["serial", "local"])
def test_documents_in_memory_go_through_a_pipeline_without_a_writer(executor: str) -> None:
    pipeline = Pipeline("notes", stages=[WordCountFilter(min_words=2), NewlineNormalizer(), AddId("id")])
    result = pipeline.run(executor, initial_tasks=DOCUMENTS, ledger=False, progress="none")
    assert result.counts["read"] == 3
    assert result.drop_reasons == {"WordCountFilter/WordCountFilter": 1}
    assert result.to_arrow().to_pylist() == [
        {"text": "one two three", "n": 1, "id": "task-000000:0"},
        {"text": "a\n\nb c", "n": None, "id": "task-000000:2"},
    ]
    frame = result.to_pandas()
    assert list(frame.index) == [0, 1]
    assert list(frame["text"]) == ["one two three", "a\n\nb c"]
    assert frame["n"].isna().tolist() == [False, True]


def test_a_bare_filter_and_a_bare_modifier_are_wrapped_as_in_a_recipe() -> None:
    pipeline = Pipeline("p", stages=[Calm()]).add_stage(NewlineNormalizer())
    assert [type(stage) for stage in pipeline.stages] == [ScoreFilter, Modify]
    assert [stage.name for stage in pipeline.stages] == ["Calm", "NewlineNormalizer"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pipeline("p").add_stage(WordCountFilter), "WordCountFilter is a class; write WordCountFilter()"),
        (lambda: Pipeline("p", stages=[JsonlWriter]), "JsonlWriter is a class; write JsonlWriter()"),
        (lambda: Pipeline("p").add_stage("WordCountFilter"), "'WordCountFilter' is not a stage"),
        (lambda: Pipeline("p").add_stage(lambda task: task), "or made by @processing_stage"),
        (lambda: Pipeline("p", stages=WordCountFilter()), "a WordCountFilter is not a list of stages"),  # type: ignore[arg-type]  # the point
        (lambda: ScoreFilter(WordCountFilter), "filter_obj: WordCountFilter is a class; write WordCountFilter()"),  # type: ignore[arg-type]  # the point
        (lambda: Score([WordCountFilter], "n"), "score_fn: WordCountFilter is a class; write WordCountFilter()"),
        (lambda: Modify(NewlineNormalizer), "modifier_fn: NewlineNormalizer is a class"),  # type: ignore[arg-type]  # the point
    ],
)
def test_what_is_no_stage_is_refused_when_it_is_added(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ("locl", "'locl' is not an executor. Did you mean 'local'?"),
        (LocalExecutor, "LocalExecutor is a class; write LocalExecutor()"),
        (3, "3 is not an executor; give one such as LocalExecutor(), or its name"),
    ],
)
def test_what_is_no_executor_is_refused(executor: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Pipeline("p", stages=[Calm()]).run(executor, initial_tasks=["a"])


def test_a_result_in_files_says_where_they_are_in_place_of_a_table(tmp_path: Path) -> None:
    pipeline = Pipeline("p", stages=[Calm(), JsonlWriter(tmp_path / "out")])  # type: ignore[arg-type]  # a path is taken
    result = pipeline.run(SerialExecutor(), initial_tasks=["a"], progress="none")
    with pytest.raises(UsageError, match="written to files"):
        result.to_arrow()


def test_a_result_without_documents_is_an_empty_table_and_other_tasks_are_no_table() -> None:
    nothing = Pipeline("p", stages=[WordCountFilter()]).run("serial", initial_tasks=[], ledger=False, progress="none")
    assert nothing.to_arrow() == pa.table({})

    @processing_stage()
    def count(task: Task) -> Task:
        return Task(data=1)

    other = Pipeline("p", stages=[count]).run("serial", ledger=False, progress="none")
    with pytest.raises(UsageError, match="the result holds Task"):
        other.to_pandas()
