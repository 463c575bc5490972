# SPDX-License-Identifier: Apache-2.0
"""What the executors with engines of their own take, refuse, and say where a package is missing."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from thresher import Pipeline, ProcessingStage, Resources, Task
from thresher.backends.experimental.ray_data import RayDataExecutor as SameExecutor
from thresher.backends.ray import RayExecutor
from thresher.backends.ray_actor_pool import RayActorPoolExecutor
from thresher.backends.ray_data import RayDataExecutor
from thresher.backends.xenna import XennaExecutor
from thresher.core.recipes.executors import make_executor
from thresher.errors import MissingPackageError, UnsupportedError, UsageError

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
ON_RAY = [RayActorPoolExecutor, RayDataExecutor]


class Same(ProcessingStage[Task, Task]):
    """Does nothing."""

    def process(self, task: Task) -> Task:
        return task


def test_ray_data_has_two_addresses() -> None:
    assert SameExecutor is RayDataExecutor


@needs_ray
@pytest.mark.parametrize("executor", ON_RAY)
def test_options_come_as_keywords_or_as_config(executor: Any) -> None:
    assert executor(workers=3).workers == executor(config={"workers": 3}).workers == 3
    assert executor(address="auto").address == "auto"
    with pytest.raises(UsageError, match=r"unknown option 'xworkers'\. Did you mean 'workers'\?"):
        executor(xworkers=3)
    with pytest.raises(UsageError, match=r"cpu_allocation_percentage: 95 is not a share"):
        executor(cpu_allocation_percentage=95)


@needs_ray
@pytest.mark.parametrize("executor", ON_RAY)
@pytest.mark.parametrize("option", ["memory", "gpus", "execution_mode", "autoscale_interval_s", "worker_max_tasks"])
def test_an_option_that_is_not_honoured_is_refused_with_the_reason(executor: Any, option: str) -> None:
    with pytest.raises(UnsupportedError, match=f"does not honour {option}"):
        executor(**{option: 1})
    with pytest.raises(UnsupportedError, match=f"does not honour '{option}'.*honoured by: .*local"):
        make_executor(executor.name, {option: 1})


@needs_ray
@pytest.mark.parametrize("executor", ON_RAY)
@pytest.mark.parametrize(
    ("setting", "stage"),
    [
        ("timeout_s", Same().with_(timeout_s=3.0)),
        ("runtime_env", Same().with_(runtime_env={"pip": ["emoji"]})),
        ("resources.gpu_memory_gb", Same().with_(resources=Resources(gpu_memory_gb=8))),
    ],
)
def test_a_stage_that_asks_for_too_much_is_refused_before_ray_starts(executor: Any, setting: str, stage: Any) -> None:
    with pytest.raises(UnsupportedError, match=rf"does not honour Same\.{setting}"):
        executor().plan(Pipeline("p", stages=[stage]))


@needs_ray
@pytest.mark.parametrize("executor", ON_RAY)
def test_a_plan_can_be_made_without_a_cluster(executor: Any) -> None:
    """Whether the accelerators are there is asked when the run connects."""
    plan = executor().plan(Pipeline("p", stages=[Same(), Same().with_(resources=Resources(gpus=2))]))
    assert len(plan.ops) == 2


@needs_ray
@pytest.mark.parametrize("executor", [*ON_RAY, RayExecutor])
def test_without_psutil_users_learn_which_extra_installs_it(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "psutil" else find_spec(name))
    with pytest.raises(MissingPackageError, match=r"needs the package psutil: pip install 'thresher\[ray\]'"):
        executor()


@needs_ray
@pytest.mark.skipif(importlib.util.find_spec("cosmos_xenna") is not None, reason="cosmos_xenna is installed")
def test_without_xenna_people_are_told_what_to_install() -> None:
    with pytest.raises(MissingPackageError, match=r"executor 'xenna' needs .*pip install 'thresher\[xenna\]'"):
        XennaExecutor()


@pytest.mark.skipif(importlib.util.find_spec("cosmos_xenna") is None, reason="cosmos_xenna is not installed")
def test_xenna_takes_its_own_keys() -> None:
    executor = XennaExecutor(
        execution_mode="batch",
        worker_max_lifetime_m=30,
        worker_restart_interval_m=2,
        max_workers_per_stage=3,
        ignore_failures=True,
    )
    assert executor.limits().worker_policy.max_workers_per_stage == 3
    with pytest.raises(UsageError, match="worker_max_lifetime_m"):
        XennaExecutor(worker_max_lifetime_m=0.5)
    with pytest.raises(UnsupportedError, match="Xenna schedules by cores and accelerators only"):
        executor.plan(Pipeline("p", stages=[Same().with_(resources=Resources(custom={"licence": 1}))]))
