# SPDX-License-Identifier: Apache-2.0
"""Base of the executors that use our own scheduler: its limits, the plan of a run, and the plan as the scheduler's
input, that is ops, their needs and the available resources, without code."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from msgspec.structs import replace

from thresher.core.arguments.options import RunOptions
from thresher.core.files.filesystem import STANDARD_STREAM
from thresher.core.outlets import DROPPED, SCORES
from thresher.core.pipeline import Pipeline, RunResult, Stage
from thresher.core.planning.checks import Problems, check_initial_tasks, stage_problems
from thresher.core.planning.plan import CHUNK_BYTES, Op, Plan, PlanSettings, make_plan
from thresher.core.recipes.executors import honoured_stages
from thresher.core.stage import SinkStage, SourceStage
from thresher.credentials import redacted_errors
from thresher.errors import PlanError, RefusedError, RunFailedError, ThresherError
from thresher.runtime.cluster import Cluster
from thresher.runtime.memory.floor import CHUNK_SHARE, RECORD_SHARE, chunk_bytes, refuse_below_floor
from thresher.runtime.processes.accelerators import Accelerator
from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec
from thresher.scheduler.workers.placement import placement_errors

PAYLOAD_SHARE = 4
"""Payloads in flight may take one part in so many of the memory."""
DEFAULT_BUDGET = 512 * 2**20
BACKOFF_S = 0.5
"""Backoff before a failed task or unit is tried again; doubled with each failure."""
GB = 10**9


@dataclass(frozen=True)
class WorkerPolicy:
    """Settings of autoscaling and worker recycling."""

    autoscale_interval_s: float = 2.0
    """Seconds between two autoscaling decisions for dedicated workers."""
    max_workers_per_stage: int = 0
    """Maximum number of workers of a stage; 0: as many as fit."""
    worker_max_lifetime_s: float = 0.0
    """Age at which a worker is replaced; 0: never."""
    worker_restart_interval_s: float = 0.0
    """Minimum time between two replacements because of age."""
    worker_max_tasks: int = 0
    """Number of tasks after which a worker is replaced; 0: never."""


@dataclass(frozen=True)
class Limits:
    """Resources that an executor may use."""

    shared_workers: int
    """Number of workers that run any stage without dedicated workers."""
    memory_bytes: int = 0
    """Memory limit of the driver and all workers together; 0: none."""
    barrier: bool = False
    """True if each stage ends before the next one begins."""
    fusion: bool = True
    """True if adjacent stages run in one call."""
    custom: dict[str, float] = field(default_factory=dict)
    """Available custom resources by name."""
    worker_policy: WorkerPolicy = WorkerPolicy()
    """Autoscaling and recycling of workers."""
    nodes: int = 1
    """Number of machines; `memory_bytes` applies to each of them."""

    @property
    def workers_per_node(self) -> int:
        """Shared workers per machine, rounded up."""
        return max(1, -(-self.shared_workers // self.nodes))

    def plan_settings(self, *, keep_dropped: bool) -> PlanSettings:
        """Return the settings of the planner that follow from these limits."""
        memory = self.memory_bytes
        return PlanSettings(
            fusion=self.fusion,
            barrier=self.barrier,
            chunk_bytes=chunk_bytes(memory, self.workers_per_node, CHUNK_BYTES) if memory else CHUNK_BYTES,
            large_bytes=memory // (CHUNK_SHARE * self.workers_per_node),
            max_record_bytes=memory // RECORD_SHARE if memory else 2**62,
            memory_bytes=memory,
            keep_dropped=keep_dropped,
        )


class Executor:
    """Base class of executors. A subclass defines the limits and makes the cluster."""

    name = ""
    """Name on the command line."""
    options: tuple[str, ...] = ()
    """Names of the supported options."""
    cannot: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Unsupported settings, each with the reason in one clause; `core/recipes/executors.py` lists the possible keys.
    """
    warn_unsupported: Callable[[str], None] | None = None
    """Called with a warning for each setting that is ignored; `None`: unsupported settings are refused."""
    logging_interval_s: float = 10.0
    """Seconds between two log lines if there is no terminal."""
    notify: Callable[[str], None] | None = None
    """Shows a message to the user; set while a run is in progress."""
    runs_here: bool = True
    """True if all workers see the files of this machine, so that stages can check theirs before the run."""
    schedules_itself: bool = False
    """True if an engine with its own scheduler runs and commits the units first."""

    def limits(self) -> Limits:
        """Return the resources that a run may use."""
        raise TypeError(f"{type(self).__name__} must define limits()")

    def find_problems(self, stages: Sequence[Stage], options: RunOptions) -> list[RefusedError]:
        """Return the problems of these stages on this machine, with these options."""
        problems = Problems()
        problems.check(check_initial_tasks, stages[0], options.initial_tasks or ())
        problems.found += stage_problems(stages) if self.runs_here else []
        return [*problems.found, *folder_problems(stages, options)]

    def accelerators(self) -> tuple[Accelerator, ...]:
        """Return the accelerators. Called only for a pipeline that needs one, because detection takes time."""
        return ()

    def make_cluster(self, limits: Limits) -> Cluster:
        """Return the cluster that runs the tasks."""
        raise TypeError(f"{type(self).__name__} must define make_cluster()")

    def warm_up(self) -> None:
        """Start slow components; called before planning."""

    def release(self) -> None:
        """End what `warm_up` has started and no cluster has taken over."""

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Warm up for a run, and release at its end."""
        try:
            self.warm_up()
            yield
        finally:
            self.release()

    def plan(self, pipeline: Pipeline, options: RunOptions | None = None) -> Plan:
        """Return the plan of a run."""
        options = options or RunOptions()
        settings = dataclasses.replace(
            self.limits().plan_settings(keep_dropped=options.dropped_to is not None or DROPPED in pipeline.outlets),
            keep_scores=options.keep_scores or SCORES in pipeline.outlets,
            known_scores=options.known_scores,
        )
        with_tasks = options.initial_tasks is not None
        plan = make_plan(
            pipeline,
            settings,
            initial_tasks=with_tasks,
            find_more=lambda stages: self.find_problems(stages, options),
        )
        stages = honoured_stages(plan.stages, options, self, self.warn_unsupported)
        if any(left is not planned for left, planned in zip(stages, plan.stages, strict=True)):
            honoured = pipeline.snapshot()
            honoured.stages = stages
            plan = make_plan(honoured, settings, initial_tasks=with_tasks)
        most = self.limits().worker_policy.max_workers_per_stage
        if most:
            ops = [op if op.workers is None else replace(op, workers=min(op.workers, most)) for op in plan.ops]
            plan = dataclasses.replace(plan, ops=tuple(ops))
        refuse_misfits(self.run_spec(plan), self.name)
        if self.limits().memory_bytes:
            refuse_below_floor(plan, self.limits())
        return plan

    def run_spec(self, plan: Plan) -> RunSpec:
        """Return the plan and its resources as the scheduler's input."""
        needed = any(stage.resources.requires_gpu for stage in plan.stages)
        return run_spec(plan, self.limits(), self.accelerators() if needed else ())

    def execute(self, pipeline: Pipeline, options: RunOptions) -> RunResult:
        """Run the pipeline and its outlets to the end."""
        if options.otel:
            from thresher.observe.otlp import check_otel

            check_otel()
        with redacted_errors(RunFailedError), served_metrics(options) as options:
            if pipeline.outlets:
                from thresher.runtime.outlets import run_with_outlets

                return run_with_outlets(self, pipeline, options)
            with self.connected():
                plan = self.plan(pipeline, options)
                from thresher.runtime.run import run_plan

                return run_plan(self, plan, options)


