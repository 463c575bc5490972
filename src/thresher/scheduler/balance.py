# SPDX-License-Identifier: Apache-2.0
"""How many workers each op with workers of its own should have, so that the whole pipeline is fastest.

An op with `n` workers and `work_s` seconds of work for one unit of input passes `n / work_s` units a second; the
pipeline passes what its slowest op does. So the next worker always goes to the slowest op, until that one has no room:
no other choice could make the pipeline faster. Shared workers count as one more op: they have the CPUs that ops with
workers of their own leave. Pure functions.
"""

from __future__ import annotations

from typing import NamedTuple

from thresher.scheduler.capacity import PARTS, Need
from thresher.scheduler.nodes import Nodes
from thresher.scheduler.placement import packed

SPARE = 1.15  # an op below this multiple of the pipeline's rate gets one worker more, if there is room
CROWD = 64  # most workers of an op on one device, however little they ask for
LEAST_CPUS = 0.125  # CPUs that a worker counts for, if it asks for fewer
FIRST_GUESS = 0.8  # share of the devices that is given out at once before the search goes on worker by worker


class Demand(NamedTuple):
    """What one op with workers of its own asks for."""

    op: int  # its index
    work_s: float  # seconds of its work for one unit of input
    need: Need  # what one worker takes
    fixed: int = 0  # it has exactly so many workers; 0: as many as are good
    most: int = 0  # never more than these; 0: no limit


class Shared(NamedTuple):
    """The work of shared workers."""

    work_s: float = 0.0  # CPU seconds of it for one unit of input
    cpus: float = 1.0  # CPUs of all nodes


def targets(demands: list[Demand], shared: Shared, empty: Nodes) -> dict[int, int]:
    """Workers of each op. Every op has one at least, whether it fits or not."""
    search = Search(demands, shared, empty)
    search.give_first()
    search.give_to_slowest()
    search.give_spare()
    return dict(search.counts)


class Search:
    """The numbers found so far, and nodes filled with so many workers."""

    def __init__(self, demands: list[Demand], shared: Shared, empty: Nodes) -> None:
        self.demands = {demand.op: demand for demand in demands}
        self.shared = shared
        self.empty = empty
        self.counts = {demand.op: demand.fixed or 1 for demand in demands}
        self.filled = packed(empty, self.wanted(self.counts)) or empty.copy()
        self.devices = sum(len(room.free_parts) for room in empty.room.values())
        self.ceiling = float("inf")  # rate of the slowest op that cannot have more workers

    def wanted(self, counts: dict[int, int]) -> list[tuple[Need, int]]:
        """The same numbers as needs."""
        return [(self.demands[op].need, count) for op, count in counts.items()]

    def rate(self, op: int, more: int = 0) -> float:
        """Units of input that an op passes in a second."""
        work_s = self.demands[op].work_s
        return (self.counts[op] + more) / work_s if work_s > 0 else float("inf")

    def shared_rate(self, more_cpus: float = 0.0) -> float:
        """Units of input that shared workers pass in a second, on the CPUs that are left."""
        if self.shared.work_s <= 0:
            return float("inf")
        return max(self.shared.cpus - self.busy_cpus() - more_cpus, 0.0) / self.shared.work_s

    def give_first(self) -> None:
        """Give out most of the devices in proportion to the work at once: thousands one by one would take long."""
        per_unit = sum(d.work_s * share(d.need) for d in self.demands.values())
        if self.devices < 64 or per_unit <= 0:
            return
        rate = min(FIRST_GUESS * self.devices / per_unit, FIRST_GUESS * self.shared_rate())
        counts = dict(self.counts)
        for op, demand in self.demands.items():
            if not demand.fixed and demand.need.on_device:
                count = max(1, int(rate * demand.work_s))
                counts[op] = min(count, demand.most) if demand.most else count
        filled = packed(self.empty, self.wanted(counts))
        if filled is not None:
            self.counts, self.filled = counts, filled

    def give_to_slowest(self) -> None:
        """Give a worker to the slowest op as long as it has room and the pipeline gains."""
        growing = [op for op, demand in self.demands.items() if not demand.fixed]
        fixed = [self.rate(op) for op, demand in self.demands.items() if demand.fixed]
        self.ceiling = min([*fixed, float("inf")])
        while growing:
            op = min(growing, key=lambda o: (self.rate(o), o))
            rate = self.rate(op)
            if rate >= min(self.ceiling, self.shared_rate()):
                return
            if not self.gains(op) or not self.grow(op):
                self.ceiling = min(self.ceiling, rate)
                growing.remove(op)

    def gains(self, op: int) -> bool:
        """Whether one more worker of the op makes the pipeline faster: it may not take CPUs that are scarcer."""
        need = self.demands[op].need
        return need.on_device or self.shared_rate(cpus_of(need)) > self.rate(op)

    def grow(self, op: int) -> bool:
        """Give one more worker to an op; False if there is no room, however the workers are arranged."""
        demand = self.demands[op]
        if demand.most and self.counts[op] >= demand.most:
            return False
        if not demand.need.on_device and self.busy_cpus() + cpus_of(demand.need) > self.shared.cpus:
            return False
        if demand.need.on_device and self.counts[op] >= CROWD * self.devices:
            return False
        if not self.filled.place(demand.need):
            filled = packed(self.empty, self.wanted({**self.counts, op: self.counts[op] + 1}))
            if filled is None:
                return False
            self.filled = filled
        self.counts[op] += 1
        return True

    def busy_cpus(self) -> float:
        """CPUs of all workers that need no device."""
        return sum(self.counts[op] * cpus_of(d.need) for op, d in self.demands.items() if not d.need.on_device)

    def give_spare(self) -> None:
        """Ops that hardly keep up get one worker more, from what the slowest cannot use: times are never exact."""
        rate = min(self.ceiling, self.shared_rate(), *(self.rate(op) for op in self.counts))
        for op, demand in self.demands.items():
            if not demand.fixed and demand.need.on_device and rate < self.rate(op) < rate * SPARE:
                self.grow(op)


def cpus_of(need: Need) -> float:
    """CPUs that one worker takes from the shared ones."""
    return max(need.cpus, LEAST_CPUS)


def share(need: Need) -> float:
    """Devices that one worker takes, as far as that is known before it is placed."""
    return need.whole or need.parts / PARTS


def even(demands: list[Demand], empty: Nodes) -> dict[int, int]:
    """The numbers to start with, when nothing is measured: one each, then devices shared in proportion to the work."""
    guesses = [d._replace(work_s=d.work_s / (share(d.need) or 1.0)) for d in demands if d.need.on_device]
    found = {demand.op: demand.fixed or 1 for demand in demands}
    if guesses:
        rest = [demand._replace(work_s=0.0) for demand in demands if not demand.need.on_device]
        found |= targets(guesses + rest, Shared(), empty)
    return found
