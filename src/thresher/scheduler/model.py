# SPDX-License-Identifier: Apache-2.0
"""Frozen specs that a scheduler is built from: ops, units, nodes and the run.

An *op* is a fused group of stages that runs as one worker call. Ops form chains through `next`: a unit enters at
its `entry` op, each op's outputs are tasks of its `next` op, and the chain ends in a sink or at the driver.
"""

from __future__ import annotations

import msgspec

NO_LIMIT = -1
"""Credit of a task that never parks: it emits nothing, its outputs are not accounted, or it must not park."""


class IllegalEvent(ValueError):
    """An event that cannot happen in this state, for example the end of a task that no worker holds."""


LOCAL_NODE = "local"
"""The node of a run that names none."""


class NodeSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A node and the resources that its workers share."""

    node: str = LOCAL_NODE  # name of the node
    cpus: float = 1.0  # cores; soft: they spread workers and never refuse one
    gpus: tuple[int, ...] = ()  # accelerators: the memory of each device in bytes, at its index
    memory_bytes: int = 0  # host memory that workers may request; 0: not counted
    custom: dict[str, float] = {}  # named resources


class OpSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A fused group of stages that runs as one worker call."""

    index: int  # position in RunSpec.ops
    name: str  # name in messages and reports
    stages: tuple[str, ...] = ()  # names of the stages inside, in order
    next: int | None = None  # op that receives the outputs; None: a sink, or outputs go to the driver as results
    source: bool = False  # entry op: its tasks are whole units (or streams)
    sink: bool = False  # ends in a writer: emits nothing, and a finished unit needs a Commit
    ordered: bool = False  # a sink fed by another op: takes a unit's tasks in lineage order, all on one worker
    dedicated: bool = False  # has dedicated workers; the autoscaler sets their number
    dedicated_workers: int | None = None  # has exactly this many dedicated workers, whatever `dedicated` is
    batch_size: int = 1  # tasks per call
    by_unit: bool = False  # a call takes consecutive tasks of one unit only
    max_attempts: int = 3  # failures a task may be blamed for before the run fails
    output_bytes: int = 1_000_000  # initial estimate of the bytes of one emitted batch, corrected by measured sizes
    cpus: float = 1.0  # CPUs of one call in a shared worker, or of one dedicated worker
    gpus: float = 0.0  # accelerators of one worker: below 1 a share of one device, otherwise whole devices
    gpu_memory_bytes: int = 0  # memory of one device that a worker needs; instead of `gpus`
    memory_bytes: int = 0  # host memory that a worker needs
    custom: dict[str, float] = {}  # named resources that a worker needs

    @property
    def has_own_workers(self) -> bool:
        """True if its tasks go to dedicated workers; otherwise any shared worker takes them."""
        return self.dedicated or self.dedicated_workers is not None


class UnitSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A part of the input that is committed, retried and resumed as a whole."""

    unit: str  # unit id
    order: tuple[int, int]  # position in input order: file index, block
    entry: int  # index of the source op it enters at
    nbytes: int = 0  # size of the input, for reports
    stream: bool = False  # a file that is cut into other units while it is read; never committed itself
    weight: int = 0  # what it counts for in progress, in a measure of the reader; 0 for its bytes


class RunSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """All parameters of a scheduler. Together with the events they determine every action."""

    ops: tuple[OpSpec, ...]  # every op, at its index
    shared_workers: int  # workers that run every op without dedicated workers
    budget_bytes: int  # ceiling for payloads in flight
    window_batches: int = 2  # batches in flight per shared worker before sources wait
    depth: int = 2  # groups of tasks that a worker may hold: the current one and the prefetched ones
    barrier: bool = False  # each op finishes before the next one starts (execution_mode="batch"); no credit limits
    group_tasks: int = 64  # maximum number of tasks in one Dispatch
    group_s: float = 0.010  # expected time that a group of tiny tasks may take
    group_bytes: int = 1_000_000  # bytes that a group of tiny tasks may emit
    prefetch_s: float = 0.020  # a shared worker prefetches only tasks that are shorter than this
    backoff_s: float = 0.0  # delay before a retry, doubled with each failure; 0: none
    setup_attempts: int = 3  # failed worker starts in a row, per op, before the run fails
    memory_high: float = 0.9  # share of the memory limit at which new units wait
    memory_low: float = 0.8  # share at which they may start again
    memory_critical: float = 0.95  # share at which idle workers are stopped, and then the largest one is recycled
    nodes: tuple[NodeSpec, ...] = ()  # nodes of the run; empty: one "local" with shared_workers CPUs and no devices
    autoscale_interval_s: float = 2.0  # time between two autoscaling decisions; 0: never
    max_workers_per_stage: int = 0  # limit for the workers of an autoscaled op; 0: as many as fit
    worker_max_lifetime_s: float = 0.0  # age at which a worker is recycled; 0: never
    worker_restart_interval_s: float = 0.0  # minimum time between two workers recycled for their age
    worker_max_tasks: int = 0  # tasks after which a worker is recycled; 0: never

    def __post_init__(self) -> None:
        for index, op in enumerate(self.ops):
            check_op(self, index, op)
        if any(not op.has_own_workers for op in self.ops) and self.shared_workers < 1:
            raise ValueError(f"shared_workers is {self.shared_workers}, but ops without dedicated workers need >= 1")
        if self.depth < 1:
            raise ValueError(f"depth is {self.depth}; a worker must be able to hold at least 1 group")


def check_op(spec: RunSpec, index: int, op: OpSpec) -> None:
    """Raise ValueError if the op is not valid at this position of the run."""
    where = f"op {op.index} {op.name!r}"
    if op.index != index:
        raise ValueError(f"{where} is at position {index} of RunSpec.ops; give every op its position as index")
    if op.sink and op.next is not None:
        raise ValueError(f"{where} is a sink and has next={op.next}; a sink emits nothing, so leave next out")
    if op.ordered != (op.sink and not op.source):
        raise ValueError(f"{where} has ordered={op.ordered}; exactly the sinks that another op feeds are ordered")
    if op.batch_size < 1 or op.max_attempts < 1:
        raise ValueError(f"{where} has batch_size={op.batch_size}, max_attempts={op.max_attempts}; both must be >= 1")
    if op.by_unit and (op.source or op.ordered):
        raise ValueError(f"{where} has by_unit=True; sources take whole units, and sinks all tasks of a unit in order")
    if op.dedicated_workers is not None and op.dedicated_workers < 1:
        raise ValueError(f"{where} has dedicated_workers={op.dedicated_workers}; give None (shared) or at least 1")
    check_resources(where, op)
    if op.next is not None:
        if not index < op.next < len(spec.ops):
            raise ValueError(f"{where} has next={op.next}; legal is a later op, {index + 1} to {len(spec.ops) - 1}")
        if spec.ops[op.next].source:
            raise ValueError(f"{where} has next={op.next}, which is a source; sources only take units")


def check_resources(where: str, op: OpSpec) -> None:
    """Raise ValueError if the resources of a worker of the op are not valid."""
    asked = {"cpus": op.cpus, "gpus": op.gpus, "gpu_memory_bytes": op.gpu_memory_bytes, "memory_bytes": op.memory_bytes}
    for name, value in {**asked, **op.custom}.items():
        if value < 0:
            raise ValueError(f"{where} has {name}={value}; legal is 0 or more")
    if op.gpus > 1 and op.gpus != int(op.gpus):
        raise ValueError(f"{where} has gpus={op.gpus}; legal is a fraction below 1 or a whole number")
    if op.gpus and op.gpu_memory_bytes:
        raise ValueError(f"{where} has gpus={op.gpus} and gpu_memory_bytes={op.gpu_memory_bytes}; give one of them")
    hard = op.gpus or op.gpu_memory_bytes or op.memory_bytes or op.custom
    if hard and not op.has_own_workers:
        raise ValueError(f"{where} needs resources that only dedicated workers hold; give dedicated=True")
