# SPDX-License-Identifier: Apache-2.0
"""Workers make room for fresh ones, by age, tasks and memory, and never with work in their hands."""

from __future__ import annotations

from tests.unit.scheduler.play import READ_WRITE, WHOLE, Play, batches, dispatched, done, only
from thresher.scheduler.actions import StartWorker, StopWorker
from thresher.scheduler.events import (
    MemorySample,
    TaskParked,
    Tick,
    UnitCommitted,
    WorkerLost,
    WorkerMemory,
    WorkerReady,
)
from thresher.scheduler.model import OpSpec


def changes(actions: list[object]) -> list[object]:
    """Workers stopped and started."""
    return [action for action in actions if isinstance(action, StartWorker | StopWorker)]


def test_a_worker_gets_exactly_as_many_tasks_as_it_may_have_and_then_another_takes_its_place() -> None:
    play = Play(WHOLE, worker_max_tasks=2)
    play.ready()
    assert dispatched(play.units("a", "b", "c")) == [(1, 0, [-1])]
    assert dispatched(play.feed(done(-1, 1))) == [(1, 0, [-2])]
    assert changes(play.feed(UnitCommitted("a"))) == []
    assert dispatched(play.feed(done(-2, 1))) == [], "it has had two"
    assert changes(play.feed(UnitCommitted("b"))) == [StopWorker(1, "tasks"), StartWorker(2)], (
        "not before its unit is committed"
    )
    assert dispatched(play.feed(WorkerReady(2))) == [(2, 0, [-3])]


def test_an_old_worker_finishes_what_it_has_first() -> None:
    play = Play(WHOLE, worker_max_lifetime_s=60.0)
    play.ready()
    play.units("a", "b", "c")
    play.feed(done(-1, 1), UnitCommitted("a"))
    assert changes(play.feed(Tick(59.0))) == []
    assert changes(play.feed(Tick(60.0))) == [], "unit b is being written"
    assert dispatched(play.feed(done(-2, 1))) == []
    assert changes(play.feed(UnitCommitted("b"))) == [StopWorker(1, "age"), StartWorker(2)]


def test_old_workers_are_recycled_one_after_another() -> None:
    play = Play(WHOLE, workers=3, worker_max_lifetime_s=60.0, worker_restart_interval_s=10.0)
    play.ready()
    play.units("a", "b", "c", "d", more=True)
    for task, worker, unit in ((-1, 1, "a"), (-2, 2, "b"), (-3, 3, "c")):
        play.feed(done(task, worker), UnitCommitted(unit))
    play.feed(done(-4, 1), UnitCommitted("d"))
    assert changes(play.feed(Tick(61.0))) == [StopWorker(1, "age"), StartWorker(4)]
    assert changes(play.feed(WorkerReady(4), Tick(70.0))) == []
    assert changes(play.feed(Tick(71.0))) == [StopWorker(2, "age"), StartWorker(5)]


def test_a_worker_that_did_nothing_is_not_recycled_however_low_the_limits() -> None:
    play = Play(WHOLE, worker_max_lifetime_s=0.1)
    play.ready()
    assert changes(play.feed(Tick(1.0), WorkerMemory(1, 200, 100), Tick(2.0))) == []


def test_a_worker_above_its_memory_limit_is_recycled_when_it_is_idle() -> None:
    play = Play(WHOLE)
    play.ready()
    play.units("a", "b", "c")
    play.feed(done(-1, 1), UnitCommitted("a"))
    assert changes(play.feed(WorkerMemory(1, 99, 100))) == []
    assert changes(play.feed(WorkerMemory(1, 101, 100))) == [], "it works on b"
    assert dispatched(play.feed(done(-2, 1))) == []
    assert changes(play.feed(UnitCommitted("b"))) == [StopWorker(1, "memory"), StartWorker(2)]


def test_a_worker_goes_on_with_a_unit_that_it_writes_before_it_leaves() -> None:
    """1. worker 2 writes the first batch of a unit. 2. It is above its limit. 3. It gets the other batches still."""
    play = Play(READ_WRITE, workers=2)
    play.ready()
    play.units("a")
    reader = dispatched(play.feed())
    assert reader == []
    play.feed(done(-1, 1, 1, 2, 3))
    writer = play.scheduler.state.units["a"].sink_worker
    assert writer is not None
    play.feed(done(1, writer.id))
    stopped = changes(play.feed(WorkerMemory(writer.id, 101, 100)))
    assert stopped == []
    play.feed(done(2, writer.id))
    actions = play.feed(done(3, writer.id))
    assert [commit.worker for commit in only(actions, "Commit")] == [writer.id]


def test_a_parked_generator_is_resumed_in_a_worker_that_leaves() -> None:
    ops = (
        OpSpec(index=0, name="read", source=True, next=1, output_bytes=100),
        OpSpec(index=1, name="score"),
    )
    play = Play(ops, budget=100, worker_max_tasks=1)
    play.ready()
    play.units("a")
    actions = play.feed(TaskParked(-1, 1, batches(1)))
    assert changes(actions) == [], "the generator is not over"
    assert only(actions, "Resume") or dispatched(actions), "the oldest batch always goes on"


def test_when_memory_is_critical_idle_workers_go_and_come_back_when_it_is_low() -> None:
    play = Play(WHOLE, workers=3)
    play.ready()
    assert changes(play.feed(MemorySample(94, 100))) == []
    assert changes(play.feed(MemorySample(95, 100))) == [StopWorker(3, "short"), StopWorker(2, "short")], "one stays"
    assert changes(play.feed(MemorySample(85, 100))) == []
    assert changes(play.feed(MemorySample(79, 100))) == [StartWorker(4), StartWorker(5)]


def test_when_no_worker_is_idle_the_one_with_most_memory_is_recycled() -> None:
    play = Play(WHOLE, workers=2)
    play.ready()
    play.units("a", "b", "c", "d")
    play.feed(done(-1, 1), UnitCommitted("a"), done(-2, 2), UnitCommitted("b"))
    play.feed(WorkerMemory(1, 10), WorkerMemory(2, 20))
    assert changes(play.feed(MemorySample(96, 100))) == [], "both work"
    actions = play.feed(done(-4, 2), UnitCommitted("d"))
    assert changes(actions) == [StopWorker(2, "memory")], "its place stays empty until memory is low"
    assert changes(play.feed(MemorySample(50, 100))) == [], "nothing is left that one worker does not do"


def test_the_last_worker_of_a_pool_is_replaced_even_when_memory_is_critical() -> None:
    play = Play(WHOLE)
    play.ready()
    play.units("a", "b")
    play.feed(MemorySample(96, 100))
    assert changes(play.feed(WorkerLost(1, "killed"))) == [StartWorker(2)]
