# SPDX-License-Identifier: Apache-2.0
"""A task goes where its payload lies, as far as that idles no worker and keeps no task waiting for long."""

from __future__ import annotations

from tests.unit.scheduler.play import Play, dispatched, done
from thresher.scheduler.dispatch import MAX_PASSED_OVER
from thresher.scheduler.model import NodeSpec, OpSpec

A = NodeSpec(node="a", cpus=1.0, custom={"seat": 1.0})
B = NodeSpec(node="b", cpus=1.0, custom={"seat": 1.0})
CHAIN = (
    OpSpec(index=0, name="read", source=True, next=1, output_bytes=100),
    OpSpec(index=1, name="model", dedicated_workers=2, custom={"seat": 1.0}),
)


class TwoNodes:
    """A reader and a worker with a model on each of two nodes; each holds one group of tasks."""

    def __init__(self) -> None:
        self.play = Play(CHAIN, workers=2, nodes=(A, B), depth=1)
        self.play.ready()
        roots = {worker: tasks[0] for worker, _, tasks in dispatched(self.play.units("x", "y"))}
        found = self.play.scheduler.state.workers.values()
        self.readers = {worker.node: worker.id for worker in found if worker.pool.dedicated is None}
        self.models = {worker.node: worker.id for worker in found if worker.pool.dedicated == 1}
        self.roots = {node: roots[worker] for node, worker in self.readers.items()}

    def read(self, node: str, *tasks: int) -> list[tuple[int, int, list[int]]]:
        """The unit on a node is read, and these tasks lie there now."""
        return dispatched(self.play.feed(done(self.roots[node], self.readers[node], *tasks)))

    def end(self, node: str, task: int) -> list[tuple[int, int, list[int]]]:
        """The model on a node is done with a task."""
        return dispatched(self.play.feed(done(task, self.models[node])))


def test_of_two_free_workers_the_one_where_the_payload_lies_gets_the_task() -> None:
    for node in ("a", "b"):
        nodes = TwoNodes()
        assert nodes.read(node, 1) == [(nodes.models[node], 1, [1])]


def test_a_worker_does_not_idle_because_the_payload_lies_elsewhere() -> None:
    nodes = TwoNodes()
    assert sorted(nodes.read("a", 1, 2)) == sorted([(nodes.models["a"], 1, [1]), (nodes.models["b"], 1, [2])])


def test_a_worker_takes_a_task_of_its_own_node_before_an_older_one() -> None:
    nodes = TwoNodes()
    nodes.read("a", 1, 2, 3)
    nodes.read("b", 4)
    assert nodes.end("b", 2) == [(nodes.models["b"], 1, [4])]
    assert nodes.end("a", 1) == [(nodes.models["a"], 1, [3])]


def test_the_oldest_task_is_not_passed_over_for_ever() -> None:
    nodes = TwoNodes()
    nodes.read("a", 1, 2, 3)
    near = list(range(10, 20))
    nodes.read("b", *near)
    running, given = 2, []
    for _ in range(MAX_PASSED_OVER + 1):
        ((_, _, (running,)),) = nodes.end("b", running)
        given.append(running)
    assert given == [*near[:MAX_PASSED_OVER], 3]


def test_a_task_that_was_taken_out_of_turn_runs_once() -> None:
    nodes = TwoNodes()
    nodes.read("a", 1, 2, 3)
    nodes.read("b", 4, 5)
    running = {"a": 1, "b": 2}
    seen = []
    while running:
        node, task = running.popitem()
        for worker, _, tasks in nodes.end(node, task):
            seen += tasks
            running[next(n for n, w in nodes.models.items() if w == worker)] = tasks[0]
    assert sorted(seen) == [3, 4, 5]
