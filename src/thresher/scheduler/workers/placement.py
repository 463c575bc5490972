# SPDX-License-Identifier: Apache-2.0
"""The number of workers that fit on the nodes, why some can never be placed, and the numbers that are fastest.

An op with `n` workers and `work_s` seconds of work per unit of input processes `n / work_s` units a second; the rate
of the pipeline is that of its slowest op. So the next worker always goes to the slowest op until that one has no room:
no other choice could make the pipeline faster. Shared workers count as one more op: they have the CPUs that dedicated
workers leave.
"""

from __future__ import annotations

from typing import NamedTuple

from thresher.core.arguments.sizes import counted
from thresher.scheduler.model import NodeSpec, RunSpec
from thresher.scheduler.workers.capacity import PARTS, Need, Nodes, need_of, nodes_of, size_of

SPARE_FACTOR = 1.15  # an op below this multiple of the pipeline's rate gets one worker more, if there is room
MAX_PER_DEVICE = 64  # maximum number of workers of an op on one device
MIN_CPUS = 0.125  # minimum number of CPUs that a worker counts for
BULK_SHARE = 0.8  # share of the devices that is allocated at once before the search continues worker by worker


def pack(empty: Nodes, wanted: list[tuple[Need, int]]) -> Nodes | None:
    """Place all these workers on empty nodes, largest first; return the nodes, or None if they do not fit together."""
    filled = empty.copy()
    for need, count in sorted(wanted, key=lambda item: size_of(item[0]), reverse=True):
        for _ in range(count):
            if not filled.place(need):
                return None
    return filled


def placement_errors(spec: RunSpec) -> list[str]:
    """Return one message for each op whose workers can never be placed on the nodes of the run."""
    nodes = nodes_of(spec)
    empty = Nodes(nodes)
    wanted = []
    messages = []
    for op in spec.ops:
        need = need_of(op)
        if not op.has_own_workers or not need.hard:
            continue
        lacking = missing_resources(need, nodes)
        if not lacking and empty.find(need) is None:
            lacking = [f"{describe(need)} on one node, and no node has all of it"]
        messages += [f"{op.name} needs {lack}" for lack in lacking]
        wanted.append((op.name, need, op.dedicated_workers or 1))
    if messages:
        return messages
    together: list[tuple[Need, int]] = []
    for name, need, count in sorted(wanted, key=lambda item: size_of(item[1]), reverse=True):
        together.append((need, count))
        if pack(empty, together) is None:
            room = next(n for n in range(count - 1, -1, -1) if pack(empty, [*together[:-1], (need, n)]) is not None)
            messages.append(
                f"{name} needs room for {counted(count, 'worker')} with {describe(need)}, "
                f"beside the other stages there is room for {room}"
            )
            together.pop()
    return messages


def missing_resources(need: Need, nodes: tuple[NodeSpec, ...]) -> list[str]:
    """Return each resource that no node has enough of, with the largest amount available."""
    found = []
    most = max(len(node.gpus) for node in nodes)
    if need.whole > most:
        found.append(f"gpus={need.whole}, the largest node has {most}")
    if need.parts and not most:
        found.append(f"gpus={need.parts / PARTS:g}, the largest node has 0")
    if need.gpu_memory_bytes:
        largest = max((memory for node in nodes for memory in node.gpus), default=0)
        if need.gpu_memory_bytes > largest:
            what = f"the largest device has {gigabytes(largest)}" if most else "no node has a device"
            found.append(f"gpu_memory_gb={need.gpu_memory_bytes / 1e9:g}, {what}")
    largest = max(node.memory_bytes for node in nodes)
    if need.memory_bytes > largest and all(node.memory_bytes for node in nodes):
        found.append(f"memory_gb={need.memory_bytes / 1e9:g}, the largest node has {gigabytes(largest)}")
    for name, amount in need.custom:
        most_custom = max(node.custom.get(name, 0.0) for node in nodes)
        if amount > most_custom:
            found.append(f"{name}={amount:g}, the largest node has {most_custom:g}")
    return found


def describe(need: Need) -> str:
    """Return a need as text."""
    words = []
    if need.whole or need.parts:
        words.append(f"gpus={need.whole or need.parts / PARTS:g}")
    if need.gpu_memory_bytes:
        words.append(f"gpu_memory_gb={need.gpu_memory_bytes / 1e9:g}")
    if need.memory_bytes:
        words.append(f"memory_gb={need.memory_bytes / 1e9:g}")
    return ", ".join(words + [f"{name}={amount:g}" for name, amount in need.custom])


def gigabytes(nbytes: int) -> str:
    """Return bytes as text, such as `80 GB`."""
    return f"{nbytes / 1e9:g} GB"


# -- the fastest numbers -----------------------------------------------------------------------------------------------


class Demand(NamedTuple):
    """Demand of one op with dedicated workers."""

    op: int  # index of the op
    work_s: float  # seconds of its work per unit of input
    need: Need  # resources of one worker
    fixed: int = 0  # fixed number of workers; 0: to be found
    most: int = 0  # maximum number of workers; 0: no limit


