# SPDX-License-Identifier: Apache-2.0
"""What happens after a loss. Races are told as numbered steps."""

from __future__ import annotations

from tests.unit.scheduler.play import READ_FILTER_WRITE, READ_WRITE, WHOLE, Play, batches, dispatched, done, only
from thresher.scheduler.actions import Commit, Fail, Finish, Release, Requeue, StartWorker
from thresher.scheduler.events import (
    CommitFailed,
    Emitted,
    NodeLost,
    PayloadLost,
    StopRequested,
    TaskDone,
    TaskEmitted,
    TaskFailed,
    TaskParked,
    UnitCommitted,
    WorkerLost,
    WorkerReady,
    WorkerSetupFailed,
)
from thresher.scheduler.model import OpSpec


def test_a_task_that_fails_before_it_emitted_is_tried_again_alone() -> None:
    play = Play(READ_FILTER_WRITE)
    play.ready()
    play.units("u")
    play.feed(done(-1, 1, 1))
    sent = only(play.feed(TaskFailed(1, 1, "ValueError", "odd")), "Dispatch")
    assert (sent[0].tasks[0].task, sent[0].tasks[0].epoch) == (1, 0)


def test_a_task_that_fails_too_often_ends_the_run_and_is_named() -> None:
    play = Play(READ_FILTER_WRITE)
    play.ready()
    play.units("u")
    play.feed(done(-1, 1, 1))
    play.feed(TaskFailed(1, 1, "ValueError", "odd"), TaskFailed(1, 1, "ValueError", "odd"))
    (fail,) = only(play.feed(TaskFailed(1, 1, "ValueError", "odd")), "Fail")
    assert (fail.unit, fail.op) == ("u", 1)
    assert fail.reason == "unit 'u' failed 3 times in filter, the last time: ValueError: odd"
    assert play.feed(done(1, 1)) == [], "after the end nothing is decided"


def test_a_fatal_failure_ends_the_run_at_once() -> None:
    play = Play(WHOLE)
    play.ready()
    play.units("u")
    assert isinstance(play.feed(TaskFailed(-1, 1, "DiskFull", "no space", fatal=True))[0], Fail)


def test_a_task_that_emitted_takes_its_unit_with_it_and_stale_results_are_dropped() -> None:
    play = Play(READ_FILTER_WRITE, workers=2)
    play.ready()
    play.units("u")
    # 1. The reader emits a batch, which a second worker filters.
    assert dispatched(play.feed(TaskEmitted(-1, 1, batches(1)))) == [(2, 1, [1])]
    # 2. The reader dies. The unit starts again under epoch 1, on a new root task.
    actions = play.feed(WorkerLost(1, "killed"))
    assert only(actions, "StartWorker") == [StartWorker(3)]
    # 3. The filter of epoch 0 ends: its output and its input are freed, and the new epoch gets the worker.
    actions = play.feed(done(1, 2, 7))
    assert actions[0] == Release((7, 1))
    (sent,) = only(actions, "Dispatch")
    assert (sent.tasks[0].unit, sent.tasks[0].epoch, sent.tasks[0].task) == ("u", 1, -2)


def test_only_the_current_task_of_a_lost_worker_is_blamed() -> None:
    model = OpSpec(index=1, name="model", next=2, output_bytes=100, dedicated_workers=1, max_attempts=2)
    play = Play((READ_FILTER_WRITE[0], model, READ_FILTER_WRITE[2]))
    play.ready()
    play.units("u")
    play.feed(done(-1, 1, 1, 2))  # worker 2 runs task 1 and holds task 2
    play.feed(WorkerLost(2, "crash"))
    tasks = play.scheduler.state.tasks
    assert (tasks[1].attempts, tasks[2].attempts) == (1, 0)
    play.feed(WorkerReady(3))
    (fail,) = only(play.feed(WorkerLost(3, "crash")), "Fail")
    assert "unit 'u' failed 2 times in model, the last time: crash" in fail.reason


