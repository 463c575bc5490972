# SPDX-License-Identifier: Apache-2.0
"""What executors have in common that hand the units to an engine which schedules itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from thresher.backends.allowances import available_cpus, checked_share
from thresher.backends.engine_cluster import Engine, EngineCluster
from thresher.backends.local_cluster import LocalCluster
from thresher.core.options import ErrorBudget, RunOptions, check_count, check_flag, check_positive
from thresher.core.pipeline import Pipeline
from thresher.core.plan import Plan
from thresher.core.result import RunResult
from thresher.runtime.accelerators import Accelerator, declared_accelerators
from thresher.runtime.cluster import Cluster
from thresher.runtime.executor import Executor, Limits
from thresher.runtime.process_pool import ProcessPool
from thresher.runtime.specs import run_spec
from thresher.scheduler.model import RunSpec

ENGINE_CANNOT: Mapping[str, str] = MappingProxyType(
    {
        "memory": "the engine decides how much is in flight",
        "gpus": "the engine uses the accelerators of its cluster",
        "timeout_s": "the engine cannot end a single call",
        "worker_max_tasks": "the engine keeps its workers itself",
        "custom_resources": "the engine uses the resources of its cluster",
        "runtime_env": "what the engine leaves over is run in the driver's own environment",
        "resources.gpu_memory_gb": "the engine counts accelerators, not their memory; ask for a share with gpus",
    }
)
"""What no engine that schedules itself honours."""


class EngineExecutor(Executor):
    """Hands units to an engine; what that leaves over is run by our own scheduler on this machine."""

    schedules_itself = True
    cannot: ClassVar[Mapping[str, str]] = ENGINE_CANNOT

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Options that all of them take: `workers`, `cpu_allocation_percentage`, `logging_interval`, `fusion`,
        `ignore_failures`."""
        self.cpu_share = checked_share(given.get("cpu_allocation_percentage", 0.95))
        self.workers = None if given.get("workers") is None else check_count("workers", given["workers"])
        self.logging_interval_s = check_positive("logging_interval", given.get("logging_interval", 10.0), "seconds")
        self._fusion = check_flag("fusion", given.get("fusion", True))
        self._accelerators: tuple[Accelerator, ...] = ()
        self._ignore_failures = check_flag("ignore_failures", given.get("ignore_failures", False))

    def limits(self) -> Limits:
        """The workers of this machine, for what the engine leaves over."""
        here = max(1, math.floor(available_cpus() * self.cpu_share + 0.5))
        return Limits(here if self.workers is None else min(here, self.workers), fusion=self._fusion)

    def make_engine(self) -> Engine:
        """What runs the units."""
        raise TypeError(f"{type(self).__name__} must define make_engine()")

    def make_cluster(self, limits: Limits) -> Cluster:
        """The engine, and behind it processes on this machine."""
        return EngineCluster(self.make_engine(), lambda: self.make_rest(limits), self._tell)

    def make_rest(self, limits: Limits) -> Cluster:
        """What runs the units that the engine leaves over."""
        return LocalCluster(ProcessPool(), limits, self._accelerators)

    def run_spec(self, plan: Plan) -> RunSpec:
        """The plan on this machine, for what the engine leaves over. It gets what its stages ask for: whether there is
        enough of it is asked of the engine's cluster."""
        needs = [op.resources for op in plan.ops]
        self._accelerators = declared_accelerators(math.ceil(max(need.gpus for need in needs)))
        custom: dict[str, float] = {}
        for need in needs:
            for name, amount in need.custom.items():
                custom[name] = custom.get(name, 0.0) + amount
        return run_spec(plan, replace(self.limits(), custom=custom), self._accelerators)

    def _tell(self, text: str) -> None:
        if self.tell is not None:
            self.tell(text)

    def execute(self, pipeline: Pipeline, options: RunOptions) -> RunResult:
        """Run to the end."""
        if self._ignore_failures:
            options = replace(options, max_errors=ErrorBudget(share=1.0))
        return super().execute(pipeline, options)
