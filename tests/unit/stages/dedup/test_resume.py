# SPDX-License-Identifier: Apache-2.0
"""A deduplication that ended early in any phase goes on there, and leaves nothing behind."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.dedup.runs import clusters, run_over, written
from thresher import FuzzyDeduplication, RunResult
from thresher.errors import OutputRefusedError, RunFailedError
from thresher.stages.dedup.clustering.clusters import ClusterFile
from thresher.stages.dedup.clustering.groups import EdgeFile
from thresher.stages.dedup.files.unit_file import UnitWriter
from thresher.stages.io.jsonl.writer import JsonlWriter

DOCUMENTS = [{"n": n, "text": f"the same words again and again, number {n % 7}" * 3} for n in range(60)]
ARGUMENTS: dict[str, Any] = {"threshold": 0.7, "verify": True}
PLACES = [
    (UnitWriter, "close", 3),
    (EdgeFile, "close", 1),
    (EdgeFile, "close", 3),
    (ClusterFile, "close", 1),
    (JsonlWriter, "open_writer", 1),
]


def run(folder: Path) -> RunResult:
    folder.mkdir(exist_ok=True)
    return run_over(DOCUMENTS, folder, FuzzyDeduplication(word_ngrams=2, **ARGUMENTS), blocksize=1000)


def full_at(monkeypatch: pytest.MonkeyPatch, cls: type[Any], name: str, call: int) -> None:
    """Let the disk be full at the given call of a method."""
    original, calls = getattr(cls, name), []

    def method(self: Any, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            getattr(self, "abort", lambda: None)()
            raise OSError(errno.ENOSPC, "no space left on device")
        return original(self, *arguments)

    monkeypatch.setattr(cls, name, method)


@pytest.mark.parametrize(("cls", "name", "call"), PLACES, ids=["keys", "edges", "verified", "clusters", "removal"])
def test_a_run_that_ended_in_a_phase_goes_on_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cls: type[Any], name: str, call: int
) -> None:
    calm = run(tmp_path / "calm")
    with monkeypatch.context() as fault:
        full_at(fault, cls, name, call)
        with pytest.raises(RunFailedError, match="full"):
            run(tmp_path / "disturbed")
    result = run(tmp_path / "disturbed")
    assert result.units_resumed > 0
    assert written(result) == written(calm)
    assert clusters(result) == clusters(calm)
    assert result.counts == calm.counts
    left = Path(result.run_dir or "").rglob("*")
    assert not [path for path in left if "phases" in path.parts or "scratch" in path.name]


def test_documents_that_are_gone_in_the_middle_of_a_run_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as fault:
        full_at(fault, ClusterFile, "close", 1)
        with pytest.raises(RunFailedError, match="full"):
            run(tmp_path)
    next(iter((tmp_path / "out" / "_thresher" / "phases" / "0").glob("*.phase"))).unlink()
    with pytest.raises(OutputRefusedError, match="missing"):
        run(tmp_path)