@contextlib.contextmanager
def served_metrics(options: RunOptions) -> Iterator[RunOptions]:
    """Serve metrics while the block runs, if the options want it; yield the options of the runs inside."""
    wanted = options.metrics
    if wanted is None:
        yield options
        return
    from thresher.observe.prometheus.endpoint import MetricsEndpoint

    endpoint = MetricsEndpoint(wanted.port, wanted.host)
    try:
        try:
            yield dataclasses.replace(options, watcher=endpoint)
        except ThresherError:
            endpoint.linger(wanted.linger_s)
            raise
        endpoint.linger(wanted.linger_s)
    finally:
        endpoint.shut_down()


def run_spec(plan: Plan, limits: Limits, accelerators: Sequence[Accelerator] = ()) -> RunSpec:
    """Return the scheduler's input for a plan."""
    fed = {op.next for op in plan.ops if op.next is not None}
    policy = limits.worker_policy
    return RunSpec(
        ops=tuple(_op_spec(plan, op, fed=op.index in fed) for op in plan.ops),
        shared_workers=limits.shared_workers,
        budget_bytes=limits.memory_bytes // PAYLOAD_SHARE if limits.memory_bytes else DEFAULT_BUDGET,
        barrier=limits.barrier,
        backoff_s=BACKOFF_S,
        nodes=(_node(limits, accelerators),),
        autoscale_interval_s=policy.autoscale_interval_s,
        max_workers_per_stage=policy.max_workers_per_stage,
        worker_max_lifetime_s=policy.worker_max_lifetime_s,
        worker_restart_interval_s=policy.worker_restart_interval_s,
        worker_max_tasks=policy.worker_max_tasks,
    )


