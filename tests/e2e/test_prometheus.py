# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes real runs: its numbers are those of the report, and every query of the dashboard works."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.prometheus_server import Prometheus, free_port, needs_prometheus, prometheus
from thresher.observe.follow import FollowedRun
from thresher.observe.prometheus.grafana import queries

pytestmark = needs_prometheus

STAGES = '''
import os
import time
from pathlib import Path

from thresher import DocumentBatch, ProcessingStage, Resources


class FailsOnce(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Crashes its worker at the first sight of one record, counts what it sees, and waits until it was seen itself."""

    name = "FailsOnce"

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def num_workers(self) -> int:
        return 1

    def process(self, task: DocumentBatch) -> DocumentBatch:
        while not Path("seen").exists():
            time.sleep(0.05)
        ids = task.to_pandas()["id"].tolist()
        if 995 in ids and not Path(self.marker).exists():
            Path(self.marker).touch()
            os._exit(7)
        self.count("seen", len(ids))
        return task
'''
RECIPE = """
name: watched
params: {marker: ???}
stages:
  - JsonlReader: {file_paths: input, blocksize: 20kB}
  - WordCountFilter: {min_words: 5}
  - _target_: flaky.FailsOnce
    marker: "${marker}"
  - MeanWordLengthFilter: {min_mean_word_length: 2}
  - JsonlWriter: {path: output}
"""
WITHOUT_DATA = ("thresher_gpu_", "thresher_workers_target", "thresher_autoscaler", "thresher_sent", "accelerators > 0")
"""What the queries without a result in this run have in common: no device, no autoscaled stage, no outlet."""
SOMETIMES = ("thresher_eta_seconds", "bottleneck", "parked_tasks", "retries_total")
"""These depend on the moment."""


def start(folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "thresher", "run", "recipe.yaml", "marker=crashed", "--trust", "flaky", *flags]
    return subprocess.Popen([*command, "--quiet"], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)})


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was stopped in the middle and resumed, with drops, quarantined records, a crash and a rerun."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "flaky.py").write_text(STAGES)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "input").mkdir()
    for part in range(4):
        lines = [json.dumps({"id": n, "text": "word " * (n % 50)}) for n in range(250 * part, 250 * (part + 1))]
        if part == 3:
            lines[100] = '{"id": 850, "text": '
        (folder / "input" / f"part{part}.jsonl").write_text("\n".join(lines) + "\n")
    for name in ("crashed", "seen"):
        (folder / name).touch()
    stopped = start(folder, "--workers", "1", "--max-errors", "0")  # ends at the broken line, in the last file
    assert stopped.wait(200) == 3
    for name in ("crashed", "seen"):
        (folder / name).unlink()
    ports = [free_port() for _ in range(2)]
    with prometheus(folder / "monitor", *(f"127.0.0.1:{port}" for port in ports)) as server:
        resumed = start(folder, "--workers", "2", "--metrics-port", str(ports[0]), "--metrics-linger", "60")
        server.wait_for('count_over_time(thresher_run_state{state="running"}[1h]) >= 3')
        (folder / "seen").touch()
        assert resumed.wait(200) == 0
        server.wait_for('last_over_time(thresher_run_state{state="finished"}[1h]) == 1')
        yield folder, server


def report_of(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "output" / "_thresher" / "report.json").read_text())
    return report


def test_prometheus_has_the_numbers_of_the_report(scraped: tuple[Path, Prometheus]) -> None:
    folder, server = scraped
    report = report_of(folder)
    assert report["units_resumed"] > 0
    assert report["counts"]["quarantined"] == 1
    at = server.last_moment('thresher_run_state{state="finished"}')
    records = server.values("thresher_records_total", at)
    assert {dict(labels)["kind"]: n for labels, n in records.items()} == report["counts"]
    documents, nbytes = server.values("thresher_documents_total", at), server.values("thresher_bytes_total", at)
    plain = {
        name: server.values(f"thresher_{name}_total", at) for name in ("quarantined", "tasks", "retries", "created")
    }
    for stage in report["stages"]:
        for direction in ("in", "out"):
            labels = (("direction", direction), ("stage", stage["name"]))
            assert documents[labels] == stage[f"{direction}_docs"], labels
            assert nbytes[labels] == stage[f"{direction}_bytes"], labels
        for name, values in plain.items():
            assert values[(("stage", stage["name"]),)] == stage[name], (stage["name"], name)
    dropped = server.values("thresher_dropped_total", at)
    assert {f"{dict(of)['stage']}/{dict(of)['reason']}": n for of, n in dropped.items()} == report["drop_reasons"]
    errors = server.values("thresher_errors_total", at)
    assert errors[(("reason", "worker-lost"), ("stage", "FailsOnce"))] == 1
    assert server.values("thresher_workers_lost_total", at)[(("stage", "FailsOnce"),)] == 1
    seen = next(stage for stage in report["stages"] if stage["name"] == "FailsOnce")
    assert server.values("thresher_user_value", at) == {(("name", "seen"), ("stage", "FailsOnce")): seen["in_docs"]}


