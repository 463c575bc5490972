# SPDX-License-Identifier: Apache-2.0
"""The scenarios of the simulator with real processes: random pipelines on declared accelerators, with failures.

Every record arrives once and in order, and no device is ever given to more workers than fit on it.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

from thresher import LocalExecutor, Pipeline, ProcessingStage, Resources, Task, WorkerMetadata
from thresher.errors import PlanError


@dataclass(frozen=True)
class Shape:
    """One stage of a scenario."""

    gpus: float = 0.0
    num_workers: int | None = None
    batch_size: int = 1
    cost_s: float = 0.0
    setup_s: float = 0.0
    fan_out: int = 1
    kills: bool = False
    """The first worker that gets a task whose number is divisible by seven dies of it, once."""
    raises: bool = False
    """Its first call of all raises."""


@dataclass(frozen=True)
class Scenario:
    """A pipeline, and what it runs on."""

    stages: tuple[Shape, ...]
    devices: int
    tasks: int
    execution_mode: str = "streaming"
    worker_max_tasks: int | None = None


class Worked(ProcessingStage[Task, Task]):
    """Does what a shape says and notes when its worker had which devices."""

    def __init__(self, shape: Shape, log: str) -> None:
        self.shape = shape
        self.log = log
        self.me = WorkerMetadata()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self.me = worker_metadata
        self.note("begins")
        time.sleep(self.shape.setup_s)

    def process_batch(self, tasks: list[Task]) -> list[Any]:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, self.me.devices))
        time.sleep(self.shape.cost_s)
        if self.shape.kills and any(sum(task.data) % 7 == 0 for task in tasks) and self.first("kill"):
            self.note("ends")
            os.kill(os.getpid(), signal.SIGKILL)
        if self.shape.raises and self.first("raise"):
            raise ValueError("once")
        return [[Task(data=(*task.data, child)) for child in range(self.shape.fan_out)] for task in tasks]

    def teardown(self) -> None:
        self.note("ends")

    def first(self, what: str) -> bool:
        """Whether nobody has done this before."""
        try:
            os.close(os.open(f"{self.log}-{self.name}-{what}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def note(self, what: str) -> None:
        line = json.dumps([time.monotonic(), what, self.name, self.me.worker_id, list(self.me.devices)])
        with open(self.log, "a", encoding="ascii") as file:
            file.write(line + "\n")


def stages_of(scenario: Scenario, log: str) -> list[ProcessingStage[Any, Any]]:
    made: list[ProcessingStage[Any, Any]] = []
    for number, shape in enumerate(scenario.stages):
        stage = Worked(shape, log).with_(name=f"s{number}", batch_size=shape.batch_size)
        stage = stage.with_(resources=Resources(cpus=0.5, gpus=shape.gpus))
        made.append(stage if shape.num_workers is None else stage.with_(num_workers=shape.num_workers))
    return made


def expected(scenario: Scenario) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [(number,) for number in range(scenario.tasks)]
    for shape in scenario.stages:
        found = [(*one, child) for one in found for child in range(shape.fan_out)]
    return found


def over_commitments(scenario: Scenario, log: Path) -> list[str]:
    """Moments at which a device had more workers than fit on it."""
    wrong = []
    load: dict[int, float] = defaultdict(float)
    for _, what, stage, _, devices in sorted(json.loads(line) for line in log.read_text().splitlines()):
        gpus = scenario.stages[int(stage[1:])].gpus
        for device in devices:
            load[device] += min(gpus, 1.0) if what == "begins" else -min(gpus, 1.0)
            if load[device] > 1.0001:
                wrong.append(f"{stage} {what} on device {device}: {load[device]:.2f} of it are given away")
    return wrong


shapes = st.builds(
    Shape,
    gpus=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]),
    num_workers=st.sampled_from([None, None, 1, 2]),
    batch_size=st.sampled_from([1, 1, 3]),
    cost_s=st.sampled_from([0.0, 0.002, 0.01]),
    setup_s=st.sampled_from([0.0, 0.2]),
    fan_out=st.sampled_from([1, 1, 1, 0, 4]),
    kills=st.booleans(),
    raises=st.booleans(),
)
scenarios = st.builds(
    Scenario,
    stages=st.lists(shapes, min_size=1, max_size=4).map(tuple),
    devices=st.integers(1, 4),
    tasks=st.integers(1, 60),
    execution_mode=st.sampled_from(["streaming", "streaming", "streaming", "batch"]),
    worker_max_tasks=st.sampled_from([None, None, 10]),
)
QUARTERS_AND_A_WHOLE = Scenario(
    (Shape(0.25, cost_s=0.01), Shape(1.0, kills=True, cost_s=0.01), Shape(raises=True)), devices=2, tasks=60
)
RECYCLED = Scenario((Shape(0.5, 2, fan_out=4), Shape(1.0, setup_s=0.2)), devices=2, tasks=40, worker_max_tasks=10)

TRIED_AGAIN_AND_WAITING_FOR_ROOM = Scenario(
    (Shape(0.25, cost_s=0.01, fan_out=4, kills=True, raises=True), Shape(1.0, 1, kills=True, raises=True)),
    devices=4,
    tasks=52,
)


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # real processes: shrinking would take minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@example(QUARTERS_AND_A_WHOLE)
@example(RECYCLED)
@example(TRIED_AGAIN_AND_WAITING_FOR_ROOM)
@given(scenarios)
def test_every_record_arrives_once_and_no_device_is_given_away_twice(scenario: Scenario) -> None:
    options: dict[str, Any] = {"execution_mode": scenario.execution_mode, "autoscale_interval_s": 0.2}
    if scenario.worker_max_tasks is not None:
        options["worker_max_tasks"] = scenario.worker_max_tasks
    executor = LocalExecutor(workers=2, gpus=scenario.devices, **options)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.touch()
        pipeline = Pipeline("scenario", stages=stages_of(scenario, str(log)))
        initial = [Task(data=(number,)) for number in range(scenario.tasks)]
        try:
            executor.plan(pipeline)
        except PlanError:
            assume(False)  # more than there is
        result = pipeline.run(executor, initial_tasks=initial, ledger=False, progress="none")
        assert [task.data for task in result] == expected(scenario)
        assert over_commitments(scenario, log) == []
