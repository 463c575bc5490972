# SPDX-License-Identifier: Apache-2.0
"""One op on units inside an engine's call, and how many workers of an op an engine's machines hold."""

from __future__ import annotations

import math
from typing import Any

import pytest

from thresher import LocalExecutor, Pipeline, ProcessingStage, Resources, Task
from thresher.backends.engines.ray_engine import refuse_unfit, remote_options, soft_cpus, workers_on
from thresher.backends.engines.unit_call import (
    UnitWork,
    UnitWorker,
    dump_work,
    load_work,
    metadata_here,
    op_chain,
    units_per_call,
    worker_for,
)
from thresher.backends.ray_actor_pool import pool_places
from thresher.backends.ray_data import wants_actors
from thresher.backends.ray_nodes.session import RayNodeFacts
from thresher.core.planning.plan import Op, Plan, Step
from thresher.core.unit import Unit
from thresher.errors import PlanError
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.payloads.payload import decode_inline, encode
from thresher.runtime.processes.setup_pickle import dump_setup

GB = 10**9


class Batches(ProcessingStage[Task, Task]):
    """Tells how many tasks a call got; fails on a number."""

    batch_size = 4

    def __init__(self, fails_on: int = -1) -> None:
        self.fails_on = fails_on

    def process_batch(self, tasks: list[Task]) -> list[Task]:
        if any(task.data == self.fails_on for task in tasks):
            raise ValueError(f"{self.fails_on} is not liked")
        return [Task(data=(task.data, len(tasks))) for task in tasks]


class AddOne(ProcessingStage[Task, Task]):
    """Goes in front, so that there are two ops."""

    def process(self, task: Task) -> Task:
        return Task(data=task.data + 1)


class CannotSetUp(AddOne):
    """Never gets to work."""

    tries = 0

    def setup(self, worker_metadata: Any = None) -> None:
        raise OSError("no model here")


def plan_of(*stages: Any) -> Plan:
    return LocalExecutor(workers=1).plan(Pipeline("p", stages=list(stages)))


def worker_of(plan: Plan) -> UnitWorker:
    return UnitWorker(dump_setup(WorkerSetup(plan)), metadata_here("here"))


def work(number: int, data: Any) -> UnitWork:
    return UnitWork(Unit(f"task-{number:06d}", (0, number), (), "task"), [encode(Task(data=data)).inline()])


def test_a_call_takes_tasks_of_several_units_and_gives_each_its_own() -> None:
    plan = plan_of(AddOne(), Batches())
    first, second = op_chain(plan)
    assert (units_per_call(plan, first), units_per_call(plan, second)) == (1, 4)
    worker = worker_of(plan)
    between = worker.run(first.index, [work(number, number) for number in range(5)])
    assert [decode_inline(one.tasks[0]).data for one in between] == [1, 2, 3, 4, 5]
    made = worker.run(second.index, between)
    found = [decode_inline(result.payload).data for one in made for result in one.results]
    assert found == [(1, 4), (2, 4), (3, 4), (4, 4), (5, 1)]
    assert [one.tally.written for one in made] == [1] * 5
    assert all(not one.tasks and not one.failure for one in made)


def test_a_task_that_fails_is_set_aside_in_its_unit_and_the_others_go_on() -> None:
    plan = plan_of(Batches(fails_on=2))
    made = worker_of(plan).run(op_chain(plan)[0].index, [work(number, number) for number in range(4)])
    assert [len(one.results) for one in made] == [1, 1, 0, 1]
    assert [len(one.quarantined) for one in made] == [0, 0, 1, 0]
    assert b"2 is not liked" in made[2].quarantined[0]


def test_a_stage_that_cannot_be_set_up_fails_the_units_and_not_the_call() -> None:
    plan = plan_of(CannotSetUp())
    worker = worker_of(plan)
    for _ in range(2):
        made = worker.run(op_chain(plan)[0].index, [work(0, 0)])
        assert "no model here" in made[0].failure
        assert not made[0].results


def test_a_unit_that_failed_before_is_passed_on_as_it_is() -> None:
    plan = plan_of(AddOne())
    given = UnitWork(work(0, 0).unit, failure="OSError: gone")
    assert worker_of(plan).run(0, [given])[0].failure == "OSError: gone"


