# SPDX-License-Identifier: Apache-2.0
"""What failed waits before it is tried again; what did not fail itself does not."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.play import READ_FILTER_WRITE, WHOLE, Play, dispatched, done
from thresher.scheduler.events import CommitFailed, TaskFailed, Tick, WorkerLost, WorkerReady
from thresher.scheduler.units import MAX_DELAY_S, delay_of


def failing_filter() -> Play:
    """A run whose filter is about to fail on task 1, at second 10."""
    play = Play(READ_FILTER_WRITE, backoff_s=0.5)
    play.ready()
    play.units("u")
    play.feed(Tick(10.0), done(-1, 1, 1))
    return play


def test_a_task_that_failed_waits_and_twice_as_long_after_the_next_failure() -> None:
    play = failing_filter()
    assert dispatched(play.feed(TaskFailed(1, 1, "ValueError", "odd"), Tick(10.4))) == []
    assert dispatched(play.feed(Tick(10.5))) == [(1, 1, [1])]
    assert dispatched(play.feed(TaskFailed(1, 1, "ValueError", "odd"), Tick(11.0))) == []
    assert dispatched(play.feed(Tick(11.5))) == [(1, 1, [1])]


def test_others_go_on_meanwhile() -> None:
    play = Play(WHOLE, backoff_s=0.5)
    play.ready()
    play.feed(Tick(10.0))
    play.units("u", "v")
    assert dispatched(play.feed(TaskFailed(-1, 1, "OSError", "busy"))) == [(1, 0, [-2])]


def test_a_unit_that_failed_as_a_whole_waits_before_it_starts_again() -> None:
    play = Play(WHOLE, backoff_s=0.5)
    play.ready()
    play.units("u")
    play.feed(Tick(10.0), done(-1, 1))
    assert dispatched(play.feed(CommitFailed("u", 0, "the store is busy"), Tick(10.4))) == []
    assert dispatched(play.feed(Tick(10.5))) == [(1, 0, [-2])]


def test_a_unit_that_starts_again_meanwhile_does_not_run_twice() -> None:
    play = failing_filter()
    play.feed(TaskFailed(1, 1, "ValueError", "odd"))
    # The worker holds nothing, so its loss blames nobody; the reader's batch went with the failed task's wait.
    play.feed(WorkerLost(1, "killed"), WorkerReady(2))
    sent = dispatched(play.feed(Tick(10.5), Tick(11.0), Tick(60.0)))
    assert [task for _, _, tasks in sent for task in tasks] == [1]


def test_whoever_is_not_to_blame_does_not_wait() -> None:
    play = failing_filter()
    assert dispatched(play.feed(TaskFailed(1, 1, "worker-full", "", blamed=False), WorkerReady(2)))[0][2] == [1]


@pytest.mark.parametrize(("failures", "delay_s"), [(0, 0.0), (1, 0.5), (2, 1.0), (3, 2.0), (40, MAX_DELAY_S)])
def test_the_wait_doubles_up_to_a_limit(failures: int, delay_s: float) -> None:
    play = failing_filter()
    assert delay_of(play.scheduler.state, failures) == delay_s


def test_without_ticks_nothing_waits() -> None:
    play = Play(READ_FILTER_WRITE, backoff_s=0.5)
    play.ready()
    play.units("u")
    play.feed(done(-1, 1, 1))
    assert dispatched(play.feed(TaskFailed(1, 1, "ValueError", "odd"))) == [(1, 1, [1])]
