# SPDX-License-Identifier: Apache-2.0
"""What the stages ask, what they write, and what they refuse before a run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.llm_server import Server, serving
from tests.unit.core.json_batches import batch_of, written
from thresher import (
    DocumentBatch,
    ExtractFields,
    GenerateText,
    JudgeText,
    LLMClient,
    Pipeline,
    ProcessingStage,
    RewriteText,
    TranslateText,
    WorkerMetadata,
)
from thresher.core.planning.fingerprint import fingerprint
from thresher.core.tally import context_of
from thresher.errors import PlanError, UsageError
from thresher.models.endpoint.budget import BudgetSpentError
from thresher.models.endpoint.request import Answer

NOWHERE = {"base_url": "http://127.0.0.1:9/v1", "model": "stand-in"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as one:
        yield one


def processed(stage: Any, records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The records that a stage gives, and the errors of those that it sets aside, by text."""
    try:
        made = stage.process(batch_of(records))
    finally:
        stage.teardown()
    failed = made.take_failed()
    errors = {
        json.loads(bytes(line)).get("text", ""): one.error
        for one in failed
        for line in (one.batch.json_lines() if one.batch is not None else [])
    }
    return written(made), errors


def test_text_is_generated_from_several_columns(server: Server) -> None:
    stage = GenerateText(
        server.endpoint(), "Greet.\n\nHello {name} of {town:3}", "greeting", system="You speak {language}."
    )
    assert stage.inputs()[1] == ["name", "town", "language"]
    made, _ = processed(stage, [{"name": "Ann", "town": "Oxford", "language": "English"}])
    assert made == [{"name": "Ann", "town": "Oxford", "language": "English", "greeting": "Hello Ann of Oxf"}]


def test_a_document_that_fails_for_good_is_set_aside_with_its_reason_and_the_others_are_not(server: Server) -> None:
    texts = ["good one", "[400] refused", "[500:1] passes", "[unfit] never", "[length] long", "good two"]
    stage = JudgeText(server.endpoint(), "{text}")
    made, errors = processed(stage, [{"text": text} for text in texts] + [{"text": None}])
    assert [record["text"] for record in made] == ["good one", "[500:1] passes", "good two"]
    assert all(record["judge_score"] == 0 and record["judge_reason"] for record in made)
    assert errors == {
        "[400] refused": "endpoint-400",
        "[unfit] never": "answer-invalid",
        "[length] long": "answer-cut",
        None: "field-missing",
    }


def test_the_report_has_requests_tokens_money_and_retries(server: Server) -> None:
    stage = GenerateText(server.endpoint(input_price=1, output_price=10), "{text}")
    processed(stage, [{"text": "two words"}, {"text": "two words"}, {"text": "[500:1] again"}])
    assert context_of(stage).noted.counts == {
        "requests": 2,
        "retries": 1,
        "answers from the cache": 1,
        "input tokens": 4,
        "output tokens": 4,
        "cost in millionths": 44,
    }


def test_a_score_is_within_its_limits_and_charted(server: Server) -> None:
    stage = JudgeText(server.endpoint(), min_score=1, max_score=3, score_field="s", reason_field="r")
    made, _ = processed(stage, [{"text": "word " * n} for n in (1, 30, 90)])
    assert [record["s"] for record in made] == [1.0, 2.0, 3.0]
    assert stage.schema is not None
    assert stage.schema["properties"]["score"] == {"type": "integer", "minimum": 1, "maximum": 3}


def test_a_text_is_rewritten_and_the_old_one_may_be_kept(server: Server) -> None:
    made, _ = processed(RewriteText(server.endpoint(), original_field="old"), [{"id": 1, "text": "  too   wide "}])
    assert made == [{"id": 1, "text": "too wide", "old": "  too   wide "}]


def test_a_text_is_translated_from_the_language_that_a_column_names(server: Server) -> None:
    stage = TranslateText(server.endpoint(), "English", source_language="{language}")
    assert stage.inputs()[1] == ["language", "text"]
    made, _ = processed(stage, [{"text": "Guten Tag", "language": "de"}])
    assert made[0]["translated_text"] == "Guten Tag"
    assert "from de into English" in server.answered()[-1]["prompt"]


def test_fields_become_columns_of_their_types(server: Server) -> None:
    fields = {
        "title": "string",
        "year": "integer?",
        "kind": {"enum": ["news", "other"]},
        "tags": "array",
        "ok": "boolean",
    }
    made, _ = processed(ExtractFields(server.endpoint(), fields, prefix="x_"), [{"text": "An old story"}])
    assert made[0]["x_title"] == "An old story"
    assert made[0] | {"x_kind": ""} == {
        "text": "An old story",
        "x_title": "An old story",
        "x_year": 0,
        "x_kind": "",
        "x_tags": ["An old story"],
        "x_ok": True,
    }


def test_several_tasks_are_asked_about_at_a_time_and_come_back_apart(server: Server) -> None:
    stage = GenerateText(server.endpoint(), "{text}")
    made = stage.process_batch([batch_of([{"text": f"{name} {n}"} for n in range(3)]) for name in ("left", "right")])
    stage.teardown()
    assert [[one["generated_text"] for one in task.to_pyarrow().to_pylist()] for task in made] == [
        ["left 0", "left 1", "left 2"],
        ["right 0", "right 1", "right 2"],
    ]


