# SPDX-License-Identifier: Apache-2.0
"""The model of a worker takes the items of its queue in the order in which a real worker takes them."""

from __future__ import annotations

from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec, RunSpec, UnitSpec
from thresher.simulate.cluster import VirtualCluster
from thresher.simulate.scenario import Behaviour, OpBehaviour, ScenarioWorkload
from thresher.simulate.worker import VirtualWorker

OPS = (
    OpSpec(index=0, name="read", source=True, next=1, output_bytes=100),
    OpSpec(index=1, name="write", sink=True, ordered=True),
)


class OneWorker:
    """A worker that is up, and the events that it reported since."""

    def __init__(self) -> None:
        spec = RunSpec(ops=OPS, shared_workers=1, budget_bytes=1_000)
        behaviour = Behaviour((OpBehaviour(fan_out=(2, 2), generator=True), OpBehaviour()))
        units = [UnitSpec(f"u{n}", (n, 0), 0) for n in range(4)]
        self.cluster = VirtualCluster(spec, units, ScenarioWorkload(spec, behaviour))
        self.reports: list[ev.AnyEvent] = []
        self.cluster.report = self.reports.append  # type: ignore[method-assign]  # no scheduler decides in this test
        start = act.StartWorker(1)
        self.worker = VirtualWorker(self.cluster, start, self.cluster.machines["local"])
        self.worker.ready(0.0)
        self.reports.clear()

    def next_report(self) -> ev.AnyEvent:
        """Advance until the worker reports something."""
        while not self.reports:
            self.cluster.advance()
        return self.reports.pop(0)

    def read(self, *units: int, credit: int = -1) -> None:
        """Dispatch the root tasks of units."""
        refs = tuple(act.TaskRef(-n, f"u{n}", credit=credit) for n in units)
        self.worker.take(act.Dispatch(1, 0, refs), 0.0)


def test_a_resumed_task_ends_before_another_of_its_op_starts() -> None:
    one = OneWorker()
    one.read(1, 2, credit=100)
    parked = one.next_report()
    assert isinstance(parked, ev.TaskParked)
    assert parked.task == -1
    one.worker.resume(act.Resume(1, -1), 0.0)  # waits behind the second task, which must not enter the op
    tasks = [getattr(one.next_report(), "task", 0) for _ in range(3)]
    assert tasks == [-1, -1, -2]


def test_commits_come_before_waiting_tasks_and_in_the_order_they_were_sent() -> None:
    one = OneWorker()
    one.read(3)
    one.read(2)
    for unit in ("u0", "u1"):
        one.worker.commit(act.Commit(unit, worker=1), 0.0)
    found = [one.next_report() for _ in range(6)]
    assert [event.unit for event in found if isinstance(event, ev.UnitCommitted)] == ["u0", "u1"]
    assert [type(event).__name__ for event in found][-3:] == ["UnitCommitted", "UnitCommitted", "TaskEmitted"]


def test_a_dropped_task_leaves_its_op_to_the_next_one() -> None:
    one = OneWorker()
    one.read(1, 2, credit=100)
    assert isinstance(one.next_report(), ev.TaskParked)
    one.worker.drop_tasks(act.Requeue(1, (-1,)), 0.0)
    assert getattr(one.next_report(), "task", 0) == -2
