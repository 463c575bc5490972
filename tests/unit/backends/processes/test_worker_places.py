# SPDX-License-Identifier: Apache-2.0
"""Ranks within a stage, and successors that wait until what they need is free."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thresher.backends.processes.worker_places import WorkerPlaces
from thresher.scheduler.actions import StartWorker


def test_ranks_are_counted_for_each_op_and_a_successor_takes_the_free_one() -> None:
    places = WorkerPlaces({1: 3})
    for worker, op in enumerate([1, 1, None, 1], start=1):
        assert places.add(StartWorker(worker, op))
    assert [places.rank(worker) for worker in (1, 2, 4)] == [0, 1, 2]
    assert places.rank(3) == 0
    assert places.gone(2) == []
    assert places.add(StartWorker(5, 1))
    assert places.rank(5) == 1
    assert places.count(1) == 3, "as many as were asked for, whoever is there at the moment"


def test_without_a_fixed_number_those_that_are_there_count() -> None:
    places = WorkerPlaces({})
    places.add(StartWorker(1, 4))
    assert places.count(4) == 1
    places.add(StartWorker(2, 4))
    assert places.count(4) == 2
    places.leave(1)
    assert places.count(4) == 1


def test_a_successor_waits_until_its_device_is_free() -> None:
    places = WorkerPlaces({0: 2})
    assert places.add(StartWorker(1, 0, devices=(0,)))
    assert places.add(StartWorker(2, 0, devices=(1,)))
    assert places.leave(1)
    assert not places.add(StartWorker(3, 0, devices=(0,)))
    assert places.gone(2) == [], "the other device is of no use"
    [started] = places.gone(1)
    assert (started.worker, places.rank(3)) == (3, 0)


def test_a_successor_on_another_device_need_not_wait() -> None:
    places = WorkerPlaces({})
    places.add(StartWorker(1, 0, devices=(0,)))
    places.leave(1)
    assert places.add(StartWorker(2, 0, devices=(1,)))
    assert places.add(StartWorker(3, 7))


def test_a_model_in_host_memory_is_never_there_twice_because_of_a_successor() -> None:
    places = WorkerPlaces({0: 1})
    places.add(StartWorker(1, 0))
    places.leave(1)
    assert not places.add(StartWorker(2, 0))
    assert [action.worker for action in places.gone(1)] == [2]


def test_shared_workers_wait_for_nobody() -> None:
    places = WorkerPlaces({None: 2})
    places.add(StartWorker(1))
    places.leave(1)
    assert places.add(StartWorker(2))
    assert places.rank(2) == 0


def test_a_worker_that_still_waits_can_be_taken_back() -> None:
    places = WorkerPlaces({})
    places.add(StartWorker(1, 0))
    places.leave(1)
    places.add(StartWorker(2, 0))
    assert not places.leave(2), "there is no process to be told"
    assert places.gone(1) == []
    assert places.action(2) is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["start", "stop", "gone"]), st.sampled_from([None, 0, 1]), st.integers(0, 5)),
        max_size=40,
    )
)
def test_whatever_happens_nobody_shares_a_device_with_one_that_leaves_and_no_start_is_forgotten(
    steps: list[tuple[str, int | None, int]],
) -> None:
    """A model of the machine: `running` have a process, `leaving` still have one, `waiting` have none yet."""
    places = WorkerPlaces({})
    running: dict[int, StartWorker] = {}
    leaving: dict[int, StartWorker] = {}
    waiting: dict[int, StartWorker] = {}

    def begin(action: StartWorker) -> None:
        taken = {device for other in leaving.values() for device in other.devices}
        assert taken.isdisjoint(action.devices)
        same_op = [worker for worker, other in running.items() if other.op == action.op]
        assert places.rank(action.worker) not in [places.rank(worker) for worker in same_op]
        running[action.worker] = action

    for number, (what, op, choice) in enumerate(steps, start=1):
        if what == "start":
            action = StartWorker(number, op, devices=() if op is None else (choice % 2,))
            if places.add(action):
                begin(action)
            else:
                waiting[number] = action
        elif what == "stop" and (running or waiting):
            worker = sorted({**running, **waiting})[choice % len({**running, **waiting})]
            assert places.leave(worker) == (worker in running)
            if worker in running:
                leaving[worker] = running.pop(worker)
            else:
                del waiting[worker]
        elif what == "gone" and (running or leaving):
            worker = sorted({**running, **leaving})[choice % len({**running, **leaving})]
            running.pop(worker, None)
            leaving.pop(worker, None)
            for action in places.gone(worker):
                begin(waiting.pop(action.worker))
    for worker in sorted(leaving):
        del leaving[worker]
        for action in places.gone(worker):
            begin(waiting.pop(action.worker))
    assert not waiting, "when all who were to leave have left, all who waited have begun"
