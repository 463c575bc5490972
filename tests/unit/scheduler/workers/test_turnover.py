# SPDX-License-Identifier: Apache-2.0
"""Machines come and go: what was on them starts elsewhere if there is room, and nobody is blamed."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.play import WHOLE, Play, dispatched, done, only
from thresher.scheduler.actions import StartWorker
from thresher.scheduler.events import NodeJoined, NodeLost, Tick, WorkerReady
from thresher.scheduler.model import IllegalEvent, NodeSpec, OpSpec, RunSpec
from thresher.scheduler.workers.turnover import shared_share

GB = 1_000_000_000
A, B = NodeSpec(node="a", cpus=2.0, gpus=(GB,)), NodeSpec(node="b", cpus=2.0, gpus=(GB,))
MODEL = (
    OpSpec(index=0, name="read", source=True, next=1, output_bytes=100),
    OpSpec(index=1, name="model", dedicated=True, gpus=1.0),
)


def starts(actions: list[object]) -> list[StartWorker]:
    return [action for action in actions if isinstance(action, StartWorker)]


def test_shared_workers_of_a_lost_node_come_back_with_it() -> None:
    play = Play(WHOLE, workers=4, nodes=(A, B))
    assert sorted(start.node for start in starts(play.started)) == ["a", "a", "b", "b"]
    play.ready()
    assert starts(play.feed(NodeLost("a"))) == [], "the other node has its own already"
    assert [start.node for start in starts(play.feed(NodeJoined("a")))] == ["a", "a"]


def test_workers_that_were_starting_on_a_lost_node_are_no_failed_setups() -> None:
    play = Play(WHOLE, workers=4, nodes=(A, B), setup_attempts=1)
    assert only(play.feed(NodeLost("a"), NodeLost("b"), NodeJoined("a")), "Fail") == []


def test_a_task_that_was_on_a_lost_node_is_not_blamed() -> None:
    poor = (OpSpec(index=0, name="copy", source=True, sink=True, max_attempts=1),)
    play = Play(poor, workers=2, nodes=(A, B))
    play.ready()
    play.units("x")
    actions = play.feed(NodeLost("a"), NodeLost("b"), NodeJoined("b"))
    assert only(actions, "Fail") == []
    again = play.feed(*(WorkerReady(start.worker) for start in starts(actions)))
    assert [tasks for _, _, tasks in dispatched(again)] != []


def test_a_worker_without_room_starts_when_a_node_joins() -> None:
    play = Play(MODEL, workers=1, nodes=(A,))
    play.ready()
    assert [s.op for s in starts(play.feed(NodeLost("a")))] == []
    found = starts(play.feed(NodeJoined("c", NodeSpec(node="c", gpus=(GB, GB)))))
    assert sorted((s.op is None, s.node) for s in found) == [(False, "c"), (True, "c")]


def test_a_node_that_joins_gets_workers_of_an_op_that_can_use_them() -> None:
    play = Play(MODEL, workers=1, nodes=(A,), autoscale_interval_s=1.0)
    play.ready()
    play.units("x", "y", "z", more=True)
    model = next(start.worker for start in starts(play.started) if start.op == 1)
    reader = next(start.worker for start in starts(play.started) if start.op is None)
    play.feed(done(-1, reader, 1, busy_s=0.1), done(1, model, busy_s=9.0), Tick(1.0))
    assert [start.op for start in starts(play.feed(NodeJoined("b", B)))] == [None], "at once only what any node gets"
    assert [(s.op, s.node, s.devices) for s in starts(play.feed(Tick(1.5)))] == [(1, "b", (0,))]


def test_an_unknown_node_must_bring_what_it_has() -> None:
    play = Play(WHOLE, workers=1, nodes=(A,))
    with pytest.raises(IllegalEvent, match="must carry its spec"):
        play.feed(NodeJoined("c"))


def test_a_run_that_names_no_nodes_does_not_look_at_them() -> None:
    play = Play(WHOLE, workers=2)
    assert starts(play.started) == [StartWorker(1), StartWorker(2)]
    play.feed(WorkerReady(1, "x"), WorkerReady(2, "y"), NodeJoined("z"))
    assert starts(play.feed(NodeLost("x"))) == [StartWorker(3)]


@pytest.mark.parametrize(
    ("cpus", "workers"), [(2.0, 2), (8.0, 8), (1.0, 1), (0.0, 0)], ids=["alike", "larger", "smaller", "no CPU"]
)
def test_a_node_that_nobody_expected_gets_as_many_workers_for_each_cpu_as_the_others(cpus: float, workers: int) -> None:
    spec = RunSpec(ops=WHOLE, shared_workers=4, budget_bytes=1000, nodes=(A, B))
    assert shared_share(spec, NodeSpec(node="late", cpus=cpus)) == workers


def test_a_node_that_comes_back_has_the_place_it_had() -> None:
    spec = RunSpec(ops=WHOLE, shared_workers=3, budget_bytes=1000, nodes=(A, B))
    assert shared_share(spec, A) + shared_share(spec, B) == 3


def test_where_no_node_had_a_cpu_a_late_one_gets_no_shared_worker() -> None:
    only_devices = NodeSpec(node="a", cpus=0.0, gpus=(GB,))
    spec = RunSpec(ops=WHOLE, shared_workers=1, budget_bytes=1000, nodes=(only_devices,))
    assert shared_share(spec, NodeSpec(node="late", cpus=4.0)) == 0
