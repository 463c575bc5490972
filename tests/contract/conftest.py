# SPDX-License-Identifier: Apache-2.0
"""The executors that the contract suite runs over, and the end of what it has started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.ray_rows import RAY_EXECUTORS, SLOW, end_ray, need_ray, rows
from tests.memory_room import memory_beside_this_process
from thresher import LocalExecutor, Pipeline, ProcessingStage, Resources, RunResult, SerialExecutor
from thresher.core.stage import OrderedStage, SinkStage, SourceStage


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End Ray with the last test of the suite: all share one."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        end_ray()


class EveryStageOnADevice(LocalExecutor):
    """Stages between reader and writer have workers of their own, each with a quarter of a declared accelerator.

    Stages that need the tasks of a unit in order run in the worker that writes, and cannot have others.
    """

    def execute(self, pipeline: Pipeline, options: Any) -> RunResult:
        for place, stage in enumerate(pipeline.stages):
            if isinstance(stage, ProcessingStage) and not isinstance(stage, SourceStage | SinkStage | OrderedStage):
                pipeline.stages[place] = stage.with_(resources=Resources(gpus=0.25))
        return super().execute(pipeline, options)


MakeExecutor = Callable[[], Any]
EXECUTORS: dict[str, MakeExecutor] = {
    "serial": SerialExecutor,
    "serial-batch": lambda: SerialExecutor(execution_mode="batch"),
    "serial-unfused": lambda: SerialExecutor(fusion=False),
    "local-1": lambda: LocalExecutor(workers=1),
    "local-2": lambda: LocalExecutor(workers=2),
    "local-3-small": lambda: LocalExecutor(workers=3, memory=memory_beside_this_process(600 * 10**6)),
    "local-batch": lambda: LocalExecutor(workers=2, execution_mode="batch"),
    "local-unfused": lambda: LocalExecutor(workers=2, fusion=False),
    "local-devices": lambda: EveryStageOnADevice(workers=1, gpus=2),
}


def make_executor(name: str) -> Any:
    """Return a new executor; start Ray first where it needs one."""
    if name in EXECUTORS:
        return EXECUTORS[name]()
    need_ray(name)
    return RAY_EXECUTORS[name]()


@pytest.fixture(params=[*EXECUTORS, *rows(SLOW)])
def every_executor(request: pytest.FixtureRequest) -> Any:
    """Give each executor and each variant of one: for what another path through the engine could break."""
    return make_executor(request.param)


def only(*names: str) -> list[Any]:
    """Return all rows, of which `make test` runs only the named ones."""
    local = [pytest.param(name, marks=[] if name in names else [pytest.mark.slow]) for name in EXECUTORS]
    return [*local, *rows([name for name in RAY_EXECUTORS if name not in names])]


@pytest.fixture(params=only("serial", "local-2", "ray"))
def executor(request: pytest.FixtureRequest) -> Any:
    """Give one executor of each kind; `make test-all` gives every one."""
    return make_executor(request.param)
