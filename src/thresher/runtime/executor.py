# SPDX-License-Identifier: Apache-2.0
"""What all executors that our own scheduler drives have in common: plan, open the run folder, drive, report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thresher.core.options import RunOptions
from thresher.core.pipeline import Pipeline
from thresher.core.plan import CHUNK_BYTES, Plan, PlanSettings, make_plan
from thresher.core.result import RunResult
from thresher.runtime.cluster import Cluster

RECORD_SHARE = 16
"""A record up to this part of the memory is always worked on."""


@dataclass(frozen=True)
class Limits:
    """What an executor may use."""

    shared_workers: int
    """Workers that run any stage without workers of its own."""
    memory_bytes: int = 0
    """Ceiling for driver and workers together; 0: none."""
    barrier: bool = False
    """Each stage ends before the next begins."""
    fusion: bool = True
    """Neighbouring stages run in one call."""

    def plan_settings(self, *, keep_dropped: bool) -> PlanSettings:
        """The same as the planner wants it."""
        memory = self.memory_bytes
        return PlanSettings(
            fusion=self.fusion,
            barrier=self.barrier,
            chunk_bytes=CHUNK_BYTES if not memory else max(65536, min(CHUNK_BYTES, memory // 128)),
            max_record_bytes=memory // RECORD_SHARE if memory else 2**62,
            keep_dropped=keep_dropped,
        )


class Executor:
    """Runs a pipeline on something. A subclass says how much it may use and makes the cluster."""

    name = ""
    """As on the command line."""
    options: tuple[str, ...] = ()
    """Names of the options that the executor honours."""
    logging_interval_s: float = 10.0
    """Seconds between two log lines where there is no terminal."""

    def limits(self) -> Limits:
        """What may be used."""
        raise TypeError(f"{type(self).__name__} must define limits()")

    def make_cluster(self, limits: Limits) -> Cluster:
        """What runs the work."""
        raise TypeError(f"{type(self).__name__} must define make_cluster()")

    def warm_up(self) -> None:
        """Start whatever takes time to start; called before planning."""

    def plan(self, pipeline: Pipeline, options: RunOptions | None = None) -> Plan:
        """What a run would do."""
        options = options or RunOptions()
        settings = self.limits().plan_settings(keep_dropped=options.dropped_to is not None)
        return make_plan(pipeline, settings, initial_tasks=options.initial_tasks is not None)

    def execute(self, pipeline: Pipeline, options: RunOptions) -> RunResult:
        """Run to the end."""
        self.warm_up()
        plan = self.plan(pipeline, options)
        from thresher.runtime.run import run_plan

        return run_plan(self, plan, options)

    def describe(self) -> dict[str, Any]:
        """For the run folder."""
        limits = self.limits()
        return {"name": self.name, "workers": limits.shared_workers, "memory_bytes": limits.memory_bytes}
