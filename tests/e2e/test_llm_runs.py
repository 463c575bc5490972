# SPDX-License-Identifier: Apache-2.0
"""Runs that ask a model: killed and resumed, ended by a budget and continued, without a server, with a key."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.commands import thresher
from tests.llm_server import Server, serving
from thresher import GenerateText, JsonlReader, JsonlWriter, LocalExecutor, Pipeline
from thresher.errors import RunFailedError

DOCUMENTS = 240
IN_FLIGHT = 12


def recipe(folder: Path, endpoint: dict[str, Any], **more: Any) -> str:
    """Write documents and a recipe that asks about each of them."""
    (folder / "in").mkdir(exist_ok=True)
    for part in range(4):
        lines = (json.dumps({"n": n, "text": f"document {n}"}) for n in range(part, DOCUMENTS, 4))
        (folder / "in" / f"{part}.jsonl").write_text("\n".join(lines))
    stage = {"endpoint": {**endpoint, "max_concurrency": IN_FLIGHT}, "prompt": "{text}", **more}
    stages = [
        {"JsonlReader": {"file_paths": str(folder / "in"), "files_per_partition": 1}},
        {"GenerateText": stage},
        {"JsonlWriter": {"path": str(folder / "out")}},
    ]
    (folder / "ask.yaml").write_text(json.dumps({"name": "ask", "stages": stages}))
    return str(folder / "ask.yaml")


def outputs(folder: Path) -> dict[int, str]:
    """What was generated for each document."""
    lines = [line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    records = [json.loads(line) for line in lines]
    assert len(records) == len({record["n"] for record in records})
    return {record["n"]: record["generated_text"] for record in records}


ALL = {n: f"document {n}" for n in range(DOCUMENTS)}


def stored(folder: Path) -> int:
    """How many answers the run has kept."""
    opened = sqlite3.connect(folder / "out" / "_thresher" / "stages" / "answers.sqlite")
    try:
        (n,) = opened.execute("SELECT COUNT(*) FROM answers").fetchone()
    finally:
        opened.close()
    return int(n)


def wait_for(condition: Any) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within a minute")


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a run with all its processes, and wait until none of them is left."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for one in family:
        os.kill(one.pid, signal.SIGKILL)
    process.wait()
    psutil.wait_procs(family, timeout=30)


def test_a_run_that_was_killed_asks_nothing_again_that_was_answered(tmp_path: Path) -> None:
    with serving(tmp_path, delay_s=0.1) as server:
        command = [sys.executable, "-m", "thresher", "run", recipe(tmp_path, server.endpoint()), "--quiet"]
        for target in (50, 130):
            process = subprocess.Popen(command)
            wait_for(lambda least=target: len(server.answered()) >= least)
            kill_all(process)
        wait_for(lambda: server.stats()["in_flight"] == 0)
        answered, kept = len(server.answered()), stored(tmp_path)
        assert 130 <= answered < DOCUMENTS
        assert answered - 2 * IN_FLIGHT <= kept
        assert subprocess.run(command, check=False).returncode == 0
        assert outputs(tmp_path) == ALL
        asked = Counter(one["prompt"] for one in server.answered())
        assert set(asked) == set(ALL.values())
        # Only what was in flight at a kill, answered by the server but not received, is asked again.
        assert sum(asked.values()) == DOCUMENTS + answered - kept


def test_a_spent_budget_ends_the_run_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        prices = {"input_price": 1_000_000, "output_price": 1_000_000}
        path = recipe(tmp_path, server.endpoint(**prices), sampling={"max_tokens": 4}, max_cost=500)
        ended = thresher(tmp_path, "none", "run", path, "--json")
        assert ended.returncode == 1
        assert "the budget of GenerateText is spent: " in ended.stderr
        assert "of max_cost=500" in ended.stderr
        assert "Raise the limit and run the same command again" in ended.stderr
        assert "quarantine" not in ended.stderr
        paid = 4 * len(server.answered())
        assert 400 < paid <= 500
        done = thresher(tmp_path, "none", "run", path, "GenerateText.max_cost=2000", "--json")
        assert done.returncode == 0, done.stderr
        assert outputs(tmp_path) == ALL
        assert Counter(one["prompt"] for one in server.answered()) == dict.fromkeys(ALL.values(), 1)
        assert json.loads(done.stdout)["counts"]["quarantined"] == 0


@pytest.mark.parametrize("executor", ["serial", "local"])
def test_a_budget_that_is_spent_in_the_middle_of_a_batch_ends_the_run_too(tmp_path: Path, executor: str) -> None:
    (tmp_path / "in").mkdir()
    lines = (json.dumps({"text": f"document {n} with some words"}) for n in range(300))
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines))
    with serving(tmp_path) as server:
        for tokens in (2000, 90_000):
            stage = GenerateText(server.endpoint(), "{text}", max_total_tokens=tokens)
            pipeline = Pipeline("ask", stages=[JsonlReader(str(tmp_path / "in")), stage])
            pipeline.add_stage(JsonlWriter(str(tmp_path / "out")))
            with pytest.raises(RunFailedError, match="the budget of") if tokens == 2000 else contextlib.nullcontext():
                assert pipeline.run(executor, progress="none").counts["written"] == 300
        assert len(server.answered()) == 300


def test_a_run_that_starts_over_pays_for_no_answer_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        path = recipe(tmp_path, server.endpoint(), max_total_tokens=200_000)
        assert thresher(tmp_path, "none", "run", path, "--quiet").returncode == 0
        again = thresher(tmp_path, "none", "run", path, "--fresh", "--json", "GenerateText.max_total_tokens=2")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["stages"][1]["user_counts"] == {"answers from the cache": DOCUMENTS}
        assert outputs(tmp_path) == ALL
        assert len(server.answered()) == DOCUMENTS
    assert thresher(tmp_path, "none", "audit", str(tmp_path / "out")).returncode == 0


def test_a_server_that_comes_back_lets_the_run_go_on(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        path = recipe(tmp_path, {**server.endpoint(), "max_retries": 1})
    ended = thresher(tmp_path, "none", "run", path)
    assert ended.returncode == 1
    assert "answers no request" in ended.stderr
    with serving(tmp_path) as server:
        moved = f"GenerateText.endpoint.base_url={server.url}"
        assert thresher(tmp_path, "none", "run", path, moved, "--quiet").returncode == 0
    assert outputs(tmp_path) == ALL


def test_documents_that_failed_are_asked_about_again_by_a_retry(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        path = recipe(tmp_path, {**server.endpoint(), "max_retries": 1}, prompt="{text}{fault}")
        faults = {3: " [500:2]", 5: " [length:1]"}
        lines = (json.dumps({"n": n, "text": f"document {n}", "fault": faults.get(n, "")}) for n in range(40))
        for file in (tmp_path / "in").iterdir():
            file.unlink()
        (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines))
        assert thresher(tmp_path, "none", "run", path, "--quiet").returncode == 0
        assert set(outputs(tmp_path)) == set(range(40)) - {3, 5}
        listed = thresher(tmp_path, "none", "quarantine", str(tmp_path / "out"))
        assert "endpoint-500" in listed.stdout
        assert "answer-cut" in listed.stdout
        before = len(server.answered())
        retried = thresher(tmp_path, "none", "retry", str(tmp_path / "out"))
        assert retried.returncode == 0, retried.stderr
        assert outputs(tmp_path) == {n: f"document {n}{faults.get(n, '')}" for n in range(40)}
        assert len(server.answered()) == before + 2


def test_one_process_keeps_the_limit_of_requests_in_flight(tmp_path: Path) -> None:
    with serving(tmp_path, delay_s=0.05) as server:
        assert thresher(tmp_path, "none", "run", recipe(tmp_path, server.endpoint()), "--quiet").returncode == 0
        assert server.stats()["most_in_flight"] <= IN_FLIGHT


def test_a_key_is_in_no_file_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-test-8472650193"
    monkeypatch.setenv("THRESHER_TEST_KEY", key)
    with serving(tmp_path, key=key) as server:
        path = recipe(tmp_path, server.endpoint(api_key_env="THRESHER_TEST_KEY"))
        done = thresher(tmp_path, "none", "run", path, "--json")
        assert done.returncode == 0, done.stderr
        monkeypatch.setenv("THRESHER_TEST_KEY", "sk-other-8472650193")
        refused = thresher(tmp_path, "none", "run", path, "--fresh", "GenerateText.prompt=Now {text}")
        assert refused.returncode == 1
        assert "refuses requests" in refused.stderr
    said = done.stdout + done.stderr + refused.stdout + refused.stderr
    files = b"".join(file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert "8472650193" not in said
    assert b"8472650193" not in files
    assert b"THRESHER_TEST_KEY" in files  # the name is


@pytest.mark.slow
def test_a_thousand_slow_requests_are_in_flight_within_bounded_memory(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = (json.dumps({"text": f"document {n} " + "word " * 200}) for n in range(4000))
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines))
    with serving(tmp_path, delay_s=1.0) as server:
        endpoint: Server | dict[str, Any] = server.endpoint(max_concurrency=1000)
        stage = GenerateText(endpoint, "{text}").with_(batch_size=4)
        stages = [JsonlReader(str(tmp_path / "in")), stage, JsonlWriter(str(tmp_path / "out"))]
        result = Pipeline("many", stages=stages).run(LocalExecutor(workers=1, memory="1GB"), progress="none")
        assert result.counts["written"] == 4000
        assert server.stats()["most_in_flight"] == 1000
    assert result.peak_memory_bytes < 600e6
