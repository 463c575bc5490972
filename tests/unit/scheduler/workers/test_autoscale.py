# SPDX-License-Identifier: Apache-2.0
"""When numbers of workers change: a guess at first, corrected at once by what is measured, then with patience."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.unit.scheduler.play import Play, done, only
from thresher.scheduler.actions import AnyAction
from thresher.scheduler.events import Tick, WorkerReady
from thresher.scheduler.model import NodeSpec, OpSpec

READ, DEAR, CHEAP, WRITE = range(4)
OPS = (
    OpSpec(index=READ, name="read", source=True, next=DEAR, output_bytes=100),
    OpSpec(index=DEAR, name="dear", next=CHEAP, output_bytes=100, dedicated=True, gpus=1.0),
    OpSpec(index=CHEAP, name="cheap", next=WRITE, output_bytes=100, dedicated=True, gpus=1.0),
    OpSpec(index=WRITE, name="write", sink=True, ordered=True),
)


class Models(Play):
    """Two models on four devices; the workers of the first one are slow to start."""

    def __init__(self) -> None:
        super().__init__(OPS, budget=1_000_000, nodes=(NodeSpec(cpus=1.0, gpus=(1,) * 4),))
        self.starting: dict[int, int | None] = {}
        self.of: dict[int, int | None] = {}
        self.decisions: list[tuple[int, int, int]] = []
        self.note(self.started)
        self.units(*(f"u{n:03}" for n in range(500)))

    def note(self, actions: list[AnyAction]) -> None:
        for action in only(actions, "StartWorker"):
            self.starting[action.worker] = self.of[action.worker] = action.op
        for action in only(actions, "StopWorker"):
            del self.of[action.worker]
        self.decisions += [(action.op, action.before, action.workers) for action in only(actions, "Rescale")]

    def up(self, chosen: Callable[[int | None], bool], setup_s: float) -> None:
        """The workers of some ops that still start are ready."""
        for worker in [worker for worker, op in self.starting.items() if chosen(op)]:
            del self.starting[worker]
            self.note(self.feed(WorkerReady(worker, setup_s=setup_s)))

    def tick(self, time_s: float) -> None:
        self.note(self.feed(Tick(time_s)))

    def work(self, rounds: int, dear_s: float, cheap_s: float) -> None:
        """Every worker ends what it holds, so many times."""
        times_s = {READ: 0.004, DEAR: dear_s, CHEAP: cheap_s, WRITE: 0.002}
        fresh = 1 + max([0, *self.scheduler.state.tasks])
        for _ in range(rounds):
            held = [
                (t.id, w.id, t.op) for w in self.scheduler.state.workers.values() for t in w.queue if hasattr(t, "op")
            ]
            for task, worker, op in held:
                outputs = (fresh,) if op.emits else ()
                fresh += 1
                self.note(self.feed(done(task, worker, *outputs, busy_s=times_s[op.index])))

    def numbers(self) -> tuple[int, int]:
        count = Counter(self.of.values())
        return count[DEAR], count[CHEAP]


def is_quick(op: int | None) -> bool:
    return op != DEAR


def is_dear(op: int | None) -> bool:
    return op == DEAR


def test_an_op_that_starts_slowly_gets_what_the_others_can_spare() -> None:
    play = Models()
    assert play.numbers() == (2, 2)
    play.up(is_quick, 0.3)
    play.tick(0.5)
    assert play.numbers() == (2, 2), "half a second is not slow"
    play.tick(2.5)
    assert play.numbers() == (3, 1)
    assert sorted(play.decisions) == [(DEAR, 2, 3), (CHEAP, 2, 1)], "observers see both decisions, once"


def test_nothing_changes_while_all_ops_start() -> None:
    play = Models()
    for tick in range(40):
        play.tick(tick / 2)
    assert play.numbers() == (2, 2)


@pytest.mark.parametrize(
    ("dear_s", "cheap_s", "best"), [(0.15, 0.05, (3, 1)), (0.1, 0.1, (2, 2)), (0.05, 0.15, (1, 3))]
)
def test_the_first_measured_numbers_replace_the_guess_at_once(
    dear_s: float, cheap_s: float, best: tuple[int, int]
) -> None:
    play = Models()
    play.up(is_quick, 0.3)
    play.tick(2.5)
    play.up(is_dear, 20.0)
    play.work(20, dear_s, cheap_s)
    play.tick(23.0)
    play.work(3, dear_s, cheap_s)
    assert play.numbers() == best, "though its workers took 20 s to start: they were only ever a guess"


def test_a_worker_that_still_starts_when_the_number_goes_down_is_not_kept_instead_of_one_that_is_up() -> None:
    play = Models()
    play.up(is_quick, 0.3)
    play.tick(2.5)
    third = max(worker for worker, op in play.starting.items() if op == DEAR)
    late = play.starting.pop(third)
    play.up(is_dear, 20.0)
    play.work(20, 0.05, 0.15)
    play.tick(20.5)
    play.work(3, 0.05, 0.15)
    assert play.numbers() == (2, 2), "one that is up stays, and the third cannot be stopped before it is up"
    play.starting[third] = late
    play.up(is_dear, 20.0)
    play.tick(22.5)
    play.work(3, 0.05, 0.15)
    assert play.numbers() == (1, 3)


def test_measured_numbers_go_down_with_patience() -> None:
    play = Models()
    play.up(is_quick, 0.3)
    play.tick(2.5)
    play.up(is_dear, 20.0)
    play.work(20, 0.15, 0.05)
    play.tick(23.0)
    assert play.numbers() == (3, 1)
    play.work(40, 0.05, 0.15)
    play.tick(26.0)
    play.work(3, 0.05, 0.15)
    play.tick(60.0)
    play.work(3, 0.05, 0.15)
    assert play.numbers() == (3, 1), "twice its start is 40 s"
    play.tick(66.5)
    play.work(3, 0.05, 0.15)
    assert play.numbers() == (1, 3)