class Shared(NamedTuple):
    """Work and CPUs of the shared workers."""

    work_s: float = 0.0  # CPU seconds per unit of input
    cpus: float = 1.0  # CPUs of all nodes


def best_counts(demands: list[Demand], shared: Shared, empty: Nodes) -> dict[int, int]:
    """Return the number of workers of each op. Every op has at least one, whether it fits or not."""
    search = Search(demands, shared, empty)
    search.allocate_in_bulk()
    search.grow_slowest()
    search.add_spares()
    return dict(search.counts)


class Search:
    """The numbers found so far, and nodes filled with these workers."""

    def __init__(self, demands: list[Demand], shared: Shared, empty: Nodes) -> None:
        self.demands = {demand.op: demand for demand in demands}
        self.shared = shared
        self.empty = empty
        self.counts = {demand.op: demand.fixed or 1 for demand in demands}
        self.filled = pack(empty, self.wanted(self.counts)) or empty.copy()
        self.devices = sum(len(room.free_parts) for room in empty.room.values())
        self.ceiling = float("inf")  # rate of the slowest op that cannot have more workers

    def wanted(self, counts: dict[int, int]) -> list[tuple[Need, int]]:
        """Return the numbers as needs and counts."""
        return [(self.demands[op].need, count) for op, count in counts.items()]

    def rate(self, op: int, more: int = 0) -> float:
        """Return the units of input that an op processes per second."""
        work_s = self.demands[op].work_s
        return (self.counts[op] + more) / work_s if work_s > 0 else float("inf")

    def shared_rate(self, more_cpus: float = 0.0) -> float:
        """Return the units of input that shared workers process per second, on the remaining CPUs."""
        if self.shared.work_s <= 0:
            return float("inf")
        return max(self.shared.cpus - self.busy_cpus() - more_cpus, 0.0) / self.shared.work_s

    def allocate_in_bulk(self) -> None:
        """Allocate most of the devices at once in proportion to the work: one by one, thousands would take long."""
        per_unit = sum(d.work_s * share(d.need) for d in self.demands.values())
        if self.devices < 64 or per_unit <= 0:
            return
        rate = min(BULK_SHARE * self.devices / per_unit, BULK_SHARE * self.shared_rate())
        counts = dict(self.counts)
        for op, demand in self.demands.items():
            if not demand.fixed and demand.need.on_device:
                count = max(1, int(rate * demand.work_s))
                counts[op] = min(count, demand.most) if demand.most else count
        filled = pack(self.empty, self.wanted(counts))
        if filled is not None:
            self.counts, self.filled = counts, filled

    def grow_slowest(self) -> None:
        """Add a worker to the slowest op as long as it has room and the pipeline gets faster."""
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
        """Return True if one more worker of the op makes the pipeline faster: it must not take scarcer CPUs."""
        need = self.demands[op].need
        return need.on_device or self.shared_rate(cpus_of(need)) > self.rate(op)

    def grow(self, op: int) -> bool:
        """Add one worker to an op; return False if there is no room for it in any arrangement."""
        demand = self.demands[op]
        if demand.most and self.counts[op] >= demand.most:
            return False
        if not demand.need.on_device and self.busy_cpus() + cpus_of(demand.need) > self.shared.cpus:
            return False
        if demand.need.on_device and self.counts[op] >= MAX_PER_DEVICE * self.devices:
            return False
        if not self.filled.place(demand.need):
            filled = pack(self.empty, self.wanted({**self.counts, op: self.counts[op] + 1}))
            if filled is None:
                return False
            self.filled = filled
        self.counts[op] += 1
        return True

    def busy_cpus(self) -> float:
        """Return the CPUs of all workers that need no device."""
        return sum(self.counts[op] * cpus_of(d.need) for op, d in self.demands.items() if not d.need.on_device)

    def add_spares(self) -> None:
        """Add one worker to each op that hardly keeps up, from room that the slowest cannot use: times are noisy."""
        rate = min(self.ceiling, self.shared_rate(), *(self.rate(op) for op in self.counts))
        for op, demand in self.demands.items():
            if not demand.fixed and demand.need.on_device and rate < self.rate(op) < rate * SPARE_FACTOR:
                self.grow(op)


def cpus_of(need: Need) -> float:
    """Return the CPUs that one worker takes from the shared workers."""
    return max(need.cpus, MIN_CPUS)


def share(need: Need) -> float:
    """Return the devices that one worker takes, as far as known before it is placed."""
    return need.whole or need.parts / PARTS


def even_counts(demands: list[Demand], empty: Nodes) -> dict[int, int]:
    """Return the initial numbers: one worker each, then devices shared in proportion to the given work."""
    guesses = [d._replace(work_s=d.work_s / (share(d.need) or 1.0)) for d in demands if d.need.on_device]
    found = {demand.op: demand.fixed or 1 for demand in demands}
    if guesses:
        rest = [demand._replace(work_s=0.0) for demand in demands if not demand.need.on_device]
        found |= best_counts(guesses + rest, Shared(), empty)
    return found