def test_the_log_and_metrics_json_have_the_numbers_of_the_report_that_an_audit_verifies(
    scraped: tuple[Path, Prometheus],
) -> None:
    folder, _ = scraped
    report = report_of(folder)
    now = FollowedRun(folder / "output" / "_thresher" / "events" / "002").read()
    assert now is not None
    assert (now.status, now.counts, now.units_resumed) == ("finished", report["counts"], report["units_resumed"])
    saved = json.loads((folder / "output" / "_thresher" / "metrics.json").read_text())
    for stage, told, kept in zip(now.stages, report["stages"], saved["stages"], strict=True):
        for key in ("name", "in_docs", "out_docs", "in_bytes", "out_bytes", "dropped", "quarantined", "tasks"):
            assert getattr(stage, key) == told[key] == kept[key], (stage.name, key)
        assert stage.busy_s == pytest.approx(told["busy_s"], abs=1e-5)
    audit = [sys.executable, "-m", "thresher", "audit", "output"]
    assert subprocess.run(audit, cwd=folder, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("query", queries())
def test_every_query_of_the_dashboard_works(scraped: tuple[Path, Prometheus], query: str) -> None:
    _, server = scraped
    at = server.last_moment('thresher_run_state{state="finished"}')
    asked = query.replace("$instance", ".*").replace("$__rate_interval", "10m")
    found = server.values(asked, at)
    if not any(part in query for part in SOMETIMES):
        assert bool(found) != any(part in query for part in WITHOUT_DATA), asked


def test_the_rules_are_loaded_and_evaluated(scraped: tuple[Path, Prometheus]) -> None:
    _, server = scraped
    (group,) = server.get("/api/v1/rules")["groups"]
    assert {rule["name"] for rule in group["rules"]} >= {
        "ThresherStalled",
        "ThresherMemoryNearLimit",
        "ThresherErrorShare",
        "ThresherAcceleratorIdle",
    }
    assert {rule["lastError"] for rule in group["rules"] if "lastError" in rule} <= {""}


def test_outlets_and_phases_are_served_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "input.jsonl").write_text("".join(json.dumps({"text": "word " * (n % 20)}) + "\n" for n in range(200)))
    (tmp_path / "branches.yaml").write_text(
        "name: branches\n"
        "stages:\n"
        "  - JsonlReader: {file_paths: input.jsonl}\n"
        "  - WordCountFilter: {min_words: 10, drops_to: short}\n"
        "  - JsonlWriter: {path: long}\n"
        "outlets:\n"
        "  short:\n"
        "    - GlobalShuffle: {seed: 1}\n"
        "    - JsonlWriter: {path: short}\n"
    )
    port = free_port()
    command = [sys.executable, "-m", "thresher", "run", "branches.yaml", "--quiet", "--metrics-linger", "100"]
    run = subprocess.Popen([*command, "--metrics-port", str(port)], cwd=tmp_path)
    text, url = "", f"http://127.0.0.1:{port}/metrics"
    while run.poll() is None:  # the last answer may be cut by the end of the process
        with contextlib.suppress(OSError, http.client.HTTPException), urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
    assert run.returncode == 0
    assert 'thresher_run_state{state="finished"} 1\n' in text
    assert 'thresher_run_state{state="finished",outlet="short"} 1\n' in text
    assert 'thresher_sent_total{stage="WordCountFilter",to="short"} 100\n' in text
    assert 'thresher_records_total{kind="written"} 100\n' in text
    assert 'thresher_records_total{kind="written",outlet="short"} 100\n' in text
    assert 'thresher_phases{outlet="short"} 2\n' in text
    assert 'thresher_phase{outlet="short"} 2\n' in text
    report = json.loads((tmp_path / "short" / "_thresher" / "report.json").read_text())
    for stage in report["stages"]:
        assert (
            f'thresher_documents_total{{stage="{stage["name"]}",direction="in",outlet="short"}} {stage["in_docs"]}\n'
            in text
        )
