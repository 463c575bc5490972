# SPDX-License-Identifier: Apache-2.0
"""Small specs and profiles that tests rehearse."""

from __future__ import annotations

from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec
from thresher.simulate.profile import CommitSample, FileSample, OpProfile, RunProfile, TaskSample, op_key
from thresher.simulate.workload import SimulatedOutput

MB = 10**6


def machines(count: int, cpus: float = 4.0, gpus: int = 0) -> tuple[NodeSpec, ...]:
    """So many machines."""
    return tuple(
        NodeSpec(node=f"node-{n}", cpus=cpus, gpus=(80 * 10**9,) * gpus, memory_bytes=16 * 10**9) for n in range(count)
    )


def one_op(nodes: tuple[NodeSpec, ...], workers: int) -> RunSpec:
    """Everything in one call."""
    op = OpSpec(index=0, name="all", stages=("read", "write"), source=True, sink=True)
    return RunSpec(ops=(op,), shared_workers=workers, budget_bytes=10**9, nodes=nodes)


def three_ops(nodes: tuple[NodeSpec, ...], workers: int, **middle: object) -> RunSpec:
    """Read, work, write, each in a call of its own."""
    ops = (
        OpSpec(index=0, name="read", stages=("read",), next=1, source=True, output_bytes=MB),
        OpSpec(index=1, name="work", stages=("work",), next=2, output_bytes=MB, **middle),  # type: ignore[arg-type]
        OpSpec(index=2, name="write", stages=("write",), sink=True, ordered=True),
    )
    return RunSpec(ops=ops, shared_workers=workers, budget_bytes=10**9, nodes=nodes)


def profile_of(spec: RunSpec, busy_s: float = 0.1, fan_out: int = 1, stream: bool = False) -> RunProfile:
    """Every task takes `busy_s` for 10^6 bytes; the source emits `fan_out` batches of that size."""
    ops = {}
    for op in spec.ops:
        count = fan_out if op.source else 1
        outputs = (
            tuple(SimulatedOutput(MB, 0, stream and n == count - 1) for n in range(count))
            if op.next is not None
            else ()
        )
        sample = TaskSample(MB, busy_s, outputs, dict.fromkeys(op.stages, (busy_s / len(op.stages), MB)))
        ops[op_key(op)] = OpProfile(op.name, (sample,), overhead_s=0.0)
    stages = tuple(dict.fromkeys(stage for op in spec.ops for stage in op.stages))
    return RunProfile(
        stages,
        ops,
        files=(FileSample(MB, 1, op_key(spec.ops[0]), stream),),
        docs=100,
        commits=(CommitSample(MB, 0.0),),
        start_s=0.0,
        driver_event_s=0.0,
    )
