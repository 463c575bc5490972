# SPDX-License-Identifier: Apache-2.0
"""Large records: workers wait for room, whoever is alone is let in, and a worker that died leaves its room."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.runtime.memory import admission as large_gate
from thresher.runtime.memory import large_table
from thresher.runtime.memory.admission import LargeGate, ProcessMeter, gate_for
from thresher.runtime.memory.large_table import is_safe
from thresher.runtime.memory.usage import private_bytes

pytestmark = pytest.mark.usefixtures("small_heap")

MEMORY = 10**9
HUGE, SMALL = 10**9, 1000
STEP, NEXT_STEP = STEPS = (0, 3)
"""What a record goes through."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A table as a zygote makes it."""
    monkeypatch.setattr(large_table, "_table_fd", None)
    monkeypatch.setattr(large_gate, "_gate", None)
    large_table.create_table()
    fd = large_table.find_table()
    assert fd is not None
    yield fd
    os.close(fd)


class OrdinarySizes(ProcessMeter):
    """What processes of a run take, however large the process is that runs these tests."""

    def own(self) -> int:
        return 30 * 10**6

    def above(self) -> int:
        return 80 * 10**6


def gate_of(table: int) -> LargeGate:
    """The gate of a worker of ordinary size."""
    return LargeGate(table, MEMORY, OrdinarySizes())


class Child:
    """A forked process that works on its own while this one looks at it through pipes."""

    def __init__(self, work: Callable[[Child], None]) -> None:
        self._from_child, self._says = os.pipe()
        self._hears, self._to_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            work(self)
            os._exit(0)

    def say(self, word: str) -> None:
        """In the child: a word of one letter to the test."""
        os.write(self._says, word.encode())

    def wait(self) -> None:
        """In the child: until the test says `go`."""
        os.read(self._hears, 1)

    def go(self) -> None:
        """In the test: let the child go on."""
        os.write(self._to_child, b"g")

    def hear(self) -> str:
        """In the test: the next word of the child."""
        return os.read(self._from_child, 1).decode()

    def has_spoken(self) -> bool:
        """In the test: whether there is a word; asked only where the child cannot go on."""
        import select

        return bool(select.select([self._from_child], [], [], 0.1)[0])

    def end(self) -> None:
        """In the test: reap it."""
        os.waitpid(self.pid, 0)
        for fd in (self._from_child, self._says, self._hears, self._to_child):
            os.close(fd)


def holder(table: int, nbytes: int) -> Child:
    """A worker that goes in with a record, says so, and leaves when it is told."""

    def work(child: Child) -> None:
        gate = gate_of(table)
        gate.enter(nbytes, STEP, STEPS)
        child.say("i")
        child.wait()
        gate.leave()
        child.say("o")

    return Child(work)


def test_a_record_waits_while_another_takes_the_room(table: int) -> None:
    first = holder(table, HUGE)
    assert first.hear() == "i"
    second = holder(table, HUGE)
    assert not second.has_spoken()
    first.go()
    assert first.hear() == "o"
    assert second.hear() == "i"
    second.go()
    first.end()
    second.end()


def test_records_that_fit_together_are_let_in_together(table: int) -> None:
    children = [holder(table, SMALL) for _ in range(3)]
    assert [child.hear() for child in children] == ["i"] * 3
    for child in children:
        child.go()
        child.end()


def test_whoever_is_alone_is_let_in_however_large(table: int) -> None:
    gate = gate_of(table)
    gate.enter(100 * MEMORY, STEP, STEPS)
    assert gate.inside
    gate.leave()
    assert not gate.inside


def test_a_size_that_turns_out_smaller_makes_room_at_once(table: int) -> None:
    gate = gate_of(table)
    gate.enter(HUGE, STEP, STEPS)
    second = holder(table, SMALL)
    assert not second.has_spoken()
    gate.enter(SMALL, STEP, STEPS)
    assert second.hear() == "i"
    gate.leave()
    second.go()
    second.end()


def test_a_record_may_be_read_while_another_is_worked_on_and_then_waits(table: int) -> None:
    size = MEMORY // 16
    gate = gate_of(table)
    gate.enter(size, STEP, STEPS)

    def work(child: Child) -> None:
        own = gate_of(table)
        own.read(size, STEPS)
        child.say("r")
        own.enter(size, STEP, STEPS)
        child.say("i")
        own.leave()

    second = Child(work)
    assert second.hear() == "r"
    assert not second.has_spoken()
    gate.leave()
    assert second.hear() == "i"
    second.end()