def _node(limits: Limits, accelerators: Sequence[Accelerator]) -> NodeSpec:
    """Return the node of this machine."""
    return NodeSpec(
        cpus=float(limits.shared_workers),
        gpus=tuple(device.memory_bytes for device in accelerators),
        memory_bytes=limits.memory_bytes,
        custom=limits.custom,
    )


def _op_spec(plan: Plan, op: Op, *, fed: bool) -> OpSpec:
    source = op.index in plan.entries.values() and not fed
    needs = op.resources
    return OpSpec(
        index=op.index,
        name=plan.op_name(op),
        stages=tuple(plan.stages[number].name for number in dict.fromkeys(step.stage for step in op.steps)),
        next=op.next,
        source=source,
        sink=op.writes,
        ordered=op.writes and not source,
        dedicated=op.dedicated,
        dedicated_workers=op.workers,
        batch_size=plan.tasks_per_call(op),
        by_unit=plan.by_unit(op),
        max_attempts=op.max_attempts,
        output_bytes=plan.settings.chunk_bytes,
        cpus=needs.cpus,
        gpus=float(needs.gpus),
        gpu_memory_bytes=int(needs.gpu_memory_gb * GB),
        memory_bytes=int(needs.memory_gb * GB),
        custom={name: amount for name, amount in needs.custom.items() if amount},
    )


def refuse_misfits(spec: RunSpec, executor: str) -> None:
    """Raise if a worker of a stage can never be placed, with its needs and the available resources."""
    faults = placement_errors(spec)
    if faults:
        raise PlanError(
            f"executor {executor!r} can never run this pipeline:\n"
            + "\n".join(f"  {fault}" for fault in faults)
            + "\nAsk for less in the stage's resources, or let the executor use more (gpus=…, memory=…)"
        )


def folder_problems(stages: Sequence[Stage], options: RunOptions) -> list[RefusedError]:
    """Return the conflicts between input, output and run folders that contain each other."""
    from thresher.ledger.folder.request import check_can_be_written, check_nesting, check_own_folders

    problems = Problems()
    source, sink = stages[0], stages[-1]
    given = (sink.path if isinstance(sink, SinkStage) else None, options.dropped_to, options.run_dir)
    output, dropped_to, run_dir = (None if folder == STANDARD_STREAM else folder for folder in given)
    roots = source.input_roots() if isinstance(source, SourceStage) else []
    named = (("output", output), ("folder for dropped records", dropped_to), ("run folder", run_dir))
    for name, folder in named:
        if folder is not None:
            problems.check(check_can_be_written, name, folder)
            problems.check(check_nesting, roots, folder, name)
    problems.check(check_own_folders, output, dropped_to, run_dir)
    return problems.found
