# SPDX-License-Identifier: Apache-2.0
"""Large records: workers wait for room, whoever is alone is let in, and a worker that died leaves its room."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from thresher.runtime import large_gate
from thresher.runtime.large_gate import LargeGate, OpenGate, gate_for

MEMORY = 10**9
HUGE, SMALL = 10**9, 1000
WORKER_BYTES = 30 * 10**6
"""What each worker of these tests is taken to be, however large the process is that runs them."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A table as a zygote makes it."""
    monkeypatch.setattr(large_gate, "_table_fd", None)
    monkeypatch.setattr(large_gate, "_gates", {})
    large_gate.create_table()
    fd = large_gate.find_table()
    assert fd is not None
    yield fd
    os.close(fd)


def gate_of(table: int) -> LargeGate:
    """The gate of a worker of ordinary size."""
    return LargeGate(table, MEMORY, lambda: WORKER_BYTES)


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
        gate.enter(nbytes)
        child.say("i")
        child.wait()
        gate.leave(nbytes)
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
    gate.enter(100 * MEMORY)
    assert gate.inside
    gate.leave(100 * MEMORY)
    assert not gate.inside


def test_a_size_that_turns_out_smaller_makes_room_at_once(table: int) -> None:
    gate = gate_of(table)
    gate.enter(HUGE)
    second = holder(table, SMALL)
    assert not second.has_spoken()
    gate.enter(SMALL)
    assert second.hear() == "i"
    gate.leave(SMALL)
    second.go()
    second.end()


def test_a_record_may_be_read_while_another_is_worked_on_and_then_waits(table: int) -> None:
    size = MEMORY // 16
    gate = gate_of(table)
    gate.enter(size)

    def work(child: Child) -> None:
        own = gate_of(table)
        own.read(size)
        child.say("r")
        own.enter(size)
        child.say("i")
        own.leave(size)

    second = Child(work)
    assert second.hear() == "r"
    assert not second.has_spoken()
    gate.leave(size)
    assert second.hear() == "i"
    second.end()


def test_readers_alone_never_wait_for_each_other_for_ever(table: int) -> None:
    size = MEMORY // 16

    def work(child: Child) -> None:
        own = gate_of(table)
        own.read(size)
        own.enter(size)
        own.leave(size)
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
        gate.enter(size)
        held = bytearray(b"x") * (4 * size)
        del held
        gate.leave(size)
    assert 3.5 < other._factor() < 5.5


def test_without_a_limit_or_without_other_workers_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_gate, "_table_fd", None)
    monkeypatch.setattr(large_gate, "_gates", {})
    gate = gate_for(0)
    assert isinstance(gate, OpenGate)
    gate.enter(HUGE)
    gate.leave(HUGE)
