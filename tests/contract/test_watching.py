# SPDX-License-Identifier: Apache-2.0
"""A run on a Ray cluster is watched at its driver: metrics and dashboard of the whole run are there."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.conftest import make_executor
from tests.contract.ray_rows import OWN_WARNINGS
from tests.prometheus_server import free_port
from thresher import DocumentBatch, JsonlReader, JsonlWriter, Pipeline, ProcessingStage, ScoreFilter, WordCountFilter


class WaitsUntil(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Lets records pass once a file is there."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def process(self, task: DocumentBatch) -> DocumentBatch:
        while not self.file.exists():
            time.sleep(0.05)
        return task


def fetched(url: str) -> str:
    """Return what a server says; nothing while there is none."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
    return ""


def until(look: Callable[[], Any]) -> Any:
    """Return what `look` finds as soon as it finds something."""
    end = time.monotonic() + 100
    while not (found := look()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


class Visitor(threading.Thread):
    """Opens the dashboard while the run waits for it, and fetches metrics until the end."""

    def __init__(self, log: io.StringIO, port: int, seen: Path) -> None:
        super().__init__(daemon=True)
        self._log, self._url, self._seen = log, f"http://127.0.0.1:{port}/metrics", seen
        self.page, self.metrics = "", ""
        self.state: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        try:
            lines = until(lambda: [x for x in self._log.getvalue().splitlines() if "dashboard: " in x])
            address = lines[0].rpartition("dashboard: ")[2]
            self.page = until(lambda: fetched(address))
            self.state = until(lambda: self._state(address))
        finally:
            self._seen.touch()
        until(self._all)

    def _state(self, address: str) -> dict[str, Any] | None:
        state: dict[str, Any] = json.loads(fetched(f"{address}api/state") or "{}")
        return state if state.get("status") == "running" else None

    def _all(self) -> bool:
        """Fetch the metrics; return True when those of the end were fetched and nobody serves any more."""
        text = fetched(self._url)
        self.metrics = text or self.metrics
        return not text and 'thresher_run_state{state="finished"} 1' in self.metrics


@pytest.mark.parametrize("name", [pytest.param("ray", marks=OWN_WARNINGS)])
def test_the_driver_of_a_run_on_ray_serves_its_metrics_and_its_dashboard(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = make_executor(name)
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"id": n, "text": "word " * (n % 20)}) + "\n" for n in range(200)) + "broken\n"
    )
    stages = [
        JsonlReader(str(tmp_path / "in.jsonl"), blocksize=4000),
        ScoreFilter(WordCountFilter(min_words=3)),
        WaitsUntil(tmp_path / "seen"),
        JsonlWriter(str(tmp_path / "out")),
    ]
    log, port = io.StringIO(), free_port()
    monkeypatch.setattr(sys, "stderr", log)
    visitor = Visitor(log, port, tmp_path / "seen")
    pipeline = Pipeline("watched", stages=stages)
    report = pipeline.run(
        executor, progress="lines", dashboard=True, metrics_port=port, metrics_linger_s=60, max_errors="100%"
    ).to_dict()
    visitor.join(60)
    assert "<html" in visitor.page
    assert visitor.state["status"] == "running"
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(visitor.metrics)
        for sample in family.samples
    }
    assert report["counts"]["quarantined"] == 1
    assert {kind: samples["thresher_records_total", kind] for kind in report["counts"]} == report["counts"]
    for stage in report["stages"]:
        assert samples["thresher_documents_total", stage["name"], "in"] == stage["in_docs"]
        assert samples["thresher_documents_total", stage["name"], "out"] == stage["out_docs"]
