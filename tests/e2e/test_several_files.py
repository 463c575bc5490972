# SPDX-License-Identifier: Apache-2.0
"""Whole runs of writers that make several files of a unit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.injected.several_files import WRITERS, written
from thresher import JsonlReader, LocalExecutor, Pipeline, SerialExecutor
from thresher.inspect.audit import audit_run
from thresher.ledger.stores.store import open_store
from thresher.stages.io.finished_files import count_records_in

LINES = [json.dumps({"n": n, "text": "word " * (n % 7)}).encode() for n in range(60)]


@pytest.mark.parametrize("executor", [pytest.param(SerialExecutor, marks=pytest.mark.slow), LocalExecutor])
@pytest.mark.parametrize("where", ["local", pytest.param("s3", marks=pytest.mark.s3)])
@pytest.mark.parametrize("kind", list(WRITERS))
def test_a_run_commits_resumes_and_is_audited(
    kind: str, where: str, executor: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b"".join(line + b"\n" for line in LINES))
    output, options = str(tmp_path / "out"), {}
    if where == "s3":
        output, options = f"s3://{request.getfixturevalue('bucket')}/out", request.getfixturevalue("s3_options")
    store = open_store(output, options)

    def run() -> Any:
        reader, writer = JsonlReader(str(tmp_path / "in"), blocksize="600B"), WRITERS[kind](output, "error", options)
        return Pipeline("several", stages=[reader, writer]).run(executor(), progress="none")

    def files() -> dict[str, bytes]:
        return {name: store.read(name) or b"" for name in store.sizes() if not name.startswith("_thresher")}

    def differences() -> list[str]:
        return audit_run(f"{output}/_thresher", options, count_records_in, lambda *_: None).differences

    result = run()
    before = files()
    assert (result.counts["written"], written(before)) == (60, sorted(LINES))
    assert len(result.output_paths) == len(before)
    assert differences() == []
    gone = sorted(before)[3]
    store.remove(gone)
    assert [text for text in differences() if gone in text]
    assert run().units_resumed == result.units_total - 1
    assert files() == before
    assert differences() == []
    stray = f"{gone.rsplit('/', 1)[0]}/stray.txt" if "/" in gone else "stray.txt"
    store.write(stray, b"?")
    assert differences() == [f"{stray} belongs to no run in this folder"]