def test_a_payload_that_cannot_be_read_fails_its_unit() -> None:
    plan = plan_of(AddOne())
    broken = work(0, 0)
    broken.tasks = [type(broken.tasks[0])((), b"no pickle")]
    assert "UnpicklingError" in worker_of(plan).run(0, [broken])[0].failure


def test_work_travels_as_bytes() -> None:
    given = work(3, {"a": [1, 2]})
    back = load_work(memoryview(dump_work(given)))
    assert back.unit == given.unit
    assert decode_inline(back.tasks[0]).data == {"a": [1, 2]}


def test_a_process_keeps_one_worker_for_each_run() -> None:
    setup = dump_setup(WorkerSetup(plan_of(AddOne())))
    first = worker_for("run-1", setup)
    assert worker_for("run-1", setup) is first
    other = worker_for("run-2", setup)
    assert other is not first
    assert worker_for("run-1", setup) is not first


# -- machines ---------------------------------------------------------------------------------------------------------


def node(cpus: float, gpus: float = 0.0, name: str = "n", **custom: float) -> RayNodeFacts:
    return RayNodeFacts(name, name, cpus, gpus, 10**9, custom, False, 8 * GB)


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        (Resources(), 4),
        (Resources(cpus=0.5), 8),
        (Resources(cpus=8), 1),  # cores are soft
        (Resources(gpus=1), 2),
        (Resources(gpus=0.25), 4),
        (Resources(cpus=0.25, gpus=0.25), 8),
        (Resources(gpus=4), 0),
        (Resources(memory_gb=3), 2),
        (Resources(custom={"licence": 1}), 3),
        (Resources(custom={"scanner": 1}), 0),
        (Resources(cpus=0), 4),
    ],
)
def test_so_many_workers_fit_on_a_node(needs: Resources, expected: int) -> None:
    assert workers_on(node(4, 2, licence=3), needs, 4) == expected


def op(resources: Resources | None = None, workers: int | None = None) -> Op:
    return Op(0, (Step("process", 0),), workers=workers, resources=resources or Resources())


def test_a_pool_is_spread_over_nodes_and_no_larger_than_its_work() -> None:
    nodes = [node(2, name="a"), node(3, name="b")]
    places = pool_places(op(), nodes, lambda one: one.cpus, 100)
    assert [place.name for place in places] == ["a", "b", "a", "b", "b"]
    assert len(pool_places(op(), nodes, lambda one: one.cpus, 3)) == 3
    assert len(pool_places(op(workers=2), nodes, lambda one: one.cpus, 100)) == 2
    assert pool_places(op(Resources(gpus=1)), nodes, lambda one: one.cpus, 100) == []


def test_an_op_that_no_node_can_hold_is_refused_with_what_there_is() -> None:
    plan = plan_of(AddOne())
    refuse_unfit(plan, plan.ops, [node(1)])
    with pytest.raises(PlanError, match=r"no machine .* can ever run AddOne.*gpus=4.*2 gpus"):
        refuse_unfit(plan, [op(Resources(gpus=4))], [node(4, 2)])


def test_needs_are_told_to_ray() -> None:
    needs = Resources(cpus=8, gpus=0.5, memory_gb=2, custom={"licence": 1})
    assert remote_options(needs, 4) == {
        "num_cpus": 4, "num_gpus": 0.5, "memory": 2 * GB, "resources": {"licence": 1},
    }  # fmt: skip


def test_stages_with_a_setup_or_workers_of_their_own_get_actors() -> None:
    for stage, expected in ((AddOne(), False), (CannotSetUp(), True), (AddOne().with_(num_workers=1), True)):
        plan = plan_of(stage)
        assert wants_actors(plan, plan.ops[0]) is expected


def test_where_cores_are_few_every_op_gets_by_with_less() -> None:
    ops = [op(), op(Resources(cpus=2)), op(Resources(cpus=0))]
    assert soft_cpus(ops, [None] * 3, 8) == [1, 2, 0.01]
    few = soft_cpus(ops, [None, 2, None], 2)
    assert math.isclose(few[0] * 2, few[1], abs_tol=0.02)
    assert few[0] + 2 * few[1] + few[2] <= 2
