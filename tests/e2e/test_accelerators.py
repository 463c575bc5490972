# SPDX-License-Identifier: Apache-2.0
"""Whole runs with declared accelerators: who sees which device, what is refused, and how workers are replaced."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from thresher import (
    LocalExecutor,
    Pipeline,
    ProcessingStage,
    Resources,
    RunResult,
    SerialExecutor,
    Task,
    WorkerMetadata,
)
from thresher.cli.main import main
from thresher.errors import PlanError, RunFailedError


@dataclass(frozen=True)
class Seen:
    """What a worker saw of itself."""

    stage: str
    worker: str
    devices: tuple[int, ...]
    visible: str | None
    rank: int
    num_workers: int


class Look(ProcessingStage[Task, Task]):
    """Adds what its worker sees to the task, after a while, so that every worker gets some."""

    def __init__(self, seconds: float = 0.02) -> None:
        self.seconds = seconds
        self.me = WorkerMetadata()
        self.visible: str | None = None

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self.me = worker_metadata
        self.visible = os.environ.get("CUDA_VISIBLE_DEVICES")

    def process(self, task: Task) -> Task:
        time.sleep(self.seconds)  # the work
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == self.visible
        me = self.me
        seen = Seen(self.name, me.worker_id, me.devices, self.visible, me.rank, me.num_workers)
        return Task(data=[*(task.data or []), seen])


def looking(name: str, num_workers: int | None = None, **resources: Any) -> ProcessingStage[Any, Any]:
    stage = Look().with_(name=name, resources=Resources(**resources))
    return stage if num_workers is None else stage.with_(num_workers=num_workers)


def run(stages: list[ProcessingStage[Any, Any]], executor: Any, tasks: int = 40) -> RunResult:
    initial = [Task(data=[]) for _ in range(tasks)]
    return Pipeline("p", stages=stages).run(executor, initial_tasks=initial, ledger=False, progress="none")


def seen_by(result: RunResult, stage: str) -> list[Seen]:
    return [seen for task in result for seen in task.data if seen.stage == stage]


# -- who sees what ----------------------------------------------------------------------------------------------------


def test_four_quarters_share_one_device_and_a_cpu_worker_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")  # what the driver sees is not what its workers see
    stages = [looking("cpu"), looking("quarter", num_workers=4, gpus=0.25)]
    result = run(stages, LocalExecutor(workers=1, gpus=1))
    quarters = seen_by(result, "quarter")
    assert len(quarters) == 40
    assert {(seen.devices, seen.visible) for seen in quarters} == {((0,), "0")}
    assert {(seen.rank, seen.num_workers) for seen in quarters} == {(rank, 4) for rank in range(4)}
    assert len({seen.worker for seen in quarters}) == 4
    assert {(seen.devices, seen.visible) for seen in seen_by(result, "cpu")} == {((), "")}


def test_whole_devices_belong_to_one_worker_beside_shared_ones() -> None:
    stages = [looking("half", num_workers=2, gpus=0.5), looking("whole", num_workers=2, gpus=1)]
    result = run(stages, LocalExecutor(workers=1, gpus=3))
    halves, wholes = seen_by(result, "half"), seen_by(result, "whole")
    assert len({seen.visible for seen in halves}) == 1, "two halves fit into one device, so that two stay whole"
    owners = {seen.visible: seen.worker for seen in wholes}
    assert len(owners) == 2
    assert {seen.worker for seen in wholes} == set(owners.values()), "each device has one owner"
    assert not {seen.visible for seen in halves} & set(owners)


def test_a_worker_may_have_several_devices() -> None:
    result = run([looking("pair", gpus=2)], LocalExecutor(workers=1, gpus=2), tasks=4)
    assert {(seen.devices, seen.visible) for seen in seen_by(result, "pair")} == {((0, 1), "0,1")}


def test_memory_of_a_device_is_what_the_device_has() -> None:
    stages = [looking("large", num_workers=2, gpu_memory_gb=30), looking("small", num_workers=1, gpu_memory_gb=10)]
    result = run(stages, LocalExecutor(workers=1, gpus=[{"memory_gb": 24}, {"memory_gb": 80}]))
    assert {seen.visible for seen in seen_by(result, "large")} == {"1"}
    assert len(seen_by(result, "small")) == 40


def test_the_serial_executor_gives_declared_devices_to_its_one_worker() -> None:
    result = run([looking("model", gpus=1)], SerialExecutor(gpus=2), tasks=3)
    assert [seen.devices for seen in seen_by(result, "model")] == [(0,)] * 3


def test_a_pipeline_for_accelerators_can_be_debugged_where_there_are_none() -> None:
    result = run([looking("model", gpus=8)], SerialExecutor(), tasks=3)
    assert [seen.devices for seen in seen_by(result, "model")] == [()] * 3


# -- what can never fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "options", "message"),
    [
        ({"gpus": 2}, {"gpus": 1}, "needs gpus=2, the largest node has 1"),
        ({"gpus": 0.5}, {"gpus": 0}, "needs gpus=0.5, the largest node has 0"),
        ({"gpu_memory_gb": 40}, {"gpus": 1}, "needs gpu_memory_gb=40, the largest device has 24"),
        ({"gpu_memory_gb": 50}, {"gpus": [{"memory_gb": 40}]}, "needs gpu_memory_gb=50, the largest device has 40"),
        ({"memory_gb": 5}, {"memory": "1GB"}, "needs memory_gb=5, the largest node has 1"),
        ({"custom": {"licence": 1}}, {}, "needs licence=1, the largest node has 0"),
    ],
)
def test_a_stage_that_can_never_fit_is_refused_with_what_there_is(
    resources: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError) as refused:
        run([looking("Model", **resources)], LocalExecutor(workers=1, **options), tasks=1)
    assert f"Model {message}" in str(refused.value)
    assert refused.value.exit_code == 2


RECIPE = """
name: model
params: {gpus: 2}
stages:
  - JsonlReader: {file_paths: data}
  - WordCountFilter: {min_words: 1, resources: {gpus: "${gpus}"}}
  - JsonlWriter: {path: out}
