# SPDX-License-Identifier: Apache-2.0
"""What a call has used of its time, by a clock that the test moves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from thresher.runtime.crashes.call_clock import LEAST_SHARE, CallClock, Seen, stolen_ns, waits_ns

MS = 10**6
LIMIT_NS = 1000 * MS


def looks_until_late(waited_ms: int = 0, stolen_ms: int = 0, gap_ms: int = 0, most: int = 1000) -> int:
    """Return after how many looks, 100 ms apart, a call of one second is late; `most`: it is not.

    `waited_ms`, `stolen_ms`: of each 100 ms; `gap_ms`: the fifth look comes so much later than it should.
    """
    clock = CallClock(1.0)
    assert clock.interval_ns == 100 * MS
    now_ms = 5000
    for look in range(most):
        now_ms += 100 + (gap_ms if look == 5 else 0)
        seen = Seen(1, LIMIT_NS, {7: look * waited_ms * MS, 8: 0})
        if clock.look(now_ms * MS, {1: seen}, look * stolen_ms * MS):
            return look
    return most


def test_a_call_that_could_run_all_the_time_is_late_after_its_limit() -> None:
    assert looks_until_late() == 11


@pytest.mark.parametrize("gap_ms", [1_000, 60_000, 10**9])
def test_a_gap_in_which_nobody_looked_counts_little(gap_ms: int) -> None:
    assert looks_until_late(gap_ms=gap_ms) == 10


def test_time_without_a_core_is_taken_off() -> None:
    assert looks_until_late(waited_ms=50) == 21
    assert looks_until_late(stolen_ms=50) == 21
    assert looks_until_late(waited_ms=25, stolen_ms=50) == 41


def test_a_wait_that_the_kernel_counts_only_when_it_is_over_is_taken_off_in_full() -> None:
    clock = CallClock(1.0)
    late = []
    for look in range(100):  # the thread runs 20 ms, waits 480 ms, and the counter moves every fifth look
        seen = Seen(1, LIMIT_NS, {7: look // 5 * 480 * MS})
        late.append(bool(clock.look((5000 + look * 100) * MS, {1: seen})))
    assert not any(late), "it had a core for 400 ms"


def test_a_call_that_never_gets_a_core_ends_all_the_same() -> None:
    assert looks_until_late(waited_ms=100) == 10 * LEAST_SHARE + 1


def test_the_next_call_of_a_worker_begins_anew() -> None:
    clock = CallClock(1.0)
    late = [clock.look(step * 100 * MS, {1: Seen(step // 9, LIMIT_NS)}) for step in range(100)]
    assert not any(late), "no call took longer than 800 ms"


def test_calls_are_looked_at_more_often_where_the_limit_is_short() -> None:
    assert [CallClock(limit).interval_ns // MS for limit in (0.01, 0.5, 2, 60)] == [50, 50, 200, 500]


def test_what_waits_for_a_core_is_read_of_all_threads_and_processes_below() -> None:
    command = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    with subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = waits_ns(os.getpid())
        child.communicate(b"\n")
    ended.set()
    thread.join()
    if not found:
        pytest.skip("this kernel does not count how long threads wait for a core")
    assert {os.getpid(), thread.native_id, child.pid} <= set(found)
    assert len([waited for waited in found.values() if waited >= 0]) >= 4, "the process below the child, too"
    assert waits_ns(child.pid) == {}, "it has ended"
    assert stolen_ns() >= 0
