# SPDX-License-Identifier: Apache-2.0
"""Options of the local executor, and the whole of it on small pipelines."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from tests.memory_room import memory_beside_this_process
from thresher.backends.local import LocalExecutor
from thresher.core.arguments.options import RunOptions
from thresher.core.pipeline import Pipeline
from thresher.core.resources import Resources, available_cpus
from thresher.core.stage import ProcessingStage
from thresher.core.task import Task
from thresher.errors import PlanError, RunFailedError, UsageError
from thresher.runtime.memory.usage import available_memory, children_of
from thresher.runtime.processes.accelerators import Accelerator
from thresher.scheduler.model import NodeSpec


class Repeat(ProcessingStage[Task, Task]):
    """Yields its task's data several times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.lock: object = None

    def process(self, task: Task) -> Iterator[Task]:
        for number in range(self.times):
            yield Task(data=(*task.data, number))


class Grow(ProcessingStage[Task, Task]):
    """Makes a task large."""

    def process(self, task: Task) -> Task:
        return Task(data=(task.data, bytes(200_000)))


class Shrink(ProcessingStage[Task, Task]):
    """And small again."""

    def process(self, task: Task) -> Task:
        return Task(data=(task.data[0], len(task.data[1])))


class Fail(ProcessingStage[Task, Task]):
    """Cannot be set up."""

    def setup(self, worker_metadata: object = None) -> None:
        raise RuntimeError("no such model")

    def process(self, task: Task) -> Task:
        return task


def results(executor: LocalExecutor, *stages: ProcessingStage[Task, Task], tasks: int = 4) -> list[object]:
    run = Pipeline("p", stages=stages).run(
        executor, initial_tasks=[Task(data=(n,)) for n in range(tasks)], ledger=False, progress="none"
    )
    return [task.data for task in run]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker": 2}, "unknown option 'worker'. Did you mean 'workers'?"),
        ({"workers": 0}, "workers: 0 is not a whole number of 1 or more"),
        ({"workers": True}, "workers: True is not"),
        ({"memory": "lots"}, "memory: 'lots' is not a size"),
        ({"memory": "1MB"}, "memory: '1MB' is less than"),
        ({"memory": "1000TB"}, "memory: '1000TB' is more than there is here"),
        ({"execution_mode": "stream"}, "Did you mean 'streaming'?"),
        ({"cpu_allocation_percentage": 95}, "cpu_allocation_percentage: 95 is not a share"),
        ({"logging_interval": 0}, "logging_interval: 0 is not a number of seconds"),
        ({"autoscale_interval_s": -1}, "autoscale_interval_s: -1 is not a number of seconds"),
        ({"max_workers_per_stage": 0}, "max_workers_per_stage: 0 is not a whole number of 1 or more"),
        ({"fusion": "no"}, "fusion: 'no' is neither True nor False"),
        ({"gpus": -1}, "gpus: -1 is neither a whole number of 0 or more nor a list"),
        ({"worker_max_tasks": 0}, "worker_max_tasks: 0 is not a whole number of 1 or more"),
        ({"worker_max_lifetime_m": 0}, "worker_max_lifetime_m: 0 is not a number of minutes above 0"),
        ({"worker_restart_interval_m": "1"}, "worker_restart_interval_m: '1' is not a number of minutes above 0"),
        ({"custom_resources": ["licence"]}, "custom_resources: ['licence'] is not a mapping of names to amounts"),
        ({"custom_resources": {"licence": -1}}, "custom_resources: licence: -1 is not a number of 0 or more"),
    ],
)
def test_wrong_options_are_refused_with_what_is_legal(options: dict[str, object], message: str) -> None:
    for executor in (lambda: LocalExecutor(**options), lambda: LocalExecutor(config=options)):
        with pytest.raises(UsageError) as refused:
            executor()
        assert message in str(refused.value)


def test_by_default_every_core_works_and_most_of_the_memory_may_be_used() -> None:
    limits = LocalExecutor().limits()
    assert limits.shared_workers == max(1, int(available_cpus() * 0.95 + 0.5))
    assert available_memory() // 2 < limits.memory_bytes < available_memory()


def test_a_share_of_the_cores_may_be_asked_for() -> None:
    assert LocalExecutor(cpu_allocation_percentage=0.01).limits().shared_workers == 1


@pytest.mark.parametrize("mode", ["streaming", "batch"])
@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_input_order_whatever_the_mode_and_the_number_of_workers(mode: str, workers: int) -> None:
    executor = LocalExecutor(workers=workers, execution_mode=mode)
    expected = [((n, k), 200_000) for n in range(4) for k in range(5)]
    assert results(executor, Repeat(5), Grow(), Shrink()) == expected


