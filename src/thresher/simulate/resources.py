# SPDX-License-Identifier: Apache-2.0
"""Resources of simulated machines: what is in use now, and how busy workers were over time."""

from __future__ import annotations

from math import ceil

from thresher.scheduler.actions import StartWorker
from thresher.scheduler.model import NodeSpec, OpSpec
from thresher.simulate.workload import RuleBroken

BINS = 480
ENDLESS_CPUS = 1e9
ROUNDING = 1e-4  # relative tolerance for sums of shares


class Machine:
    """One machine: its cores, and its devices, memory and named resources, counted independently of the scheduler."""

    def __init__(self, spec: NodeSpec, *, limits_cores: bool) -> None:
        self.spec = spec
        self.name = spec.node
        self.cpus = spec.cpus if limits_cores else ENDLESS_CPUS
        self.alive = True
        self.busy_cpus = 0.0
        self.starting = 0  # workers that are not ready yet
        self._driver_delay_s = 0.0  # time that the driver took from calls here and that no call has been charged for
        self._used: dict[object, float] = {}  # index of a device, "memory" or the name of a resource -> amount

    @property
    def slowdown(self) -> float:
        """Return the factor by which calls take longer because more of them run than there are cores."""
        return self.busy_cpus / self.cpus if self.busy_cpus > self.cpus else 1.0

    def run_driver(self, cost_s: float) -> None:
        """Use a core for the driver: without a free one, the next call is delayed as long."""
        taken = self.busy_cpus + 1.0 - self.cpus
        if taken > 0:
            self._driver_delay_s += cost_s * min(1.0, taken)

    def take_driver_delay(self) -> float:
        """Return the delay of the call that starts now, and reset it."""
        delay_s, self._driver_delay_s = self._driver_delay_s, 0.0
        return delay_s

    def allocate(self, action: StartWorker, op: OpSpec | None) -> None:
        """Take the resources of a worker that starts. Raise RuleBroken if there is not enough of them."""
        for name, (amount, total) in self._takes(op, action.devices).items():
            self._used[name] = self._used.get(name, 0.0) + amount
            if self._used[name] > total * (1 + ROUNDING):
                worker = f"worker {action.worker} of op {action.op}"
                raise RuleBroken(f"{name!r} of {self.name} has {total}, {worker} would make it {self._used[name]}")

    def free(self, op: OpSpec | None, devices: tuple[int, ...]) -> None:
        """Free the resources of a worker that is gone."""
        for name, (amount, _) in self._takes(op, devices).items():
            self._used[name] -= amount

    def _takes(self, op: OpSpec | None, devices: tuple[int, ...]) -> dict[object, tuple[float, float]]:
        """Return resource -> (amount that a worker takes, amount of the machine)."""
        if op is None:
            if devices:
                raise RuleBroken(f"a shared worker has devices {devices}")
            return {}
        wanted = max(1, int(op.gpus)) if op.gpus or op.gpu_memory_bytes else 0
        if len(set(devices)) != wanted:
            raise RuleBroken(f"a worker of op {op.index} has devices {devices}; it needs {wanted}")
        takes: dict[object, tuple[float, float]] = {}
        for device in devices:
            share = op.gpu_memory_bytes / self.spec.gpus[device] if op.gpu_memory_bytes else min(op.gpus, 1.0)
            takes[device] = (share, 1.0)
        if self.spec.memory_bytes:
            takes["memory"] = (op.memory_bytes, self.spec.memory_bytes)
        for name, amount in op.custom.items():
            takes[name] = (amount, self.spec.custom.get(name, 0.0))
        return takes


class Usage:
    """Work of each op and of commits, numbers of workers, and bytes between stages."""

    def __init__(self, ops: int) -> None:
        self.busy_s = [0.0] * (ops + 1)  # time that workers were occupied, by op; the last entry is for commits
        self.tasks = [0] * (ops + 1)  # finished tasks, by op, and commits
        self.longest_s = [0.0] * ops  # longest task, by op
        self.own_workers = [0] * ops  # peak number of dedicated workers, by op
        self.peak_workers = 0  # peak number of workers that were up
        self.live_bytes = 0  # bytes between stages now
        self.peak_bytes = 0  # peak of the bytes between stages
        self.timeline = Timeline(ops + 1)
        self._own_alive = [0] * ops
        self._up = 0

    def occupy(self, series: int, start_s: float, end_s: float) -> float:
        """Add the time of a worker, and return it."""
        self.timeline.add(series, start_s, end_s)
        spent_s = end_s - start_s
        self.busy_s[series] += spent_s
        return spent_s

    def finish(self, op: int, tasks: int, longest_s: float) -> None:
        """Count finished tasks of an op."""
        self.tasks[op] += tasks
        if longest_s > self.longest_s[op]:
            self.longest_s[op] = longest_s

    def count_own(self, op: int | None, change: int) -> None:
        """Count a dedicated worker that starts or ends."""
        if op is not None:
            self._own_alive[op] += change
            self.own_workers[op] = max(self.own_workers[op], self._own_alive[op])

    def count_up(self, change: int) -> None:
        """Count a worker that is ready or ends."""
        self._up += change
        self.peak_workers = max(self.peak_workers, self._up)

    def add_bytes(self, now: float, nbytes: int) -> None:
        """Add a batch between stages."""
        self.live_bytes += nbytes
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
        self.timeline.reach(now, self.live_bytes)


class Timeline:
    """Busy time of several series and the peaks of one level, over a time of unknown length."""

    def __init__(self, series: int, width_s: float = 0.01) -> None:
        self.width_s = width_s
        self.busy: list[list[float]] = [[0.0] * BINS for _ in range(series)]
        self.level = [0.0] * BINS

    def add(self, series: int, start_s: float, end_s: float, weight: float = 1.0) -> None:
        """Add busy time from `start_s` to `end_s`."""
        while end_s >= self.width_s * BINS:
            self._merge()
        width = self.width_s
        first, last = int(start_s / width), int(end_s / width)
        bins = self.busy[series]
        if first == last:
            bins[first] += (end_s - start_s) * weight
            return
        bins[first] += ((first + 1) * width - start_s) * weight
        whole = width * weight
        for place in range(first + 1, last):
            bins[place] += whole
        bins[last] += (end_s - last * width) * weight

    def reach(self, time_s: float, level: float) -> None:
        """Record a level at a time; each bin keeps its highest one."""
        while time_s >= self.width_s * BINS:
            self._merge()
        place = int(time_s / self.width_s)
        if level > self.level[place]:
            self.level[place] = level

    def rates(self, series: int, end_s: float) -> list[float]:
        """Return the mean number of busy workers by bin, up to the end."""
        used = self._used(end_s)
        rates = [amount / self.width_s for amount in self.busy[series][:used]]
        part = end_s - (used - 1) * self.width_s
        if part > 0:
            rates[-1] *= self.width_s / max(part, self.width_s / 10)
        return rates

    def levels(self, end_s: float) -> list[float]:
        """Return the level by bin, up to the end."""
        return self.level[: self._used(end_s)]

    def _used(self, end_s: float) -> int:
        """Return the number of bins up to the end, with a tolerance for rounding."""
        return max(1, min(BINS, ceil(end_s / self.width_s - 1e-6)))

    def _merge(self) -> None:
        self.width_s *= 2
        for bins in self.busy:
            bins[:] = [bins[n] + bins[n + 1] for n in range(0, BINS, 2)] + [0.0] * (BINS // 2)
        level = self.level
        level[:] = [max(level[n], level[n + 1]) for n in range(0, BINS, 2)] + [0.0] * (BINS // 2)
