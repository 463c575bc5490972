# SPDX-License-Identifier: Apache-2.0
"""The metrics of a run are the numbers of its report, on every executor, with drops, failures and retries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from thresher import DocumentBatch, JsonlReader, JsonlWriter, Pipeline, ProcessingStage, ScoreFilter, WordCountFilter
from thresher.observe.follow import FollowedRun

COUNTED = ("in_docs", "out_docs", "in_bytes", "out_bytes", "created", "merged", "dropped", "quarantined", "tasks")


class FailsOnOne(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails on one record, so that its batch is taken apart, and counts what it lets through."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        ids = task.to_pandas()["id"].tolist()
        if 77 in ids:
            raise ValueError("record 77 is corrupt")
        self.count("seen", len(ids))
        return task


def test_metrics_log_and_report_have_the_same_numbers(executor: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in range(3):
        lines = [json.dumps({"id": n, "text": "word " * (n % 20)}) for n in range(100 * part, 100 * part + 100)]
        (tmp_path / "in" / f"{part}.jsonl").write_text("\n".join([*lines, "broken"]) + "\n")
    stages = [
        JsonlReader(str(tmp_path / "in"), blocksize=4000),
        ScoreFilter(WordCountFilter(min_words=3)),
        FailsOnOne(),
        JsonlWriter(str(tmp_path / "out")),
    ]
    report = Pipeline("numbers", stages=stages).run(executor, progress="none", max_errors="100%").to_dict()
    run_dir = tmp_path / "out" / "_thresher"
    now = FollowedRun(run_dir / "events" / "001").read()
    assert now is not None
    assert (now.status, now.counts) == ("finished", report["counts"])
    assert now.counts["quarantined"] == 4
    saved = json.loads((run_dir / "metrics.json").read_text())
    assert saved["counts"] == report["counts"]
    for stage, told, kept in zip(now.stages, report["stages"], saved["stages"], strict=True):
        for key in COUNTED:
            assert getattr(stage, key) == told[key] == kept[key], (stage.name, key)
        assert (stage.retries, stage.user_counts) == (told["retries"], told["user_counts"]), stage.name
    reasons = {f"{s.name}/{reason}": n for s in now.stages for reason, n in s.drop_reasons.items()}
    assert reasons == report["drop_reasons"]
    failed = {f"{s.name}/{reason}": n for s in now.stages for reason, n in s.quarantine_reasons.items()}
    assert failed == report["quarantine_reasons"]
