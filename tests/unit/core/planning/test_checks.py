# SPDX-License-Identifier: Apache-2.0
"""What is found before a run, and that all of it is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from thresher import (
    DocumentBatch,
    DocumentFilter,
    JsonlReader,
    JsonlWriter,
    Pipeline,
    ProcessingStage,
    Score,
    ScoreFilter,
    TokenCounter,
    UnigramLogProbFilter,
    UrlBlocklistFilter,
    WordCountFilter,
)
from thresher.errors import InputError, PlanError, RefusedError


class Careful(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, problems: list[str]) -> None:
        self.problems = problems

    def check_before_run(self) -> list[str]:
        return self.problems

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class Broken(Careful):
    def check_before_run(self) -> list[str]:
        raise KeyError("nothing here")


class WithModel(DocumentFilter):
    def check_before_run(self) -> list[str]:
        return ["the model is missing"]

    def score_document(self, text: str) -> float:
        return 1.0

    def keep_document(self, score: float) -> bool:
        return True


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "one two three"}\n')
    return tmp_path / "in"


def refused(pipeline: Pipeline) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        pipeline.run("serial", progress="none")
    return caught.value


def test_one_problem_is_told_as_it_is(data: Path) -> None:
    stages = [JsonlReader(str(data)), Careful(["no endpoint is given"]), JsonlWriter(str(data.parent / "out"))]
    error = refused(Pipeline("p", stages=stages))
    assert str(error) == "no endpoint is given"
    assert error.exit_code == 2
    assert not (data.parent / "out").exists()


def test_all_problems_of_a_pipeline_are_told_in_one_list(data: Path, tmp_path: Path) -> None:
    tokenizer = pytest.importorskip("tokenizers") and TokenCounter(str(tmp_path / "tokenizer.json"))
    stages = [
        JsonlReader(str(data), fields=["text"]),
        WordCountFilter(),
        Score(len, "length", text_field="body"),
        tokenizer,
        UrlBlocklistFilter(domains=[str(tmp_path / "domains"), str(tmp_path / "more")], url_field="text"),
        ScoreFilter([UnigramLogProbFilter(str(tmp_path / "words.csv")), WithModel()]),
        Broken([]),
        JsonlWriter(str(data / "out")),
    ]
    lines = str(refused(Pipeline("p", stages=stages))).splitlines()
    assert lines[0] == "8 problems:"
    told = "\n".join(lines)
    for part in (
        "needs the column 'body'",
        "TokenCounter.tokenizer: there is no file",
        "UrlBlocklistFilter.domains: there is no file",
        "UnigramLogProbFilter.frequency_file: there is no file",
        "the model is missing",
        "Broken.check_before_run() raised KeyError: 'nothing here'",
        "lies inside the input",
    ):
        assert part in told
    assert [line.split(".")[0].strip() for line in lines if line.startswith("  ") and ". " in line[:6]] == list(
        "12345678"
    )


def test_input_that_is_not_there_is_told_with_the_rest(tmp_path: Path) -> None:
    alone = Pipeline("p", stages=[JsonlReader(str(tmp_path / "none")), WordCountFilter()])
    assert isinstance(refused(alone), InputError)
    both = Pipeline("p", stages=[JsonlReader(str(tmp_path / "none")), WithModel()])
    assert "1. " in str(refused(both))
    assert "2. the model is missing" in str(refused(both))


def test_an_output_inside_the_input_is_refused_before_anything_is_read(data: Path) -> None:
    error = refused(Pipeline("p", stages=[JsonlReader(str(data)), JsonlWriter(str(data))]))
    assert isinstance(error, PlanError)
    assert "is the input itself" in str(error)
    assert [path.name for path in data.iterdir()] == ["a.jsonl"]