def test_deaths_whose_cause_will_be_isolated_blame_nobody_and_the_unit_starts_again_each_time() -> None:
    play = Play(WHOLE, workers=1)
    play.ready()
    play.units("u")
    for number in range(1, 40):
        actions = play.feed(WorkerLost(number, "crash", blamed=False), WorkerReady(number + 1))
        assert only(actions, "Fail") == []
        (sent,) = only(actions, "Dispatch")
        assert (sent.worker, sent.tasks[0].epoch) == (number + 1, number)


def test_a_lost_sink_worker_takes_the_units_it_was_writing_with_it() -> None:
    play = Play(READ_WRITE, workers=2)
    play.ready()
    play.units("u")
    assert dispatched(play.feed(TaskEmitted(-1, 1, batches(1)))) == [(2, 1, [1])]
    play.feed(done(1, 2))  # written, but only in worker 2
    play.feed(WorkerLost(2, "killed"))
    assert play.scheduler.state.units["u"].epoch == 1
    # The reader of epoch 0 still runs. What it emits is freed on arrival; when it parks, it is closed.
    assert play.feed(TaskEmitted(-1, 1, batches(5))) == [Release((5,))]
    actions = play.feed(TaskParked(-1, 1, batches(6)))
    assert actions[:2] == [Release((6,)), Requeue(1, (-1,))]
    assert only(actions, "Dispatch")[0].tasks[0].epoch == 1


def test_a_worker_lost_before_it_answered_a_commit_makes_the_unit_start_again() -> None:
    play = Play(WHOLE, workers=2)
    play.ready()
    play.units("u")
    assert play.feed(done(-1, 1)) == [Commit("u", 0, worker=1)]
    sent = only(play.feed(WorkerLost(1, "killed")), "Dispatch")
    assert (sent[0].worker, sent[0].tasks[0].epoch) == (2, 1)


def test_a_commit_that_was_recorded_after_all_is_final_whatever_the_epoch() -> None:
    play = Play(WHOLE, workers=2)
    play.ready()
    play.units("u")
    # 1. Worker 1 records the commit and dies before it can say so; the unit starts again on worker 2.
    play.feed(done(-1, 1), WorkerLost(1, "killed"))
    # 2. The driver finds the record: the unit is done, and what worker 2 does is in vain.
    assert only(play.feed(UnitCommitted("u", 0)), "Finish") == [Finish("finished")]


def test_a_failed_commit_is_tried_again_under_a_new_epoch_and_not_for_ever() -> None:
    play = Play(WHOLE)
    play.ready()
    play.units("u")
    for epoch in (0, 1):
        play.feed(done(-1 - epoch, 1))
        actions = play.feed(CommitFailed("u", epoch, "no space"))
        assert only(actions, "Requeue") == [Requeue(1, (), "u", epoch + 1)], "its half-written file is dropped"
        assert only(actions, "Dispatch")[0].tasks[0].epoch == epoch + 1
    play.feed(done(-3, 1))
    (fail,) = only(play.feed(CommitFailed("u", 2, "no space")), "Fail")
    assert "commit failed: no space" in fail.reason


def test_a_commit_that_cannot_succeed_ends_the_run() -> None:
    play = Play(WHOLE)
    play.ready()
    play.units("u")
    play.feed(done(-1, 1))
    assert isinstance(play.feed(CommitFailed("u", 0, "read-only", retryable=False))[0], Fail)


def test_a_worker_that_cannot_be_set_up_is_replaced_three_times_in_a_row_at_most() -> None:
    play = Play(WHOLE)
    assert play.feed(WorkerSetupFailed(1, "no model")) == [StartWorker(2)]
    assert play.feed(WorkerLost(2, "crashed at import")) == [StartWorker(3)]
    (fail,) = play.feed(WorkerSetupFailed(3, "no model"))
    assert isinstance(fail, Fail)
    assert "shared workers could not be set up, 3 times in a row: no model" in fail.reason


def test_workers_that_die_without_finishing_anything_are_not_replaced_for_ever() -> None:
    play = Play(WHOLE, workers=1)
    worker = 1
    actions = play.feed(WorkerReady(worker))
    while not only(actions, "Fail"):
        actions = play.feed(WorkerLost(worker, "killed"))
        if only(actions, "StartWorker"):
            worker = only(actions, "StartWorker")[0].worker
            play.feed(WorkerReady(worker))
    assert worker < 20