"""


def test_the_command_line_declares_accelerators_and_refuses_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"text": "some words"}\n')
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    assert main(["run", "recipe.yaml", "--gpus", "1", "--quiet"]) == 2
    assert "needs gpus=2, the largest node has 1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(["run", "recipe.yaml", "--gpus", "2", "--workers", "1", "--quiet"]) == 0
    assert main(["plan", "recipe.yaml", "gpus=0.5", "--gpus", "1"]) == 0
    assert "workers of its own, as many as it needs: " in capsys.readouterr().out


def test_stages_that_fit_alone_but_not_together_are_refused() -> None:
    stages = [looking("A", gpus=1), looking("B", gpus=1)]
    with pytest.raises(PlanError, match="room for"):
        run(stages, LocalExecutor(workers=1, gpus=1), tasks=1)


def test_named_resources_let_as_many_workers_in_as_there_is_room_for() -> None:
    stages = [looking("licensed", custom={"licence": 1})]
    result = run(stages, LocalExecutor(workers=1, custom_resources={"licence": 2}))
    assert len({seen.worker for seen in seen_by(result, "licensed")}) <= 2


# -- workers of their own ---------------------------------------------------------------------------------------------


class Costly(Look):
    """Says that its setup is expensive."""

    expensive_setup = True


def test_an_expensive_setup_happens_in_workers_of_its_own() -> None:
    result = run([looking("cpu"), Costly()], LocalExecutor(workers=2))
    own, shared = {seen.worker for seen in seen_by(result, "Costly")}, {s.worker for s in seen_by(result, "cpu")}
    assert own
    assert not own & shared


class Broken(Look):
    """Cannot be set up."""

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        raise RuntimeError("no such model")


def test_a_setup_that_fails_is_tried_again_and_then_told_with_its_traceback() -> None:
    with pytest.raises(RunFailedError, match=r"(?s)Broken\.setup failed 3 times.*RuntimeError: no such model"):
        run([Broken().with_(resources=Resources(gpus=1))], LocalExecutor(workers=1, gpus=1), tasks=2)


class Leak(ProcessingStage[Task, Task]):
    """Keeps some memory with every task, and notes who began and who ended."""

    def __init__(self, folder: str, leaked_bytes: int) -> None:
        self.folder = folder
        self.leaked_bytes = leaked_bytes

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self.worker = worker_metadata.worker_id
        self.leaked: list[bytes] = []
        self._note("begun")

    def process(self, task: Task) -> Task:
        self.leaked.append(os.urandom(1024) * (self.leaked_bytes // 1024))
        time.sleep(0.01)  # the work
        return Task(data=[*(task.data or []), self.worker])

    def teardown(self) -> None:
        self._note("ended")

    def _note(self, what: str) -> None:
        with (Path(self.folder) / what).open("a") as file:
            file.write(f"{self.worker}\n")


def noted(folder: Path, what: str) -> list[str]:
    return sorted((folder / what).read_text().split())


@pytest.mark.parametrize("resources", [Resources(gpus=1), Resources(memory_gb=0.1), Resources()])
def test_workers_are_replaced_after_so_many_tasks_and_nothing_is_lost_or_repeated(
    resources: Resources, tmp_path: Path
) -> None:
    stage = Leak(str(tmp_path), 10_000).with_(resources=resources)
    result = run([stage], LocalExecutor(workers=1, gpus=1, worker_max_tasks=10), tasks=60)
    by_worker = Counter(worker for task in result for worker in task.data)
    assert result.counts["written"] == 60
    assert sum(by_worker.values()) == 60, "each task was worked on once"
    assert len(by_worker) >= 3, "several workers, one after the other"
    assert noted(tmp_path, "begun") == noted(tmp_path, "ended"), "every worker that was set up was torn down"


def test_workers_are_replaced_when_they_are_old(tmp_path: Path) -> None:
    stage = Leak(str(tmp_path), 1000).with_(num_workers=1)
    result = run([stage], LocalExecutor(workers=1, worker_max_lifetime_m=1 / 60), tasks=400)
    by_worker = Counter(worker for task in result for worker in task.data)
    assert sum(by_worker.values()) == 400
    assert len(by_worker) >= 2
    assert noted(tmp_path, "begun") == noted(tmp_path, "ended")
