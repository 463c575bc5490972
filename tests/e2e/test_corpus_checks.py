# SPDX-License-Identifier: Apache-2.0
"""Rules with lists, draws and indexes decide the same on every executor, with any number of workers and any units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thresher import (
    Decontamination,
    DocumentStatistics,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Pipeline,
    RunResult,
    SamplerFilter,
    SerialExecutor,
    UrlBlocklistFilter,
)
from thresher.kernels.build.cache import use_own_folder

QUESTION = "which of the following planets is the largest one in our own solar system today"


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_own_folder()  # so that kernels stay where they are compiled already
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with open(tmp_path / "input.jsonl", "w", encoding="utf-8") as file:
        for number in range(3000):
            text = f"document {number} {QUESTION if number % 50 == 0 else 'about nothing'} " + "word " * (number % 90)
            url = f"https://{'www.bad' if number % 7 == 0 else 'fine'}.example/{number}"
            file.write(json.dumps({"n": number, "text": text, "url": url}) + "\n")
    (tmp_path / "quiz.txt").write_text(QUESTION + "\n")
    (tmp_path / "domains").write_text("bad.example\n")
    return tmp_path


def run(corpus: Path, name: str, executor: Any, blocksize: str) -> tuple[RunResult, list[dict[str, Any]]]:
    stages = [
        JsonlReader(str(corpus / "input.jsonl"), blocksize=blocksize),
        UrlBlocklistFilter(domains=str(corpus / "domains")),
        Decontamination({"quiz": str(corpus / "quiz.txt")}),
        SamplerFilter(0.5, seed=3),
        DocumentStatistics(["words", "digit_share"]),
        JsonlWriter(str(corpus / name)),
    ]
    result = Pipeline(name, stages=stages).run(executor, progress="none")
    records = [json.loads(line) for path in result.output_paths for line in Path(path).read_text().splitlines()]
    return result, sorted(records, key=lambda record: record["n"])


def test_decisions_are_the_same_whoever_runs_them(corpus: Path) -> None:
    serial, expected = run(corpus, "serial", SerialExecutor(), "64MB")
    local, found = run(corpus, "local", LocalExecutor(workers=2), "40KB")
    assert found == expected
    assert local.drop_reasons == serial.drop_reasons
    assert local.drop_reasons["UrlBlocklistFilter/domain"] == len(range(0, 3000, 7))
    assert local.drop_reasons["Decontamination/quiz"] == len([n for n in range(0, 3000, 50) if n % 7])
    assert local.units_total > 5
    histograms = [stage["user_counts"] for stage in local.to_dict()["stages"] if stage["name"] == "DocumentStatistics"]
    assert histograms == [
        stage["user_counts"] for stage in serial.to_dict()["stages"] if stage["name"] == "DocumentStatistics"
    ]
    assert sum(n for name, n in histograms[0].items() if name.startswith("words")) == len(expected)
