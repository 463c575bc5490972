# SPDX-License-Identifier: Apache-2.0
"""How a run goes: dispatch, order, grouping, commit, the end. Each test is a small story of events and actions."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.play import READ_FILTER_WRITE, READ_WRITE, WHOLE, Play, batches, dispatched, done, only
from thresher.scheduler.actions import Commit, Finish, Release, StartWorker, StopWorker
from thresher.scheduler.events import (
    MemorySample,
    NodeJoined,
    StopRequested,
    TaskEmitted,
    TaskParked,
    Tick,
    UnitCommitted,
    UnitsListed,
    WorkerLost,
    WorkerReady,
)
from thresher.scheduler.model import IllegalEvent, OpSpec, UnitSpec


def test_workers_are_started_before_any_unit_is_known() -> None:
    dedicated = OpSpec(index=1, name="model", next=2, dedicated_workers=1)
    play = Play((READ_FILTER_WRITE[0], dedicated, READ_FILTER_WRITE[2]), workers=2)
    assert play.started == [StartWorker(1), StartWorker(2), StartWorker(3, op=1)]


def test_a_whole_unit_is_run_committed_by_its_worker_and_then_the_run_ends() -> None:
    play = Play(WHOLE)
    play.ready()
    assert dispatched(play.units("u")) == [(1, 0, [-1])]
    assert play.feed(done(-1, 1)) == [Commit("u", 0, worker=1)]
    assert play.feed(UnitCommitted("u")) == [StopWorker(1), Finish("finished")]


def test_without_units_the_run_ends_at_once() -> None:
    play = Play(WHOLE)
    assert play.units() == [StopWorker(1), Finish("finished")]
    assert play.feed(WorkerReady(1)) == []


def test_work_begins_while_listing_goes_on_and_the_run_does_not_end_before_it() -> None:
    play = Play(WHOLE)
    play.ready()
    assert dispatched(play.units("a", more=True)) == [(1, 0, [-1])]
    play.feed(done(-1, 1))
    assert play.feed(UnitCommitted("a")) == []
    assert only(play.feed(UnitsListed((), more=False)), "Finish") == [Finish("finished")]


def test_a_unit_of_which_nothing_reached_the_sink_is_committed_by_the_driver() -> None:
    play = Play(READ_WRITE)
    play.ready()
    play.units("u")
    assert play.feed(done(-1, 1)) == [Commit("u", 0, worker=None)]


def test_a_free_worker_takes_the_most_downstream_task() -> None:
    play = Play(READ_FILTER_WRITE)
    play.ready()
    play.units("a", "b")
    assert dispatched(play.feed(done(-1, 1, 1))) == [(1, 1, [1])], "the filter before the next unit"
    assert dispatched(play.feed(done(1, 1, 2))) == [(1, 2, [2])], "the writer before the next unit"
    assert dispatched(play.feed(done(2, 1))) == [(1, 0, [-2])]


def test_among_tasks_of_one_op_the_oldest_in_lineage_order_goes_first() -> None:
    play = Play(READ_FILTER_WRITE, workers=2)
    play.ready()
    play.units("a", "b")
    play.feed(TaskEmitted(-2, 2, batches(1)), TaskEmitted(-1, 1, batches(2)))
    assert dispatched(play.feed(done(-2, 2))) == [(2, 1, [2])], "task 2 is of unit a, though task 1 came earlier"


def test_a_payload_is_released_when_its_reader_is_done() -> None:
    play = Play(READ_FILTER_WRITE)
    play.ready()
    play.units("a")
    play.feed(done(-1, 1, 1))
    assert play.feed(done(1, 1))[0] == Release((1,))
    assert play.scheduler.state.used == 0


def test_an_ordered_sink_waits_for_what_is_earlier_in_lineage_order() -> None:
    play = Play(READ_FILTER_WRITE, workers=2)
    play.ready()
    play.units("u")
    play.feed(done(-1, 1, 1, 2))  # the filter now runs task 1 on one worker and task 2 on the other
    assert dispatched(play.feed(done(2, 1, 3))) == [], "the child of task 2 is held back: task 1 still runs"
    sent = dispatched(play.feed(done(1, 2, 4)))
    assert [tasks for _, _, tasks in sent] == [[4], [3]], "the child of task 1 is first"
    assert sent[0][0] == sent[1][0], "and both go to the same worker"


def test_all_tasks_of_a_unit_go_to_one_worker_of_the_sink() -> None:
    play = Play(READ_WRITE, workers=2)
    play.ready()
    play.units("u")
    first = dispatched(play.feed(TaskEmitted(-1, 1, batches(1))))
    assert first == [(2, 1, [1])]
    assert dispatched(play.feed(done(-1, 1, 2, 3))) == [(2, 1, [2])], "worker 1 is idle, but 2 holds the sink state"
    assert dispatched(play.feed(done(1, 2))) == [(2, 1, [3])]
    assert play.feed(done(2, 2), done(3, 2))[-1] == Commit("u", 0, worker=2)


def test_tiny_tasks_travel_in_groups_and_share_the_workers() -> None:
    play = Play(WHOLE, workers=2)
    play.ready()
    play.units(*(f"u{n:03}" for n in range(200)))
    sent = dispatched(play.feed(done(-1, 1, busy_s=0.0001)))
    assert [len(tasks) for _, _, tasks in sent] == [64, 64, 64], "one to run and one prefetched by each worker"


def test_a_group_is_no_larger_than_a_worker_is_entitled_to() -> None:
    play = Play(WHOLE, workers=2, depth=1)
    play.ready()
    play.units(*(f"u{n}" for n in range(12)), more=True)
    play.feed(done(-1, 1, busy_s=0.0001))  # takes the other ten as one group, because worker 2 is busy
    play.feed(done(-2, 2, busy_s=0.0001))
    play.feed(*(done(-n, 1, busy_s=0.0001) for n in range(3, 13)))
    sent = dispatched(play.feed(UnitsListed(tuple(UnitSpec(f"v{n}", (n, 0), 0) for n in range(10)))))
    assert [len(tasks) for _, _, tasks in sent] == [5, 5], "both workers are idle: each gets its share"


def test_long_tasks_are_not_prefetched_by_shared_workers() -> None:
    play = Play(WHOLE, workers=1)
    play.ready()
    assert dispatched(play.units("a", "b", "c")) == [(1, 0, [-1])]
    assert dispatched(play.feed(done(-1, 1, busy_s=1.0))) == [(1, 0, [-2])]


def test_the_time_of_a_task_is_the_sum_of_what_it_reports() -> None:
    play = Play(READ_WRITE)
    play.ready()
    play.units("a", "b", "c")
    play.feed(TaskEmitted(-1, 1, batches(1), busy_s=0.75), done(-1, 1, busy_s=0.25))
    assert play.scheduler.state.ops[0].average_s == 1.0
    # Where the time of the first part is not told, the last part alone would make a long task look tiny.
    play.feed(done(1, 1))
    play.feed(TaskEmitted(-2, 1, batches(2)), done(-2, 1, busy_s=0.000001))
    assert play.scheduler.state.ops[0].average_s == 1.0


def test_dedicated_workers_hold_their_next_task_before_they_need_it() -> None:
    model = OpSpec(index=1, name="model", next=2, output_bytes=100, dedicated_workers=1)
    play = Play((READ_FILTER_WRITE[0], model, READ_FILTER_WRITE[2]))
    play.ready()
    play.units("u")
    assert dispatched(play.feed(done(-1, 1, 1, 2, 3))) == [(2, 1, [1]), (2, 1, [2])]


def test_a_call_takes_up_to_batch_size_tasks_and_does_not_wait_for_more() -> None:
    batched = OpSpec(index=1, name="batched", next=2, output_bytes=100, batch_size=2)
    play = Play((READ_FILTER_WRITE[0], batched, READ_FILTER_WRITE[2]), workers=2)
    play.ready()
    play.units("u")
    sent = dispatched(play.feed(done(-1, 1, 1, 2, 3)))
    assert [tasks for _, _, tasks in sent] == [[1, 2], [3]]


BY_UNIT = OpSpec(index=1, name="batched", next=2, output_bytes=100, batch_size=2, by_unit=True)


def test_a_call_by_unit_waits_until_it_is_full_and_nothing_earlier_can_come() -> None:
    first = OpSpec(index=0, name="read", source=True, next=1, output_bytes=100)
    middle = OpSpec(index=1, name="filter", next=2, output_bytes=100)
    batched = OpSpec(index=2, name="batched", next=3, output_bytes=100, batch_size=2, by_unit=True)
    play = Play((first, middle, batched, OpSpec(index=3, name="write", sink=True, ordered=True)), workers=3)
    play.ready()
    play.units("u")
    sent = dispatched(play.feed(done(-1, 1, 1, 2, 3)))
    assert [(op, tasks) for _, op, tasks in sent] == [(1, [1]), (1, [2]), (1, [3])]
    on = {tasks[0]: worker for worker, _, tasks in sent}
    assert dispatched(play.feed(done(3, on[3], 13))) == [], "what comes before it is not there yet"
    assert dispatched(play.feed(done(2, on[2], 12))) == []
    assert [tasks for _, _, tasks in dispatched(play.feed(done(1, on[1], 11)))] == [[11, 12], [13]]


def test_calls_by_unit_never_mix_units() -> None:
    play = Play((READ_FILTER_WRITE[0], BY_UNIT, READ_FILTER_WRITE[2]), workers=4)
    play.ready()
    play.units("a", "b")
    play.feed(TaskEmitted(-1, 1, batches(1)), TaskEmitted(-2, 2, batches(2)))
    assert [tasks for _, _, tasks in dispatched(play.feed(done(-2, 2, 3, 4)))] == [[2, 3], [4]]
    assert [tasks for _, _, tasks in dispatched(play.feed(done(-1, 1, 5)))] == [[1, 5]]


def test_a_call_by_unit_that_was_lost_is_made_again_with_the_same_tasks() -> None:
    play = Play((READ_FILTER_WRITE[0], BY_UNIT, READ_FILTER_WRITE[2]), workers=2)
    play.ready()
    play.units("u")
    sent = dispatched(play.feed(TaskEmitted(-1, 1, batches(1, 2, 3))))
    assert [tasks for _, _, tasks in sent] == [[1, 2]]
    play.feed(done(-1, 1))
    actions = play.feed(WorkerLost(sent[0][0], "killed"))
    actions += play.feed(*(WorkerReady(action.worker) for action in only(actions, "StartWorker")))
    assert [1, 2] in [tasks for _, _, tasks in dispatched(actions)]


def test_where_nothing_else_can_run_a_call_by_unit_is_made_with_fewer_tasks() -> None:
    batched = OpSpec(index=1, name="batched", next=2, output_bytes=100, batch_size=50, by_unit=True)
    play = Play((READ_FILTER_WRITE[0], batched, READ_FILTER_WRITE[2]), budget=100)
    play.ready()
    play.units("u")
    actions = play.feed(TaskParked(-1, 1, batches(1, 2)))
    assert [(op, tasks) for _, op, tasks in dispatched(actions)] == [(1, [1, 2])]


def test_a_call_of_several_cpus_runs_on_fewer_workers_but_always_on_one() -> None:
    wide = OpSpec(index=0, name="wide", source=True, sink=True, cpus=2.0)
    play = Play((wide,), workers=4)
    play.ready()
    assert len(dispatched(play.units("a", "b", "c", "d"))) == 2
    narrow = Play((wide,), workers=1)
    narrow.ready()
    assert len(dispatched(narrow.units("a", "b"))) == 1


def test_outputs_of_a_last_op_that_is_no_sink_are_results_and_not_accounted() -> None:
    play = Play((READ_WRITE[0], OpSpec(index=1, name="score")))
    play.ready()
    play.units("u")
    play.feed(done(-1, 1, 1))
    assert play.feed(done(1, 1, 7)) == [Release((1,)), Commit("u", 0, worker=None)]
    assert play.scheduler.state.used == 0


def test_a_stopped_run_starts_nothing_commits_what_is_complete_and_ends() -> None:
    play = Play(WHOLE, workers=2)
    play.ready()
    play.units("a", "b", "c")
    assert play.feed(StopRequested("asked to")) == []
    assert play.feed(done(-1, 1)) == [Commit("a", 0, worker=1)]
    assert play.feed(UnitCommitted("a"), done(-2, 2)) == [Commit("b", 0, worker=2)]
    assert play.feed(UnitCommitted("b"))[-1] == Finish("stopped")


def test_near_the_memory_limit_only_the_oldest_unit_starts_until_it_is_well_below() -> None:
    play = Play(WHOLE, workers=3)
    play.ready()
    play.feed(MemorySample(92, 100))
    assert dispatched(play.units("a", "b", "c")) == [(1, 0, [-1])]
    assert dispatched(play.feed(MemorySample(85, 100))) == [], "not yet: it would go up and down"
    assert len(dispatched(play.feed(MemorySample(79, 100)))) == 2


def test_time_and_new_machines_change_nothing() -> None:
    play = Play(WHOLE)
    play.ready()
    assert play.feed(Tick(1.0), NodeJoined("n")) == []


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (done(99, 1), "task 99"),
        (done(-1, 77), "worker 77"),
        (WorkerReady(1), "second time"),
        (UnitsListed((UnitSpec("a", (0, 0), 0),)), "listed twice"),
        (UnitsListed((UnitSpec("z", (0, 0), 1),)), "not a source"),
        (TaskParked(-2, 1), "does not run"),
    ],
)
def test_an_event_that_cannot_happen_is_refused_with_the_story(event: object, message: str) -> None:
    play = Play(READ_WRITE, workers=1)
    play.ready()
    play.units("a", "b", more=True)
    with pytest.raises(IllegalEvent, match=message):
        play.feed(event)  # type: ignore[arg-type]  # an event, whatever its kind


def test_a_stop_at_once_does_not_wait_for_what_is_under_way() -> None:
    play = Play(WHOLE)
    play.ready()
    play.units("a", "b")
    assert play.feed(StopRequested("enough")) == []
    assert play.feed(StopRequested("enough", at_once=True)) == [Finish("stopped")]
    assert play.feed(done(-1, 1)) == []