def measured(gate: LargeGate, factors: dict[int, float]) -> None:
    """As if records had taken so many times their size in these steps."""
    for step, factor in factors.items():
        gate._table.set_factor(step, factor)


def test_a_step_that_takes_little_goes_on_beside_one_that_takes_much_but_two_of_those_do_not(table: int) -> None:
    size = MEMORY // 16
    gate = gate_of(table)
    measured(gate, {STEP: 3.0, NEXT_STEP: 8.0})
    gate.enter(size, NEXT_STEP, STEPS)

    def work(child: Child) -> None:
        own = gate_of(table)
        own.enter(size, STEP, STEPS)
        child.say("1")
        own.enter(size, NEXT_STEP, STEPS)
        child.say("2")
        own.leave()

    second = Child(work)
    assert second.hear() == "1"
    assert not second.has_spoken()
    gate.enter(size, STEP, STEPS)
    assert second.hear() == "2"
    gate.leave()
    second.end()


def test_of_records_that_all_turn_out_to_need_more_one_goes_on(table: int) -> None:
    """1. Two go in. 2. More is measured than was expected. 3. Both ask for it. 4. One gets it, then the other."""
    size = MEMORY // 16

    def work(child: Child) -> None:
        own = gate_of(table)
        own.enter(size, STEP, STEPS)
        child.say("1")
        child.wait()
        own.enter(size, NEXT_STEP, STEPS)
        own.leave()
        child.say("2")

    measured(gate_of(table), {STEP: 3.0, NEXT_STEP: 3.0})
    children = [Child(work), Child(work)]
    assert [child.hear() for child in children] == ["1", "1"]
    measured(gate_of(table), {NEXT_STEP: 12.0})
    for child in children:
        child.go()
    assert [child.hear() for child in children] == ["2", "2"]
    for child in children:
        child.end()


@given(
    st.integers(min_value=0, max_value=40),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: (min(pair), max(pair))), max_size=5),
)
def test_room_is_safe_exactly_if_some_order_lets_all_come_to_their_end(
    room: int, records: list[tuple[int, int]]
) -> None:
    def comes_to_its_end(order: tuple[tuple[int, int], ...]) -> bool:
        left = room - sum(taken for taken, _ in order)
        for taken, claim in order:
            if claim - taken > left:
                return False
            left += taken
        return True

    fits = sum(taken for taken, _ in records) <= room
    assert is_safe(room, records) == (fits and any(map(comes_to_its_end, permutations(records))))


def test_readers_alone_never_wait_for_each_other_for_ever(table: int) -> None:
    size = MEMORY // 16

    def work(child: Child) -> None:
        own = gate_of(table)
        own.read(size, STEPS)
        own.enter(size, STEP, STEPS)
        own.leave()
        child.say("o")

    children = [Child(work) for _ in range(6)]
    assert [child.hear() for child in children] == ["o"] * 6
    for child in children:
        child.end()


def test_a_worker_that_died_inside_leaves_its_room(table: int) -> None:
    first = holder(table, HUGE)
    assert first.hear() == "i"
    os.kill(first.pid, signal.SIGKILL)
    first.end()
    second = holder(table, HUGE)
    assert second.hear() == "i"
    second.go()
    second.end()


def test_how_much_a_record_takes_is_measured_for_all(table: int) -> None:
    gate, other = gate_of(table), gate_of(table)
    size = 20 * 10**6
    for _ in range(40):
        gate.enter(size, STEP, STEPS)
        held = bytearray(b"x") * (4 * size)
        del held
        gate.leave()
    assert 3.5 < other._factor(STEP) < 5.5


def test_without_a_limit_or_without_other_workers_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_table, "_table_fd", None)
    monkeypatch.setattr(large_gate, "_gate", None)
    assert gate_for(0) is None
    assert gate_for(HUGE) is None


def test_many_records_cost_one_exact_measurement_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def exact(pid: int) -> int:
        measured.append(pid)
        return private_bytes(pid) + 10**9

    monkeypatch.setattr(large_gate, "proportional_bytes", exact)
    meter = ProcessMeter()
    found = [(meter.own(), meter.above()) for _ in range(20)]
    assert len(measured) == len(set(measured))
    assert all(own > 10**9 and above > 10**9 for own, above in found)
