# SPDX-License-Identifier: Apache-2.0
"""Traces of real runs reach a real OTLP/HTTP server, with the numbers of the report; a collector cannot fail a run."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import small_folder, thresher_in

pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")

RETRIES = """\
from pathlib import Path
from thresher import DocumentBatch, ProcessingStage


class FailsOnce(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "FailsOnce"

    def process(self, task):
        if not Path("failed").exists():
            Path("failed").touch()
            import os
            os._exit(7)
        return task
"""


class Collector:
    """An OTLP/HTTP server on loopback that decodes what it gets."""

    def __init__(self, status: int = 200) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                    collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(status if self.path == "/v1/traces" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def spans(self) -> list[Any]:
        return spans_of(self.requests)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def spans_of(requests: list[Any]) -> list[Any]:
    return [span for r in requests for of in r.resource_spans for scope in of.scope_spans for span in scope.spans]


def facts(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    yield server
    server.close()


def with_a_crash(folder: Path) -> list[str]:
    """Make a recipe whose worker crashes once; return the arguments that run it."""
    (folder / "stage.py").write_text(RETRIES)
    text = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(
        text.replace("  - JsonlWriter", "  - _target_: stage.FailsOnce\n  - JsonlWriter")
    )
    return ["run", "recipe.yaml", "--trust", "stage", "--workers", "1"]


def test_a_run_sends_spans_of_itself_its_stages_and_its_tasks(tmp_path: Path, collector: Collector) -> None:
    command = with_a_crash(small_folder(tmp_path))
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=data",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
    }
    ran = thresher_in(tmp_path, *command, "--otel", **variables)
    assert ran.returncode == 0, ran.stderr
    assert f"sent to {collector.url}/v1/traces" in ran.stderr
    report = json.loads((tmp_path / "output" / "_thresher" / "report.json").read_text())
    spans = collector.spans()
    (run,) = [span for span in spans if not span.parent_span_id]
    stages = [span for span in spans if span.parent_span_id == run.span_id]
    tasks = [span for span in spans if span.parent_span_id not in (b"", run.span_id)]
    assert facts(run)["thresher.run.status"] == "finished"
    assert {k: facts(run)[f"thresher.records.{k}"] for k in report["counts"]} == report["counts"]
    assert {span.name: facts(span)["thresher.documents.in"] for span in stages} == {
        stage["name"]: stage["in_docs"] for stage in report["stages"]
    }
    assert {task.parent_span_id for task in tasks} <= {stage.span_id for stage in stages}
    assert [(span.status.message, facts(span)["error.type"]) for span in tasks if span.status.code] == [
        ("worker-lost", "worker-lost")
    ]
    assert {span.trace_id for span in spans} == {run.trace_id}
    assert len({span.span_id for span in spans}) == len(spans)
    for span in spans:
        assert run.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= run.end_time_unix_nano
    assert {headers["x-team"] for headers in collector.headers} == {"data"}
    resource = {one.key: one.value.string_value for one in collector.requests[0].resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["deployment.environment"]) == ("thresher", "test")


def test_a_finished_run_is_exported_to_an_endpoint_and_to_a_file_alike(tmp_path: Path, collector: Collector) -> None:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    small_folder(tmp_path)
    assert thresher_in(tmp_path, "run", "recipe.yaml", "--quiet").returncode == 0
    sent = thresher_in(tmp_path, "trace", "output", "--endpoint", collector.url, "--json")
    assert sent.returncode == 0, sent.stderr
    written = thresher_in(tmp_path, "trace", "output", "--file", "trace.jsonl")
    assert written.returncode == 0, written.stderr
    requests = []
    for line in (tmp_path / "trace.jsonl").read_text().splitlines():
        request = json.loads(line)
        for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for key in {
                "traceId",
                "spanId",
                "parentSpanId",
            } & span.keys():  # hexadecimal in OTLP/JSON
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
        requests.append(ParseDict(request, ExportTraceServiceRequest()))
    told = {span.span_id: (span.name, span.start_time_unix_nano, facts(span)) for span in spans_of(requests)}
    assert told == {span.span_id: (span.name, span.start_time_unix_nano, facts(span)) for span in collector.spans()}
    answer = json.loads(sent.stdout)
    assert (answer["spans"], answer["to"]) == (len(told), f"{collector.url}/v1/traces")
    alone = thresher_in(tmp_path, "trace", "output", "--file", "few.jsonl", "--tasks", "0", "--json")
    assert json.loads(alone.stdout)["spans"] == 1 + 3


def test_a_run_finishes_without_a_collector_that_takes_its_trace(tmp_path: Path) -> None:
    refusing = Collector(status=400)
    try:
        ran = thresher_in(
            small_folder(tmp_path), "run", "recipe.yaml", "--otel", OTEL_EXPORTER_OTLP_ENDPOINT=refusing.url
        )
        assert ran.returncode == 0
        assert "warning: no trace:" in ran.stderr
        assert f"traces could not be sent to {refusing.url}/v1/traces" in ran.stderr
        told = thresher_in(tmp_path, "trace", "output", "--endpoint", refusing.url)
        assert told.returncode == 1
        assert "traces could not be sent to" in told.stderr
    finally:
        refusing.close()


def test_a_run_that_fails_sends_its_trace(tmp_path: Path, collector: Collector) -> None:
    small_folder(tmp_path)
    with (tmp_path / "input" / "part.jsonl").open("a") as file:
        file.write("broken\n")
    ran = thresher_in(
        tmp_path, "run", "recipe.yaml", "--max-errors", "0", "--otel", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url
    )
    assert ran.returncode == 3
    (run,) = [span for span in collector.spans() if not span.parent_span_id]
    assert run.status.code == 2
    assert facts(run)["thresher.records.quarantined"] == 1


def test_a_missing_package_names_the_extra_before_any_work(tmp_path: Path) -> None:
    small_folder(tmp_path)
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("raise ImportError('hidden', name='opentelemetry')\n")
    for command in (["run", "recipe.yaml", "--otel"], ["trace", "output"]):
        told = thresher_in(tmp_path, *command, PYTHONPATH=str(tmp_path))
        assert told.returncode == 2
        assert "pip install 'thresher[otel]'" in told.stderr
    assert not (tmp_path / "output").exists()
