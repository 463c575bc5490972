# SPDX-License-Identifier: Apache-2.0
"""Translation of a plan into the scheduler's input: ops, their needs and the available resources, without code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.core.planning.plan import Op, Plan
from thresher.errors import PlanError
from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec
from thresher.scheduler.workers.placement import placement_errors

if TYPE_CHECKING:
    from thresher.runtime.executor import Limits
    from thresher.runtime.processes.accelerators import Accelerator

PAYLOAD_SHARE = 4
"""Payloads in flight may take one part in so many of the memory."""
DEFAULT_BUDGET = 512 * 2**20
BACKOFF_S = 0.5
"""Backoff before a failed task or unit is tried again; doubled with each failure."""
GB = 10**9


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
