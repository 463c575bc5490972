# SPDX-License-Identifier: Apache-2.0
"""Bytes in flight: credits, parking, the oldest task's reserve, debt."""

from __future__ import annotations

from tests.unit.scheduler.play import READ_FILTER_WRITE, READ_WRITE, Play, batches, dispatched, done, only
from thresher.scheduler.actions import Requeue, Resume
from thresher.scheduler.events import TaskEmitted, TaskParked, UnitCommitted
from thresher.scheduler.model import NO_LIMIT, OpSpec


def test_a_task_that_emits_is_given_credit_and_a_sink_none() -> None:
    play = Play(READ_WRITE, budget=10_000)
    play.ready()
    sent = only(play.units("u"), "Dispatch")
    assert sent[0].tasks[0].credit == 200, "two batches of the expected size"
    sent = only(play.feed(done(-1, 1, 1)), "Dispatch")
    assert sent[0].tasks[0].credit == NO_LIMIT


def test_credit_that_was_not_used_returns() -> None:
    play = Play(READ_WRITE, budget=10_000)
    play.ready()
    play.units("u")
    assert play.scheduler.state.reserved == 200
    play.feed(TaskEmitted(-1, 1, batches(1, nbytes=60)))
    assert (play.scheduler.state.used, play.scheduler.state.reserved) == (60, 140)
    play.feed(done(-1, 1))
    assert (play.scheduler.state.used, play.scheduler.state.reserved) == (60, 0)


def test_a_worker_with_a_parked_generator_goes_on_with_downstream_tasks() -> None:
    play = Play(READ_FILTER_WRITE, budget=100)
    play.ready()
    # 1. The budget has room for one batch: the reader gets credit for one and parks after it.
    assert only(play.units("u"), "Dispatch")[0].tasks[0].credit == 100
    actions = play.feed(TaskParked(-1, 1, batches(1)))
    # 2. Its child is now the oldest task: it runs on the same worker, beyond the budget, on a reserve of one batch.
    assert dispatched(actions) == [(1, 1, [1])]
    # 3. The filter's child goes to the writer, and only then is there room for the reader again.
    assert dispatched(play.feed(done(1, 1, 2))) == [(1, 2, [2])]
    assert only(play.feed(done(2, 1)), "Resume") == [Resume(1, -1, 100)]
    # 4. The reader ends, and the unit is complete.
    assert only(play.feed(done(-1, 1)), "Commit")[0].unit == "u"


def test_when_the_budget_is_used_only_the_oldest_task_runs() -> None:
    play = Play(READ_FILTER_WRITE, workers=3, budget=200)
    play.ready()
    play.units("a", "b")
    assert play.scheduler.state.running == 1, "half the budget is for sources: one batch"
    actions = play.feed(done(-1, 1, 1, 2, 3))
    assert [tasks for _, _, tasks in dispatched(actions)] == [[1]], "300 bytes are in flight: task 2 and unit b wait"


def test_debt_keeps_everything_upstream_waiting_until_it_is_repaid() -> None:
    play = Play(READ_WRITE, workers=2, budget=1_000)
    play.ready()
    play.units("a", "b", "c")
    assert play.scheduler.state.running == 2
    # 1. Unit a emits far beyond its credit: accounted at once.
    play.feed(TaskEmitted(-1, 1, batches(1, nbytes=5_000)))
    assert play.scheduler.state.used == 5_000
    # 2. Unit b ends; its worker may write what is oldest, but unit c must not start.
    assert dispatched(play.feed(done(-2, 2))) == [(2, 1, [1])]
    assert dispatched(play.feed(done(-1, 1), UnitCommitted("b"))) == [], "worker 1 is idle, and yet c waits"
    # 3. Once the debt is written, unit c starts.
    assert [(op, tasks) for _, op, tasks in dispatched(play.feed(done(1, 2)))] == [(0, [-3])]


