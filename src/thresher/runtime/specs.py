# SPDX-License-Identifier: Apache-2.0
"""A plan as the scheduler sees it: ops and budgets, without any code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.core.plan import Op, Plan
from thresher.scheduler.model import OpSpec, RunSpec

if TYPE_CHECKING:
    from thresher.runtime.executor import Limits

PAYLOAD_SHARE = 4
"""Payloads in flight may take this part of the memory."""
DEFAULT_BUDGET = 512 * 2**20


def run_spec(plan: Plan, limits: Limits) -> RunSpec:
    """What the scheduler decides on."""
    fed = {op.next for op in plan.ops if op.next is not None}
    return RunSpec(
        ops=tuple(_op_spec(plan, op, fed=op.index in fed) for op in plan.ops),
        shared_workers=limits.shared_workers,
        budget_bytes=limits.memory_bytes // PAYLOAD_SHARE if limits.memory_bytes else DEFAULT_BUDGET,
        barrier=limits.barrier,
    )


def _op_spec(plan: Plan, op: Op, *, fed: bool) -> OpSpec:
    source = op.index in plan.entries.values() and not fed
    return OpSpec(
        index=op.index,
        name=plan.op_name(op),
        stages=tuple(plan.stages[number].name for number in dict.fromkeys(step.stage for step in op.steps)),
        next=op.next,
        source=source,
        sink=op.writes,
        ordered=op.writes and not source,
        dedicated_workers=op.dedicated,
        batch_size=op.batch_size,
        max_attempts=op.max_attempts,
        output_bytes=plan.settings.chunk_bytes,
        cpus=op.cpus,
    )