def test_a_stopping_run_does_not_replace_workers() -> None:
    play = Play(WHOLE, workers=2)
    play.ready()
    play.units("a", "b")
    play.feed(StopRequested())
    assert only(play.feed(WorkerLost(1, "killed")), "StartWorker") == []
    play.feed(done(-2, 2))
    assert play.feed(UnitCommitted("b"))[-1] == Finish("stopped")


def test_a_lost_node_takes_all_its_workers_with_it() -> None:
    play = Play(WHOLE, workers=3)
    play.feed(WorkerReady(1, "n1"), WorkerReady(2, "n1"), WorkerReady(3, "n2"))
    play.units("a", "b", "c")
    assert [a.worker for a in only(play.feed(NodeLost("n1")), "StartWorker")] == [4, 5]
    assert list(play.scheduler.state.workers) == [3, 4, 5]


def test_a_lost_payload_makes_its_unit_start_again() -> None:
    play = Play(READ_FILTER_WRITE, workers=1)
    play.ready()
    play.units("u")
    play.feed(TaskEmitted(-1, 1, batches(1)))
    play.feed(PayloadLost(1))
    assert play.scheduler.state.units["u"].epoch == 1
    play.feed(PayloadLost(12345))  # long gone: nobody needs it


def stream_output(task: int, unit: str, *, closes: bool = False) -> Emitted:
    """A batch of one of the units that stream "s" is cut into."""
    return Emitted(task, 100, unit, (0, int(unit[1:])), closes)


def test_a_stream_is_cut_into_units_that_are_committed_one_by_one() -> None:
    play = Play(READ_WRITE, workers=2)
    play.ready()
    play.units("s", stream=True)
    # 1. The first unit is closed with its second batch; the stream goes on with the next one.
    play.feed(TaskEmitted(-1, 1, (stream_output(1, "v0"), stream_output(2, "v0", closes=True))))
    play.feed(done(1, 2))
    assert play.feed(done(2, 2))[-1] == Commit("v0", 0, worker=2)
    # 2. The stream ends; what it had not closed ends with it, and the stream itself is never committed.
    play.feed(UnitCommitted("v0"), TaskDone(-1, 1, (stream_output(3, "v1"),), 1.0))
    (commit,) = only(play.feed(done(3, 2)), "Commit")
    assert commit.unit == "v1"
    assert play.feed(UnitCommitted("v1"))[-1] == Finish("finished")


def test_when_a_stream_is_lost_closed_units_go_on_and_the_open_one_starts_again() -> None:
    play = Play(READ_WRITE, workers=2)
    play.ready()
    play.units("s", stream=True)
    outputs = (stream_output(1, "v0", closes=True), stream_output(2, "v1"))
    play.feed(TaskEmitted(-1, 1, outputs))
    play.feed(WorkerLost(1, "killed"))
    units = play.scheduler.state.units
    assert (units["v0"].epoch, units["v1"].epoch) == (0, 1)
    # The new run emits v0 again, because it is not committed yet: dropped. v1 begins anew.
    (sent,) = only(play.feed(done(1, 2)), "Dispatch")
    assert sent.tasks[0].task == -2
    actions = play.feed(TaskEmitted(-2, 2, (stream_output(3, "v0", closes=True), stream_output(4, "v1"))))
    assert actions[0] == Release((3,))
    assert play.scheduler.state.tasks[4].epoch == 1


def test_a_closed_unit_of_a_stream_that_must_start_again_is_read_in_another_run_of_the_stream() -> None:
    play = Play(READ_WRITE, workers=1)
    play.ready()
    play.units("s", stream=True)
    # 1. Unit v0 is closed and written, but its commit fails while the stream still runs.
    play.feed(TaskParked(-1, 1, (stream_output(1, "v0", closes=True),)))
    play.feed(done(1, 1), CommitFailed("v0", 0, "no space"))
    # 2. The stream ends with v1 complete: only then is it read again, by a new root task.
    assert -2 not in play.scheduler.state.tasks
    play.feed(TaskDone(-1, 1, (stream_output(2, "v1", closes=True),), 1.0))
    assert dispatched(play.feed(done(2, 1))) == [(1, 0, [-2])]
    play.feed(UnitCommitted("v1"))
    # 3. The second run gives v0 under its new epoch; v1 is committed and dropped if it comes again.
    outputs = (stream_output(3, "v0", closes=True), stream_output(4, "v1", closes=True))
    assert Release((4,)) in play.feed(TaskDone(-2, 1, outputs, 1.0))
    assert Commit("v0", 1, worker=1) in play.feed(done(3, 1))


