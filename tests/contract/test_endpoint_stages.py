# SPDX-License-Identifier: Apache-2.0
"""Stages that ask a model, on every executor: the same files, each request once, and a clear end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.llm_server import serving
from thresher import GenerateText, JsonlReader, JsonlWriter, JudgeText, Pipeline, RunResult
from thresher.errors import RunFailedError

ROWS = 60


def run(folder: Path, executor: Any, *stages: Any) -> RunResult:
    source = folder / "in"
    source.mkdir(exist_ok=True)
    for part in range(3):
        lines = (json.dumps({"n": n, "text": f"document {n // 2}{' [400]' * (n == 7)}"}) for n in range(part, ROWS, 3))
        (source / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    reader = JsonlReader(str(source), blocksize=500)
    pipeline = Pipeline("ask", stages=[reader, *stages, JsonlWriter(str(folder / "out"))])
    return pipeline.run(executor, progress="none", max_errors="100%")


def test_documents_get_their_answers_and_equal_ones_are_asked_about_once(executor: Any, tmp_path: Path) -> None:
    with serving(tmp_path, delay_s=0.01) as server:
        stages = GenerateText(server.endpoint(), "{text}"), JudgeText(server.endpoint())
        # In shared workers, so that several processes ask.
        result = run(tmp_path, executor, *(stage.with_(num_workers=None) for stage in stages))
        counted = Counter((one["prompt"].rpartition("\n\n")[2], "Judge" in one["prompt"]) for one in server.answered())
    records = [json.loads(line) for path in result.output_paths for line in Path(path).read_text().splitlines()]
    assert sorted(record["n"] for record in records) == [n for n in range(ROWS) if n != 7]
    assert all(record["generated_text"] == record["text"] and record["judge_score"] == 0 for record in records)
    assert result.counts["quarantined"] == 1
    assert counted == {(f"document {n}", judged): 1 for n in range(ROWS // 2) for judged in (False, True)}


def test_a_failure_that_no_document_has_caused_ends_the_run(executor: Any, tmp_path: Path) -> None:
    with serving(tmp_path, key="sk-wanted") as server, pytest.raises(RunFailedError, match="refuses requests"):
        run(tmp_path, executor, GenerateText(server.endpoint(), "{text}"))