def test_a_parked_generator_is_not_entered_again_and_tasks_behind_it_are_taken_back() -> None:
    model = OpSpec(index=1, name="expand", next=2, output_bytes=100, dedicated_workers=1)
    play = Play((READ_FILTER_WRITE[0], model, READ_FILTER_WRITE[2]), budget=1_000)
    play.ready()
    play.units("u")
    play.feed(done(-1, 1, 1, 2))
    # The dedicated worker runs task 1 and holds task 2; when 1 parks, 2 cannot run behind it.
    actions = play.feed(TaskParked(1, 2, batches(10, 11)))
    assert only(actions, "Requeue") == [Requeue(2, (2,))]
    assert only(actions, "Resume") == [Resume(2, 1, 200)]
    assert dispatched(actions)[0][2] == [10], "its first child is written meanwhile"


def test_a_third_generator_in_a_worker_runs_through_instead_of_parking() -> None:
    ops = tuple(OpSpec(index=n, name=f"op{n}", source=n == 0, next=n + 1, output_bytes=100) for n in range(3))
    play = Play((*ops, OpSpec(index=3, name="write", sink=True, ordered=True)), budget=1)
    play.ready()
    play.units("u")
    play.feed(TaskParked(-1, 1, batches(1)))
    actions = play.feed(TaskParked(1, 1, batches(2)))
    sent = only(actions, "Dispatch")
    assert (sent[0].op, sent[0].tasks[0].credit) == (2, NO_LIMIT)


def test_sources_do_not_run_ahead_of_the_window_however_large_the_budget() -> None:
    play = Play(READ_WRITE, workers=2, budget=10**12, window_batches=2)
    play.ready()
    play.units("u")
    parked = play.feed(TaskParked(-1, 1, batches(1, 2, 3, 4, 5)))
    assert only(parked, "Resume") == [], "five batches are in flight, the window is four"
    assert only(play.feed(done(1, 2)), "Resume") == []
    assert only(play.feed(done(2, 2)), "Resume") == [Resume(1, -1, 200)]


def test_the_window_grows_when_workers_run_dry_after_a_source_was_held_back() -> None:
    model = OpSpec(index=1, name="model", next=2, output_bytes=100, dedicated_workers=1)
    play = Play((READ_FILTER_WRITE[0], model, READ_FILTER_WRITE[2]), budget=10**9)
    play.ready()
    play.units(*"abcd")
    source = play.scheduler.state.ops[0]
    narrow = source.window
    # 1. The reader could go on, but the window is full.
    play.feed(done(-1, 1, *range(1, narrow + 1)))
    # 2. The model works everything off, and the reader has nothing new yet: it should have been further ahead.
    for task in range(1, narrow):
        play.feed(done(task, 2))
    assert source.window == narrow, "the model still has work"
    play.feed(done(narrow, 2))
    assert narrow < source.window <= 2 * narrow


def test_the_window_stays_when_tasks_wait_further_down() -> None:
    model = OpSpec(index=1, name="model", next=2, output_bytes=100, dedicated_workers=1)
    last = OpSpec(index=2, name="write")
    play = Play((READ_FILTER_WRITE[0], model, last), budget=10**9)
    play.ready()
    play.units(*"abcd")
    source = play.scheduler.state.ops[0]
    narrow = source.window
    play.feed(done(-1, 1, *range(1, narrow + 1)))
    for task in range(1, narrow + 1):
        play.feed(done(task, 2, 100 + task))
    assert play.scheduler.state.ops[2].nready, "the shared worker cannot keep up with the writing"
    assert source.window == narrow


def test_the_window_stays_when_the_source_is_the_bottleneck() -> None:
    model = OpSpec(index=1, name="model", next=2, output_bytes=100, dedicated_workers=1)
    play = Play((READ_FILTER_WRITE[0], model, READ_FILTER_WRITE[2]), budget=10**9)
    play.ready()
    play.units(*"abcdefgh")
    narrow = play.scheduler.state.ops[0].window
    for number in range(1, 9):
        play.feed(done(-number, 1, number), done(number, 2), UnitCommitted("abcdefgh"[number - 1]))
    assert play.scheduler.state.ops[0].window == narrow


def test_the_estimate_of_a_batch_follows_what_is_measured() -> None:
    play = Play(READ_WRITE, budget=1_000_000)
    play.ready()
    play.units("a", "b")
    play.feed(TaskEmitted(-1, 1, batches(1, nbytes=1_000)))
    assert play.scheduler.state.ops[0].credit == 2_000
    play.feed(TaskEmitted(-1, 1, batches(*range(2, 60), nbytes=10)))
    assert play.scheduler.state.ops[0].credit <= 40
