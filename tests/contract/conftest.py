# SPDX-License-Identifier: Apache-2.0
"""The executors that the contract suite runs over, and the end of what it has started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.ray_rows import RAY_EXECUTORS, end_ray, need_ray, rows
from tests.memory_room import memory_beside_this_process
from thresher import LocalExecutor, Pipeline, ProcessingStage, Resources, RunResult, SerialExecutor
from thresher.core.stage import SinkStage, SourceStage


@pytest.fixture(scope="module", autouse=True)
def ray_ends_with_its_module() -> Iterator[None]:
    yield
    end_ray()


class EveryStageOnADevice(LocalExecutor):
    """Stages between reader and writer have workers of their own, each with a quarter of a declared accelerator."""

    def execute(self, pipeline: Pipeline, options: Any) -> RunResult:
        for place, stage in enumerate(pipeline.stages):
            if isinstance(stage, ProcessingStage) and not isinstance(stage, SourceStage | SinkStage):
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


@pytest.fixture(params=[*EXECUTORS, *rows()])
def executor(request: pytest.FixtureRequest) -> Any:
    if request.param in EXECUTORS:
        return EXECUTORS[request.param]()
    need_ray(request.param)
    return RAY_EXECUTORS[request.param]()
