# SPDX-License-Identifier: Apache-2.0
"""The default executor: worker processes on this machine."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

from msgspec.structs import replace

from thresher.backends.local_cluster import LocalCluster
from thresher.core.options import EXECUTION_MODES, RunOptions, check_choice, check_count, merge_options
from thresher.core.pipeline import Pipeline
from thresher.core.plan import Plan
from thresher.core.result import RunResult
from thresher.core.sizes import parse_size, show_size
from thresher.errors import UsageError
from thresher.runtime.cluster import Cluster
from thresher.runtime.executor import Executor, Limits
from thresher.runtime.memory import available_memory, default_memory
from thresher.runtime.process_pool import ProcessPool

LEAST_MEMORY = 128 * 2**20
"""Below this not even Python and Arrow fit."""


class LocalExecutor(Executor):
    """Runs a pipeline in processes on this machine."""

    name = "local"
    options = (
        "autoscale_interval_s",
        "cpu_allocation_percentage",
        "execution_mode",
        "fusion",
        "logging_interval",
        "max_workers_per_stage",
        "memory",
        "workers",
    )

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `workers`: shared CPU workers (default: the cores of this machine times `cpu_allocation_percentage`, 0.95).
        `memory`: ceiling for driver and workers together, such as `4GB` (default: 60 % of what there is).
        `execution_mode`: `streaming`, or `batch` to finish each stage before the next one starts.
        `logging_interval`: seconds between two log lines where there is no terminal.
        `max_workers_per_stage`: a stage with workers of its own gets no more than this.
        `autoscale_interval_s`: checked, and without effect as long as the number of workers of a stage is fixed.
        `fusion`: whether neighbouring stages run in one call.
        """
        given = merge_options("LocalExecutor", options, config, self.options)
        self._workers = _workers(given.get("workers"), given.get("cpu_allocation_percentage", 0.95))
        self._memory = _memory(given.get("memory"))
        self._mode = check_choice("execution_mode", given.get("execution_mode", "streaming"), EXECUTION_MODES)
        self._fusion = _flag("fusion", given.get("fusion", True))
        self.logging_interval_s = _seconds("logging_interval", given.get("logging_interval", 10.0))
        most = given.get("max_workers_per_stage")
        self._most_workers = None if most is None else check_count("max_workers_per_stage", most)
        _seconds("autoscale_interval_s", given.get("autoscale_interval_s", 180.0))
        self._pool: ProcessPool | None = None

    def limits(self) -> Limits:
        """Workers and memory."""
        return Limits(self._workers, self._memory, barrier=self._mode == "batch", fusion=self._fusion)

    def plan(self, pipeline: Pipeline, options: RunOptions | None = None) -> Plan:
        """What a run would do."""
        plan = super().plan(pipeline, options)
        most = self._most_workers
        if most is None:
            return plan
        ops = [op if op.dedicated is None else replace(op, dedicated=min(op.dedicated, most)) for op in plan.ops]
        return dataclasses.replace(plan, ops=tuple(ops))

    def warm_up(self) -> None:
        """Start the zygote: it imports what workers need while the driver plans."""
        if self._pool is None:
            self._pool = ProcessPool()

    def make_cluster(self, limits: Limits) -> Cluster:
        """Processes of this machine; the zygote may be there already."""
        pool, self._pool = self._pool or ProcessPool(), None
        return LocalCluster(
            pool, memory_bytes=limits.memory_bytes, workers=limits.shared_workers, spills=limits.barrier
        )

    def execute(self, pipeline: Pipeline, options: RunOptions) -> RunResult:
        """Run to the end; a zygote that was started for nothing is ended."""
        try:
            return super().execute(pipeline, options)
        finally:
            pool, self._pool = self._pool, None
            if pool is not None:
                pool.close(kill=True)


def _workers(given: Any, share: Any) -> int:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UsageError(f"cpu_allocation_percentage: {share!r} is not a share above 0 and up to 1, such as 0.95")
    if given is None:
        return max(1, math.floor(available_cpus() * share + 0.5))
    return check_count("workers", given)


def available_cpus() -> float:
    """Cores that this process may use: of the machine, or of its control group if that allows less."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else min(cores, int(quota) / int(period))


def _memory(given: Any) -> int:
    if given is None:
        return max(LEAST_MEMORY, default_memory())
    memory = parse_size(given, "memory")
    if memory < LEAST_MEMORY:
        raise UsageError(f"memory: {given!r} is less than {show_size(LEAST_MEMORY)}; Python and Arrow alone need that")
    if memory > available_memory():
        raise UsageError(f"memory: {given!r} is more than there is here ({show_size(available_memory())})")
    return memory


def _flag(what: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise UsageError(f"{what}: {given!r} is neither True nor False")
    return given


def _seconds(what: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise UsageError(f"{what}: {given!r} is not a number of seconds above 0")
    return float(given)
