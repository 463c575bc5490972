# SPDX-License-Identifier: Apache-2.0
"""The plan of a pipeline for machines that are not there."""

from __future__ import annotations

import dataclasses

import msgspec

from thresher.core.pipeline import Pipeline
from thresher.core.plan import Plan, make_plan
from thresher.runtime.executor import Limits
from thresher.runtime.specs import PAYLOAD_SHARE, refuse_misfits, run_spec
from thresher.scheduler.model import RunSpec
from thresher.simulate.nodes import NodeText, make_nodes

MEMORY_SHARE = 0.6
"""Part of a machine's memory that a run may use, as on this machine by default."""


def cluster_plan(
    pipeline: Pipeline, limits: Limits, machine: NodeText, count: int, workers: int | None = None
) -> tuple[Plan, RunSpec]:
    """Stages fused as a run would fuse them, and what the scheduler would be told; by default one worker per core.

    `limits` says what the recipe asks of its executor, apart from workers and memory.
    """
    shared = workers if workers is not None else max(1, int(machine.cpus * count))
    memory = int(machine.memory_bytes * MEMORY_SHARE)
    limits = dataclasses.replace(limits, shared_workers=shared, memory_bytes=memory)
    plan = make_plan(pipeline, limits.plan_settings(keep_dropped=False))
    spec = msgspec.structs.replace(
        run_spec(plan, limits),
        nodes=make_nodes(machine, count),
        budget_bytes=max(1, memory * count // PAYLOAD_SHARE),
    )
    refuse_misfits(spec, "simulate")
    return plan, spec
