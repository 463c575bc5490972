# SPDX-License-Identifier: Apache-2.0
"""The default executor: worker processes on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from thresher.backends.processes.local_cluster import LocalCluster
from thresher.backends.resource_options import checked_memory, checked_tending, checked_workers
from thresher.core.arguments.options import (
    EXECUTION_MODES,
    check_amounts,
    check_choice,
    check_flag,
    check_positive,
    merge_options,
)
from thresher.runtime.cluster import Cluster
from thresher.runtime.executor import Executor, Limits
from thresher.runtime.processes.accelerators import Accelerator, declared_accelerators, found_accelerators
from thresher.runtime.processes.pool import ProcessPool


class LocalExecutor(Executor):
    """Runs a pipeline in processes on this machine."""

    name = "local"
    options = (
        "autoscale_interval_s",
        "cpu_allocation_percentage",
        "custom_resources",
        "execution_mode",
        "fusion",
        "gpus",
        "logging_interval",
        "max_workers_per_stage",
        "memory",
        "worker_max_lifetime_m",
        "worker_max_tasks",
        "worker_restart_interval_m",
        "workers",
    )
    cannot: ClassVar[Mapping[str, str]] = {
        "address": "it runs on this machine",
        "runtime_env": "all workers run in the Python environment of this machine",
    }

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Options, as keyword arguments or in `config={…}`.

        `workers`: number of shared CPU workers (default: the cores of this machine times `cpu_allocation_percentage`,
        0.95).
        `memory`: memory limit for driver and workers together, such as `4GB` (default: 60 % of the available memory).
        `execution_mode`: `streaming`, or `batch` to finish each stage before the next one starts.
        `logging_interval`: seconds between two progress lines when stderr is not a terminal.
        `gpus`: accelerators, as a count or as a list such as `[{"memory_gb": 40}]` (default: those that NVML finds).
        `custom_resources`: named resources that stages may request, such as `{"licence": 2}`.
        `autoscale_interval_s`: seconds between two autoscaling decisions for stages with dedicated workers (2).
        `max_workers_per_stage`: maximum number of dedicated workers of a stage.
        `worker_max_lifetime_m`: minutes after which a worker is replaced, at most one every `worker_restart_interval_m`
        minutes; `worker_max_tasks`: number of tasks after which a worker is replaced.
        `fusion`: run neighbouring stages in one call (default: true).
        """
        given = merge_options("LocalExecutor", options, config, self.options, self.cannot)
        self._workers = checked_workers(given.get("workers"), given.get("cpu_allocation_percentage", 0.95))
        self._memory = checked_memory(given.get("memory"))
        self._mode = check_choice("execution_mode", given.get("execution_mode", "streaming"), EXECUTION_MODES)
        self._fusion = check_flag("fusion", given.get("fusion", True))
        self.logging_interval_s = check_positive("logging_interval", given.get("logging_interval", 10.0), "seconds")
        self._tending = checked_tending(given)
        self._custom = check_amounts("custom_resources", given.get("custom_resources", {}))
        self._accelerators = declared_accelerators(given["gpus"]) if given.get("gpus") is not None else None
        self._pool: ProcessPool | None = None

    def limits(self) -> Limits:
        """Return the limits for workers and memory."""
        return Limits(
            self._workers,
            self._memory,
            barrier=self._mode == "batch",
            fusion=self._fusion,
            custom=self._custom,
            worker_policy=self._tending,
        )

    def accelerators(self) -> tuple[Accelerator, ...]:
        """Return the declared accelerators, or those that NVML finds."""
        if self._accelerators is None:
            self._accelerators = found_accelerators()
        return self._accelerators

    def warm_up(self) -> None:
        """Start the zygote, which imports what workers need while the driver plans."""
        if self._pool is None:
            self._pool = ProcessPool()

    def make_cluster(self, limits: Limits) -> Cluster:
        """Return a cluster of worker processes; reuse the zygote if it was started."""
        pool, self._pool = self._pool or ProcessPool(), None
        return LocalCluster(pool, limits, self._accelerators or ())

    def release(self) -> None:
        """End a zygote that was not used."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(kill=True)