def test_unfused_stages_pass_large_tasks_through_shared_memory() -> None:
    assert results(LocalExecutor(workers=2, fusion=False), Grow(), Shrink(), tasks=20) == [
        ((n,), 200_000) for n in range(20)
    ]


def test_a_fan_out_far_beyond_the_memory_budget_runs_through() -> None:
    executor = LocalExecutor(workers=2, memory=memory_beside_this_process(400 * 10**6), fusion=False)
    assert len(results(executor, Repeat(400), Grow(), Shrink(), tasks=8)) == 3200


def test_an_executor_can_be_used_again() -> None:
    executor = LocalExecutor(workers=2)
    assert results(executor, Repeat(1)) == results(executor, Repeat(1)) == [(n, 0) for n in range(4)]


def test_a_pipeline_that_is_refused_leaves_no_process() -> None:
    before = children_of(os.getpid())
    stage = Repeat(1)
    stage.lock = threading.Lock()
    with pytest.raises(PlanError, match="cannot be sent to workers"):
        results(LocalExecutor(workers=1), stage)
    assert children_of(os.getpid()) == before


def test_a_setup_that_fails_fails_the_run_and_names_the_stage() -> None:
    with pytest.raises(RunFailedError, match=r"Fail\.setup failed 3 times"):
        results(LocalExecutor(workers=1), Fail())
    with pytest.raises(RunFailedError, match=r"Fail\.setup failed 3 times"):
        results(LocalExecutor(workers=1), Fail().with_(num_workers=1))


def test_what_the_executor_is_told_reaches_the_scheduler() -> None:
    executor = LocalExecutor(
        workers=3,
        memory="8GB",
        gpus=[{"memory_gb": 40}],
        custom_resources={"licence": 2},
        autoscale_interval_s=7,
        max_workers_per_stage=4,
        worker_max_lifetime_m=2,
        worker_restart_interval_m=0.5,
        worker_max_tasks=9,
    )
    model = Grow().with_(resources=Resources(cpus=2, gpu_memory_gb=10, memory_gb=0.2, custom={"licence": 1}))
    spec = executor.run_spec(executor.plan(Pipeline("p", stages=[model]), RunOptions(initial_tasks=(Task(),))))
    assert spec.nodes == (NodeSpec(cpus=3, gpus=(40 * 10**9,), memory_bytes=8 * 10**9, custom={"licence": 2}),)
    assert (spec.autoscale_interval_s, spec.max_workers_per_stage, spec.worker_max_tasks) == (7, 4, 9)
    assert (spec.worker_max_lifetime_s, spec.worker_restart_interval_s) == (120, 30)
    [op] = spec.ops
    assert (op.dedicated, op.dedicated_workers, op.cpus) == (True, None, 2)
    assert (op.gpus, op.gpu_memory_bytes, op.memory_bytes, op.custom) == (0, 10**10, 2 * 10**8, {"licence": 1})


def test_accelerators_are_looked_for_only_if_a_stage_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.backends.local.found_accelerators", lambda: (Accelerator(10**9, "0"),))
    executor, options = LocalExecutor(), RunOptions(initial_tasks=(Task(),))
    plan = executor.plan(Pipeline("p", stages=[Grow()]), options)
    assert executor.run_spec(plan).nodes[0].gpus == ()
    plan = executor.plan(Pipeline("p", stages=[Grow().with_(resources=Resources(gpus=1))]), options)
    assert executor.run_spec(plan).nodes[0].gpus == (10**9,)


def test_a_stage_gets_no_more_workers_than_the_executor_allows() -> None:
    pipeline = Pipeline("p", stages=[Grow(), Shrink().with_(num_workers=5)])
    options = RunOptions(initial_tasks=(Task(),))
    assert [op.workers for op in LocalExecutor(max_workers_per_stage=2).plan(pipeline, options).ops] == [None, 2]
    assert [op.workers for op in LocalExecutor().plan(pipeline, options).ops] == [None, 5]


def test_a_stage_with_workers_of_its_own_runs_in_them() -> None:
    class Where(ProcessingStage[Task, Task]):
        """Says who runs it."""

        def setup(self, worker_metadata: object = None) -> None:
            self.me = worker_metadata

        def process(self, task: Task) -> Task:
            return Task(data=(self.me.rank, self.me.num_workers, os.getpid()))

    found = results(LocalExecutor(workers=2), Repeat(2), Where().with_(num_workers=2), tasks=10)
    assert {(rank, total) for rank, total, _ in found} <= {(0, 2), (1, 2)}
    assert len({pid for _, _, pid in found}) <= 2
