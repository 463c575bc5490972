# SPDX-License-Identifier: Apache-2.0
"""Room on devices does not stay in pieces that nobody can use."""

from __future__ import annotations

from tests.unit.scheduler.play import Play
from thresher.scheduler.model import NodeSpec, OpSpec
from thresher.scheduler.state import WorkerState
from thresher.scheduler.workers.autoscale import defragment, drain_surplus, workers_to_move
from thresher.scheduler.workers.pools import Pool, refill, remove_worker, stop_drained

OPS = (
    OpSpec(index=0, name="read", source=True, next=1, output_bytes=100),
    OpSpec(index=1, name="small", next=2, output_bytes=100, dedicated=True, gpus=0.25),
    OpSpec(index=2, name="large", next=3, output_bytes=100, dedicated=True, gpus=0.5),
    OpSpec(index=3, name="write", sink=True, ordered=True),
)


def three_devices() -> tuple[Play, Pool, Pool]:
    """Three large and six small workers fill three devices: two large, one large with two small, four small."""
    play = Play(OPS, budget=1_000_000, nodes=(NodeSpec(cpus=2.0, gpus=(1,) * 3),))
    play.ready()
    play.units(*(f"u{n:03}" for n in range(500)))
    small, large = (next(p for p in play.scheduler.state.pools if p.dedicated == op) for op in (1, 2))
    assert (small.size, large.size) == (6, 3)
    return play, small, large


def workers_of(play: Play, pool: Pool) -> list[WorkerState]:
    return [worker for worker in play.scheduler.state.workers.values() if worker.pool is pool]


def in_pieces() -> tuple[Play, Pool, Pool]:
    """One small worker too few on each of two devices, where a large one would need both places on one device."""
    play, small, large = three_devices()
    state = play.scheduler.state
    for device in (1, 2):
        gone = next(w for w in workers_of(play, small) if w.place.devices == (device,))
        remove_worker(state, gone)
    small.target, large.target = 4, 4
    refill(state, large)
    assert (small.size, large.size) == (4, 3), "there is no room for the fourth large one"
    return play, small, large


def test_workers_that_are_too_many_leave_the_same_device() -> None:
    play, small, _ = three_devices()
    idle = {next(w.id for w in workers_of(play, small) if w.place.devices == (device,)) for device in (1, 2)}
    for worker in workers_of(play, small):
        worker.groups = int(worker.id not in idle)
    small.target = 4
    drain_surplus(play.scheduler.state, small)
    draining = [worker.place.devices for worker in workers_of(play, small) if worker.draining]
    assert len(draining) == 2
    assert len(set(draining)) == 1, "so that a large one fits where they were"


def test_a_small_worker_moves_where_it_keeps_a_large_one_out() -> None:
    play, small, large = in_pieces()
    state = play.scheduler.state
    (moving,) = workers_to_move(state, large)
    assert moving.pool is small
    defragment(state)
    assert moving.draining
    defragment(state)
    assert small.draining == 1, "one move at a time"
    for worker in workers_of(play, small):
        worker.queue.clear()
    stop_drained(state)
    assert (small.size, large.size) == (4, 4)


def test_nobody_moves_where_that_makes_no_room() -> None:
    play, small, large = three_devices()
    large.target = 4
    refill(play.scheduler.state, large)
    defragment(play.scheduler.state)
    assert workers_to_move(play.scheduler.state, large) == []
    assert small.draining == 0
