# SPDX-License-Identifier: Apache-2.0
"""Measure how long calls of stages take, without the time in which the machine did not let them run.

A call that waits for a core has not used its time. Three kinds of such time are not counted:

- the process that measures was itself stopped, suspended or not scheduled, so two looks are far apart;
- a thread of the worker, or of a process that it started, was ready to run and had no core;
- the hypervisor gave the cores to somebody else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from thresher.runtime.memory.usage import children_of

LEAST_LOOK_NS, MOST_LOOK_NS = 50_000_000, 500_000_000
"""Limits of the time between two looks."""
LOOKS_PER_LIMIT = 10
"""So often a call is looked at before its time is over, within these limits."""
LATE = 2
"""Between two looks at most so many times the usual interval counts."""
LEAST_SHARE = 20
"""At least one part in so many always counts, so that a call that hangs ends even on a machine that is never idle."""


class Seen(NamedTuple):
    """A call with a limit, as found by a look."""

    turn: int
    """Number of the call in its worker."""
    limit_ns: int
    """Longest time that it may take."""
    waits_ns: Mapping[int, int] = {}
    """By thread: how long it has been ready to run without a core, since it was started."""


class _Timed(NamedTuple):
    """A call since the look that found it first."""

    first: Seen
    stolen_ns: int
    passed_ns: int = 0

    def used_ns(self, now: Seen, stolen_ns: int) -> int:
        """Return the time in which the call could run. The kernel counts a wait only when it is over, so the sums are
        compared, and not what passed between two looks."""
        before = self.first.waits_ns
        waited_ns = max((ns - before.get(thread, 0) for thread, ns in now.waits_ns.items()), default=0)
        taken_ns = waited_ns + stolen_ns - self.stolen_ns
        return max(self.passed_ns // LEAST_SHARE, self.passed_ns - taken_ns)


class CallClock:
    """Adds up what calls have used of their time, look by look."""

    def __init__(self, shortest_limit_s: float) -> None:
        interval_ns = int(shortest_limit_s * 10**9) // LOOKS_PER_LIMIT
        self.interval_ns = max(LEAST_LOOK_NS, min(MOST_LOOK_NS, interval_ns))
        """Time from one look to the next."""
        self._calls: dict[int, _Timed] = {}
        self._looked_ns = 0

    def is_due(self, now_ns: int) -> bool:
        """Return whether it is time to look again."""
        return now_ns - self._looked_ns >= self.interval_ns

    def look(self, now_ns: int, found: Mapping[int, Seen], stolen_ns: int = 0) -> list[int]:
        """Return the workers whose call has used up its time.

        `found`: what each worker is at; `stolen_ns`: time that the hypervisor has taken from one core so far. Time
        counts from the first look that finds a call.
        """
        passed_ns = min(now_ns - self._looked_ns, LATE * self.interval_ns)
        self._looked_ns = now_ns
        before, self._calls = self._calls, {}
        late = []
        for worker, seen in found.items():
            timed = before.get(worker)
            if timed is None or timed.first.turn != seen.turn:
                self._calls[worker] = _Timed(seen, stolen_ns)
                continue
            self._calls[worker] = timed = timed._replace(passed_ns=timed.passed_ns + passed_ns)
            if timed.used_ns(seen, stolen_ns) > seen.limit_ns:
                late.append(worker)
        return late


def waits_ns(process: int) -> dict[int, int]:
    """Return for each thread of a process, and of those below it, how long it was ready to run without a core."""
    found: dict[int, int] = {}
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{process}/task/{thread}/schedstat", "rb") as schedstat:
                found[int(thread)] = int(schedstat.read().split()[1])
        except (OSError, IndexError, ValueError):  # it has ended, or this kernel does not count
            continue
    for child in children_of(process):
        found.update(waits_ns(child))
    return found


def stolen_ns() -> int:
    """Return how much time the hypervisor has taken from a core of this machine, on average."""
    try:
        with open("/proc/stat", "rb") as stat:
            ticks = int(stat.readline().split()[8])
    except (OSError, IndexError, ValueError):
        return 0
    return ticks * (10**9 // os.sysconf("SC_CLK_TCK")) // (os.cpu_count() or 1)
