# SPDX-License-Identifier: Apache-2.0
"""A Bloom filter drops every later copy, in the order of the input, and few others: always the same."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.stages.dedup.runs import run_over, write_corpus, written
from thresher import BloomDeduplication, LocalExecutor
from thresher.cli.main import main
from thresher.errors import UsageError
from thresher.stages.dedup import bloom
from thresher.workflows import BloomDeduplicationWorkflow


def documents(seed: int, count: int = 400) -> list[dict[str, Any]]:
    random = Random(seed)
    return [{"n": n, "text": f"text {random.randrange(count)}"} for n in range(count)]


def firsts(given: list[dict[str, Any]]) -> list[int]:
    seen: dict[str, int] = {}
    for one in given:
        seen.setdefault(one["text"], one["n"])
    return sorted(seen.values())


@pytest.mark.parametrize("blocksize", ["64MB", 700])
def test_all_but_the_first_copy_go(tmp_path: Path, blocksize: int | str) -> None:
    given = documents(1)
    result = run_over(given, tmp_path, BloomDeduplication(1e-9), blocksize=blocksize)
    assert [one["n"] for one in written(result)] == firsts(given)
    assert result.drop_reasons == {"BloomDeduplication/duplicate": len(given) - len(firsts(given))}


def test_the_same_documents_are_lost_by_mistake_however_the_input_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bloom, "_PER_RANGE", 150)
    given = documents(2)
    found = []
    for number, blocksize in enumerate(("64MB", 900, 4_000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(
            [one["n"] for one in written(run_over(given, folder, BloomDeduplication(0.2), blocksize=blocksize))]
        )
    assert found[0] == found[1] == found[2]
    assert set(found[0]) < set(firsts(given)), "at this rate some are lost, and no copy stays"
    assert len(found[0]) > 0.75 * len(firsts(given))


@pytest.mark.parametrize("given", [[], [{"text": ""}], [{"text": "a"}, {"text": "b"}]])
def test_nothing_to_drop(tmp_path: Path, given: list[dict[str, Any]]) -> None:
    assert written(run_over(given, tmp_path, BloomDeduplication())) == given


def test_a_corpus_of_the_same_text(tmp_path: Path) -> None:
    given = [{"n": n, "text": "same"} for n in range(2_000)]
    assert written(run_over(given, tmp_path, BloomDeduplication(), blocksize=5_000)) == given[:1]


@pytest.mark.parametrize("rate", [0, 1e-12, 0.9, True, "0.1", float("nan")])
def test_the_rate_is_checked(rate: Any) -> None:
    with pytest.raises(UsageError, match=r"BloomDeduplication\.false_positive_rate"):
        BloomDeduplication(rate)


def test_workflow_and_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = documents(3)
    corpus = str(write_corpus(tmp_path / "in", given, files=3))
    workflow = BloomDeduplicationWorkflow(corpus, str(tmp_path / "a"), input_blocksize=2_000)
    run = workflow.run(LocalExecutor(workers=2), progress="none").run
    assert [one["n"] for one in written(run)] == firsts(given)
    command = ["dedup", "bloom", corpus, str(tmp_path / "b"), "false_positive_rate=0.001"]
    assert main([*command, "--executor", "serial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["written"] <= len(firsts(given))
    assert main(["audit", str(tmp_path / "b")]) == 0