def test_the_oldest_task_gets_a_worker_even_if_younger_generators_are_parked_everywhere() -> None:
    play = Play(READ_WRITE, workers=1, budget=1)
    play.ready()
    play.units("a", "b")
    # 1. Unit a is read and written; unit b is being read.
    play.feed(done(-1, 1, 1))
    play.feed(done(1, 1))
    # 2. The commit of a fails, so a must be read again; and b parks in the only worker's reader.
    play.feed(CommitFailed("a", 0, "no space"))
    actions = play.feed(TaskParked(-2, 1, batches(2)))
    assert dispatched(actions) == [(1, 1, [2])], "what b has emitted can be written meanwhile"
    # 3. Nothing else can run. b gives way without blame, and a is read again.
    actions = play.feed(done(2, 1))
    assert Requeue(1, (-2,)) in actions
    assert dispatched(actions) == [(1, 0, [-3])]
    unit = play.scheduler.state.units["b"]
    assert (unit.epoch, unit.attempts) == (1, 0)


def test_a_unit_that_stands_in_its_own_way_starts_again_and_runs_its_generators_one_by_one() -> None:
    expand = OpSpec(index=1, name="expand", next=2, output_bytes=100, dedicated_workers=1)
    play = Play((READ_FILTER_WRITE[0], expand, READ_FILTER_WRITE[2]), budget=10_000)
    play.ready()
    play.units("u")
    # 1. Worker 2 runs task 1 and holds task 2. Task 1 fails and waits; task 2 begins, emits too much and parks.
    play.feed(done(-1, 1, 1, 2))
    play.feed(TaskFailed(1, 2, "ValueError", "odd"))
    assert dispatched(play.feed(TaskEmitted(2, 2, batches(3, nbytes=20_000)))) == []
    # 2. Task 1 is the oldest, but its only worker holds the parked task 2, whose output waits for task 1.
    actions = play.feed(TaskParked(2, 2))
    assert Requeue(2, (2,)) in actions
    assert only(actions, "Dispatch")[0].tasks[0].epoch == 1
    # 3. In the new epoch task 5 is held back until task 4 has ended and what it emitted is written.
    assert dispatched(play.feed(done(-2, 1, 4, 5))) == [(2, 1, [4])]
    assert dispatched(play.feed(done(4, 2, 6))) == [(1, 2, [6])]
    assert dispatched(play.feed(done(6, 1))) == [(2, 1, [5])]
    assert play.scheduler.state.units["u"].attempts == 0


def test_workers_killed_together_while_starting_are_one_failed_setup() -> None:
    play = Play(WHOLE, workers=4, setup_attempts=2)
    actions = play.feed(*(WorkerLost(worker, "killed") for worker in (1, 2, 3, 4)))
    assert only(actions, "Fail") == []
    again = [action.worker for action in only(actions, "StartWorker")]
    assert len(again) == 4
    (failed,) = only(play.feed(WorkerLost(again[0], "killed")), "Fail")
    assert "2 times in a row: killed" in failed.reason


def test_a_task_that_a_full_worker_hands_back_goes_to_another_and_is_not_blamed() -> None:
    poor = (OpSpec(index=0, name="copy", source=True, sink=True, max_attempts=1),)
    play = Play(poor, workers=2)
    play.ready()
    (first, _, _), _ = dispatched(play.units("x", "y"))
    actions = play.feed(TaskFailed(-1, first, "worker-full", "it had kept too much", blamed=False))
    assert only(actions, "Fail") == []
    assert [action.worker for action in only(actions, "StopWorker")] == [first]
    assert first not in {worker for worker, _, _ in dispatched(actions)}
