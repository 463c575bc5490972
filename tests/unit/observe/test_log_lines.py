# SPDX-License-Identifier: Apache-2.0
"""Lines of the event log have the promised form and come back as they were."""

from __future__ import annotations

import json

import pytest

from thresher.observe.event_log import decode_line, encode_line, encode_start
from thresher.scheduler import actions, events
from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec, UnitSpec

EVENTS = [
    events.UnitsListed((UnitSpec("u", (1, 2), 0, 3, True),), more=True),
    events.WorkerReady(1, "n", 1.5),
    events.WorkerMemory(1, 200, 100),
    events.WorkerSetupFailed(1, "why"),
    events.WorkerLost(1, 'a "quoted" reason\n'),
    events.NodeJoined("n", NodeSpec(node="n", cpus=8.0, gpus=(24, 24), memory_bytes=9, custom={"licence": 1.0})),
    events.NodeLost("n", "why"),
    events.TaskEmitted(-1, 1, (events.Emitted(2, 3, "u", (4, 5), True), events.Emitted(0, unit="u", closes=True))),
    events.TaskParked(1, 2, (events.Emitted(3, 4),)),
    events.TaskDone(1, 2, (events.Emitted(3, 4),), 0.1 + 0.2, {"docs": {"read": 5}}),
    events.TaskFailed(1, 2, "ValueError", "text", fatal=True),
    events.PayloadLost(1),
    events.UnitCommitted("u", 2, {"bytes": 7}),
    events.CommitFailed("u", 2, "why", retryable=False),
    events.MemorySample(1, 2),
    events.Tick(1.5),
    events.StopRequested("why"),
]
ACTIONS = [
    actions.StartWorker(1, 2, "n", (0, 3)),
    actions.StopWorker(1),
    actions.Dispatch(1, 0, (actions.TaskRef(-1, "u", 1, 100), actions.TaskRef(2, "v"))),
    actions.GrantCredit(1, 2, 3),
    actions.Resume(1, 2, 3),
    actions.Release((1, 2)),
    actions.Requeue(1, (2, 3), "u", 4),
    actions.Commit("u", 1, 2),
    actions.Finish("finished"),
    actions.Fail("why", "u", 1),
]


@pytest.mark.parametrize("item", EVENTS + ACTIONS, ids=lambda item: type(item).__name__)
def test_every_event_and_action_comes_back_from_its_line(item: events.Event | actions.Action) -> None:
    line = encode_line(17, 1.25, item)
    key = "event" if isinstance(item, events.Event) else "action"
    plain = json.loads(line)
    assert (plain["n"], plain["t"], plain[key]) == (17, 1.25, type(item).__name__)
    assert b"\n" not in line
    assert decode_line(line) == (17, 1.25, item)


def test_line_0_holds_the_spec_and_whatever_else_describes_the_run() -> None:
    spec = RunSpec(ops=(OpSpec(index=0, name="copy", source=True, sink=True),), shared_workers=2, budget_bytes=10)
    line = encode_start(spec, plan={"name": "demo"}, seed=7)
    assert json.loads(line)["start"]["plan"] == {"name": "demo"}
    assert decode_line(line) == (0, 0.0, spec)


def test_the_start_of_a_worker_in_a_log_without_nodes_is_a_start_on_the_local_node() -> None:
    line = b'{"n":1,"t":0.0,"action":"StartWorker","worker":3,"op":1}'
    assert decode_line(line).item == actions.StartWorker(3, 1, "local", ())


def test_all_names_of_the_contract_exist() -> None:
    contract_events = {
        *("WorkerReady", "WorkerSetupFailed", "WorkerLost", "NodeJoined", "NodeLost", "TaskEmitted", "TaskParked"),
        *("TaskDone", "TaskFailed", "PayloadLost", "UnitCommitted", "MemorySample", "Tick", "StopRequested"),
    }
    contract_actions = {
        *("StartWorker", "StopWorker", "Dispatch", "GrantCredit", "Resume", "Release"),
        *("Requeue", "Commit", "Finish", "Fail"),
    }
    assert {type(item).__name__ for item in EVENTS} - contract_events == {"UnitsListed", "CommitFailed", "WorkerMemory"}
    assert {type(item).__name__ for item in EVENTS} >= contract_events
    assert {type(item).__name__ for item in ACTIONS} == contract_actions
