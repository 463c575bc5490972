# SPDX-License-Identifier: Apache-2.0
"""What all executors that our own scheduler drives have in common: plan, open the run folder, drive, report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec.structs import replace

from thresher.core.honoured import honoured_stages
from thresher.core.options import RunOptions
from thresher.core.pipeline import Pipeline
from thresher.core.plan import CHUNK_BYTES, Plan, PlanSettings, make_plan
from thresher.core.result import RunResult
from thresher.runtime.accelerators import Accelerator
from thresher.runtime.cluster import Cluster
from thresher.runtime.memory_floor import RECORD_SHARE, chunk_bytes, refuse_below_floor
from thresher.runtime.specs import refuse_misfits, run_spec
from thresher.scheduler.model import RunSpec


@dataclass(frozen=True)
class Tending:
    """How the numbers of workers follow the work, and when a worker is replaced by a new one."""

    autoscale_interval_s: float = 2.0
    """Seconds between two decisions about the workers of stages that have their own."""
    max_workers_per_stage: int = 0
    """Most workers of a stage; 0: as many as there is room for."""
    worker_max_lifetime_s: float = 0.0
    """Age at which a worker is replaced; 0: never."""
    worker_restart_interval_s: float = 0.0
    """Least time between two workers that are replaced for their age."""
    worker_max_tasks: int = 0
    """Tasks after which a worker is replaced; 0: never."""


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
    custom: dict[str, float] = field(default_factory=dict)
    """Named resources that there are."""
    tending: Tending = Tending()
    """How workers are balanced and recycled."""
    nodes: int = 1
    """Machines that the workers are spread over; the memory is that of each."""

    @property
    def workers_per_node(self) -> int:
        """Shared workers of one machine, about."""
        return max(1, -(-self.shared_workers // self.nodes))

    def plan_settings(self, *, keep_dropped: bool) -> PlanSettings:
        """The same as the planner wants it."""
        memory = self.memory_bytes
        return PlanSettings(
            fusion=self.fusion,
            barrier=self.barrier,
            chunk_bytes=chunk_bytes(memory, self.workers_per_node, CHUNK_BYTES) if memory else CHUNK_BYTES,
            max_record_bytes=memory // RECORD_SHARE if memory else 2**62,
            memory_bytes=memory,
            keep_dropped=keep_dropped,
        )


class Executor:
    """Runs a pipeline on something. A subclass says how much it may use and makes the cluster."""

    name = ""
    """As on the command line."""
    options: tuple[str, ...] = ()
    """Names of the options that the executor honours."""
    cannot: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What it cannot honour, and why in one clause; `core/honoured.py` tells what the keys may be."""
    warn_unsupported: Callable[[str], None] | None = None
    """Told what is left out because it cannot be honoured; `None`: that is refused."""
    logging_interval_s: float = 10.0
    """Seconds between two log lines where there is no terminal."""
    tell: Callable[[str], None] | None = None
    """Where people are told what happens; set while a run goes on."""
    schedules_itself: bool = False
    """Whether an engine with a scheduler of its own runs and commits the units first."""

    def limits(self) -> Limits:
        """What may be used."""
        raise TypeError(f"{type(self).__name__} must define limits()")

    def accelerators(self) -> tuple[Accelerator, ...]:
        """What there is; asked only for a pipeline that needs one, because looking takes time."""
        return ()

    def make_cluster(self, limits: Limits) -> Cluster:
        """What runs the work."""
        raise TypeError(f"{type(self).__name__} must define make_cluster()")

    def warm_up(self) -> None:
        """Start whatever takes time to start; called before planning."""

    def plan(self, pipeline: Pipeline, options: RunOptions | None = None) -> Plan:
        """What a run would do."""
        options = options or RunOptions()
        settings = dataclasses.replace(
            self.limits().plan_settings(keep_dropped=options.dropped_to is not None),
            keep_scores=options.keep_scores,
            known_scores=options.known_scores,
        )
        with_tasks = options.initial_tasks is not None
        plan = make_plan(pipeline, settings, initial_tasks=with_tasks)
        stages = honoured_stages(plan.stages, options, self, self.warn_unsupported)
        if any(left is not planned for left, planned in zip(stages, plan.stages, strict=True)):
            plan = make_plan(Pipeline(plan.name, stages=stages), settings, initial_tasks=with_tasks)
        most = self.limits().tending.max_workers_per_stage
        if most:
            ops = [op if op.workers is None else replace(op, workers=min(op.workers, most)) for op in plan.ops]
            plan = dataclasses.replace(plan, ops=tuple(ops))
        refuse_misfits(self.run_spec(plan), self.name)
        refuse_below_floor(plan, self.limits())
        return plan

    def run_spec(self, plan: Plan) -> RunSpec:
        """The plan and what it may use, as the scheduler sees them."""
        needed = any(stage.resources.requires_gpu for stage in plan.stages)
        return run_spec(plan, self.limits(), self.accelerators() if needed else ())

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
