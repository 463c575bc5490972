# SPDX-License-Identifier: Apache-2.0
"""Kernels are loaded before workers are forked, and only for a plan that has rules for them; so is Arrow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.kernels.compiled import compiled_and_tried
from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Pipeline,
    ProcessingStage,
    ScoreFilter,
    SerialExecutor,
    WordCountFilter,
)
from thresher.core.planning.plan import make_plan
from thresher.kernels.build import cache, compile
from thresher.kernels.build.cache import NATIVE_LOADING
from thresher.runtime.processes import preload


class Witness(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Counts batches that came when Numba was loaded."""

    name = "witness"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.count("with_numba", int("thresher.kernels.counts.positions" in sys.modules))
        self.count("batches")
        return task


class LineWitness(Witness):
    """Counts batches that came when Arrow was loaded, and needs none itself."""

    name = "witness"

    def needs_arrow(self) -> bool:
        return False

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.count("with_arrow", int("pyarrow" in sys.modules))
        self.count("with_numba", int("numba" in sys.modules))
        return task


def seen(tmp_path: Path, stages: list[Any], witness: Any = None) -> dict[str, int]:
    """What the witness, ahead of all other stages, has counted in worker processes."""
    (tmp_path / "in.jsonl").write_text('{"text": "one two"}\n')
    ends = [JsonlReader(str(tmp_path / "in.jsonl")), witness or Witness(), *stages, JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("seen", stages=ends).run(LocalExecutor(workers=1), progress="none")
    return dict(next(stage for stage in result.stages if stage["name"] == "witness")["user_counts"])


def test_a_plan_without_rules_for_kernels_loads_none(tmp_path: Path) -> None:
    assert seen(tmp_path, []) == {"with_numba": 0, "batches": 1}


def test_a_worker_has_its_kernels_before_its_first_batch(tmp_path: Path) -> None:
    assert seen(tmp_path, [ScoreFilter(WordCountFilter(1))]) == {"with_numba": 1, "batches": 1}


def test_where_lines_are_judged_by_kernels_workers_start_without_arrow_and_numba(tmp_path: Path) -> None:
    filtering = [ScoreFilter(WordCountFilter(1))]
    plan = make_plan(Pipeline("rules", stages=[JsonlReader("x"), *filtering]))
    preload.compile_kernels(plan, "none", and_the_rest=False)
    with compiled_and_tried():
        counted = seen(tmp_path, filtering, LineWitness())
        assert counted == {"with_arrow": 0, "with_numba": int(not NATIVE_LOADING.works())}


@pytest.mark.parametrize(
    "stages",
    [[], [ScoreFilter(WordCountFilter(1), score_field="words")], [Witness().with_(name="second")]],
    ids=["lines are checked by Arrow", "scores become a column", "a stage of a user"],
)
def test_where_columns_are_worked_on_arrow_is_loaded_before_workers_are_forked(
    tmp_path: Path, stages: list[Any]
) -> None:
    assert seen(tmp_path, stages, LineWitness())["with_arrow"] == 1


def test_what_is_told_early_is_imported_and_what_cannot_be_is_left_to_who_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []

    def note(name: str) -> None:
        imported.append(name)
        if name == "thresher.no_such_module":
            raise ModuleNotFoundError(name)

    monkeypatch.setattr(preload.importlib, "import_module", note)
    rules = [JsonlReader("x"), ScoreFilter(WordCountFilter())]
    needed = [
        "thresher.stages.text.judging.evaluate",
        "thresher.kernels.counts.positions",
        "thresher.kernels.json.text",
    ]
    assert preload.modules_for(rules) == needed
    preload.import_early(["thresher.no_such_module", *needed])
    assert imported == ["thresher.no_such_module", *needed]


def test_all_kernels_of_a_plan_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(cache, "is_ready", lambda module: False)
    monkeypatch.setattr(compile, "compile_missing", lambda modules, announcer: asked.append(list(modules)))
    stages = [JsonlReader("x"), ScoreFilter(WordCountFilter()), ScoreFilter(WordCountFilter(2))]
    preload.compile_kernels(make_plan(Pipeline("rules", stages=stages)), "none", and_the_rest=True)
    assert asked == [["counts.positions", "json.text"]]


def test_the_serial_executor_compiles_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(cache, "is_ready", lambda module: False)
    monkeypatch.setattr(compile, "compile_missing", lambda modules, announcer: asked.append(list(modules)))
    (tmp_path / "in.jsonl").write_text('{"text": "one two"}\n')
    stages = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        ScoreFilter(WordCountFilter(1)),
        JsonlWriter(str(tmp_path / "o")),
    ]
    Pipeline("serial", stages=stages).run(SerialExecutor(), progress="none")
    assert asked == [["counts.positions", "json.text"]]


@pytest.mark.parametrize("compiled", [True, False])
def test_the_rest_is_compiled_in_the_background_only_after_something_was_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], compiled: bool
) -> None:
    monkeypatch.setattr(cache, "is_ready", lambda module: False)
    monkeypatch.setattr(compile, "compile_missing", lambda modules, announcer: compiled)
    monkeypatch.setattr("thresher.kernels.build.background.start_in_background", lambda: True)
    plan = make_plan(Pipeline("rules", stages=[JsonlReader("x"), ScoreFilter(WordCountFilter())]))
    preload.compile_kernels(plan, "lines", and_the_rest=True)
    assert ("in the background" in capsys.readouterr().err) == compiled