def test_documents_go_on_while_others_are_still_asked_about(server: Server) -> None:
    stage = GenerateText(server.endpoint(max_concurrency=70), "{text}")
    texts = [f"early {n}" for n in range(100)] + ["[slow] late"]
    (parts,) = stage.process_batch([batch_of([{"text": text} for text in texts])])
    first = next(parts)
    assert [record["generated_text"] for record in written(first)] == texts[:70]
    while not server.stats()["in_flight"]:  # the last one, which takes longer than a test may
        time.sleep(0.01)
    parts.close()
    stage.teardown()


def test_a_spent_budget_is_not_a_failure_of_documents(server: Server) -> None:
    stage = GenerateText(server.endpoint(), "{text}", max_total_tokens=10)
    with pytest.raises(BudgetSpentError, match="the budget of GenerateText is spent: 0 of max_total_tokens=10"):
        processed(stage, [{"text": "a"}])


def test_workers_of_a_stage_share_its_limits(tmp_path: Path) -> None:
    stage = GenerateText({**NOWHERE, "max_concurrency": 7, "requests_per_minute": 60}, "{text}")
    shares = []
    for rank in range(3):
        stage.setup(WorkerMetadata(rank=rank, num_workers=3, run_dir=str(tmp_path)))
        assert stage._client is not None
        shares.append((stage._client.endpoint.max_concurrency, stage._client.endpoint.requests_per_minute))
        stage.teardown()
    assert shares == [(3, 20), (2, 20), (2, 20)]
    assert (tmp_path / "stages" / "answers.sqlite").exists()


class Shout(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage of a user, with the client."""

    def __init__(self, endpoint: dict[str, Any]) -> None:
        self.endpoint = endpoint

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Make the client."""
        self.client = LLMClient(self.endpoint)

    def teardown(self) -> None:
        """Close it."""
        self.client.close()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Ask."""
        answers = self.client.ask([text.upper() for text in task.values("text")])
        return task.replace("loud", [one.text if isinstance(one, Answer) else None for one in answers])


def test_the_client_serves_stages_of_ones_own(server: Server) -> None:
    pipeline = Pipeline("loud", stages=[Shout(server.endpoint())])
    result = pipeline.run("serial", initial_tasks=["hello"], ledger=False, progress="none")
    assert result.to_arrow().to_pylist() == [{"text": "hello", "loud": "HELLO"}]


def test_usual_sampling_parameters_can_be_changed_and_left_out() -> None:
    assert GenerateText(NOWHERE, "{text}").sampling == {"temperature": 0, "max_tokens": 1024}
    assert GenerateText(NOWHERE, "{text}", sampling={"temperature": 1, "seed": 3}).sampling == {
        "temperature": 1,
        "max_tokens": 1024,
        "seed": 3,
    }
    other = GenerateText(NOWHERE, "{text}", sampling={"temperature": None, "max_completion_tokens": 9})
    assert other.sampling == {"max_completion_tokens": 9}


def test_what_may_change_between_attempts_is_not_in_the_fingerprint() -> None:
    before = GenerateText(NOWHERE, "{text}", max_total_tokens=5)
    moved = {"base_url": "http://127.0.0.1:10/v1", "model": "stand-in", "max_concurrency": 3, "timeout_s": 9}
    after = GenerateText(moved, "{text}", max_total_tokens=50, cache_path="elsewhere")
    assert fingerprint([before], "1") == fingerprint([after], "1")
    for other in (
        GenerateText({**NOWHERE, "model": "large"}, "{text}"),
        GenerateText(NOWHERE, "{text}!"),
        GenerateText(NOWHERE, "{text}", sampling={"temperature": 1}),
    ):
        assert fingerprint([before], "1") != fingerprint([other], "1")


def test_a_column_that_the_prompt_names_and_nobody_makes_is_found_before_the_run(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from thresher import ParquetReader

    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    stages = [ParquetReader(str(tmp_path), fields=["text"]), GenerateText(NOWHERE, "{text} {heading}")]
    with pytest.raises(PlanError, match="GenerateText needs the column 'heading', which no stage before it provides"):
        Pipeline("x", stages=stages).run(ledger=False, progress="none")


def test_a_key_that_is_not_set_is_found_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    stage = GenerateText({**NOWHERE, "api_key_env": "NO_SUCH_KEY"}, "{text}")
    (problem,) = stage.check_before_run()
    assert "the environment variable NO_SUCH_KEY is not set" in problem


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: GenerateText(NOWHERE, "no column"), "names no column"),
        (lambda: GenerateText(NOWHERE, "{text} {"), "not the name of a column"),
        (lambda: GenerateText(NOWHERE, "{text}", max_cost=5), "never reached without prices"),
        (lambda: GenerateText(NOWHERE, "{text}", max_total_tokens=-1), "not a whole number above 0"),
        (
            lambda: GenerateText({**NOWHERE, "models": "x"}, "{text}"),
            r"GenerateText\.endpoint\.models.*Did you mean 'model'",
        ),
        (lambda: JudgeText(NOWHERE, min_score=5, max_score=5), "is not below max_score"),
        (lambda: RewriteText(NOWHERE, original_field="text"), "is the column of the new text"),
        (lambda: TranslateText(NOWHERE, ""), "not the name of a language"),
        (lambda: ExtractFields(NOWHERE, {}), "give one or more"),
        (lambda: ExtractFields(NOWHERE, {"n": "int"}), "neither a type"),
        (lambda: ExtractFields(NOWHERE, {"n": {"type": "whole"}}), "not a valid JSON schema"),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(make: Any, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        make()
