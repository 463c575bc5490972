# SPDX-License-Identifier: Apache-2.0
"""The machines of a rehearsal: their text form `64cpu,512GB,8gpu,80GB`, the plan for them, and their cost.

A size refers to the part before it: after `cpu` it is the memory of the machine, after `gpu` that of each accelerator.
`name=number` is a named resource.
"""

from __future__ import annotations

import dataclasses
import re

import msgspec

from thresher.core.arguments.sizes import parse_size, show_size
from thresher.core.pipeline import Pipeline
from thresher.core.planning.plan import Plan, make_plan
from thresher.errors import UsageError
from thresher.runtime.executor import PAYLOAD_SHARE, Limits, refuse_misfits, run_spec
from thresher.scheduler.model import NodeSpec, RunSpec

EXAMPLE = '"64cpu,512GB,8gpu,80GB"'
MEMORY_PER_CPU = 4 * 10**9
"""Host memory per CPU if the text names none."""
MEMORY_SHARE = 0.6
"""Share of a machine's memory that a run may use, as in a local run by default."""
GPU_MEMORY = 80 * 10**9
"""Memory of each accelerator if the text names none."""

_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(cpu|gpu)s?")
_NAMED = re.compile(r"([A-Za-z_][\w-]*)\s*=\s*(\d+(?:\.\d+)?)")


class NodeText(msgspec.Struct, frozen=True):
    """Resources of one machine."""

    cpus: float  # cores
    memory_bytes: int  # host memory
    gpus: int = 0  # accelerators
    gpu_memory_bytes: int = 0  # memory of each accelerator
    custom: dict[str, float] = {}  # named resources

    def __str__(self) -> str:
        parts = [f"{self.cpus:g} CPUs", f"{show_size(self.memory_bytes)} memory"]
        if self.gpus:
            parts.append(f"{self.gpus} GPUs of {show_size(self.gpu_memory_bytes)}")
        return ", ".join([*parts, *(f"{name} {amount:g}" for name, amount in self.custom.items())])


def parse_node(text: str) -> NodeText:
    """Parse the text form of a machine. Raise UsageError for a part that is not valid."""
    cpus = gpus = memory = gpu_memory = 0.0
    custom: dict[str, float] = {}
    last = ""
    for part in (piece.strip() for piece in text.lower().split(",")):
        count, named = _COUNT.fullmatch(part), _NAMED.fullmatch(part)
        if count is not None and count[2] == "cpu":
            cpus, last = float(count[1]), "cpu"
        elif count is not None:
            gpus, last = float(count[1]), "gpu"
        elif named is not None:
            custom[named[1]] = float(named[2])
        elif last == "gpu" and not gpu_memory:
            gpu_memory = _size(text, part)
        elif last and not memory:
            memory = _size(text, part)
        else:
            raise _refused(text, f"the size {part!r} must stand behind what it belongs to, and once")
    if not cpus:
        raise _refused(text, "it names no CPUs")
    if gpus != int(gpus):
        raise _refused(text, f"{gpus:g} GPUs is not a whole number")
    return NodeText(
        cpus,
        int(memory) or int(cpus * MEMORY_PER_CPU),
        int(gpus),
        int(gpu_memory) or (GPU_MEMORY if gpus else 0),
        custom,
    )


def _size(text: str, part: str) -> int:
    try:
        return parse_size(part, "--node")
    except UsageError:
        raise _refused(text, f"{part!r} is neither a number of CPUs or GPUs, nor a size, nor name=number") from None


def _refused(text: str, why: str) -> UsageError:
    return UsageError(
        f"--node: {text!r} is not a machine: {why}. Write its CPUs, the size of its memory, its GPUs and the memory of "
        f"each, such as {EXAMPLE}"
    )


def make_nodes(text: NodeText, count: int) -> tuple[NodeSpec, ...]:
    """Return `count` machines of one kind."""
    width = len(str(count))
    return tuple(
        NodeSpec(
            node=f"node-{number + 1:0{width}d}",
            cpus=text.cpus,
            gpus=(text.gpu_memory_bytes,) * text.gpus,
            memory_bytes=text.memory_bytes,
            custom=text.custom,
        )
        for number in range(count)
    )


def cluster_plan(
    pipeline: Pipeline, limits: Limits, machine: NodeText, count: int, workers: int | None = None
) -> tuple[Plan, RunSpec]:
    """Return the plan and the spec that a run on these machines would have; by default one worker per core.

    `limits` are the executor settings of the recipe, apart from workers and memory.
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


class Cost(msgspec.Struct, frozen=True):
    """Cost of a run, in the currency of the price."""

    per_node_hour: float  # the price
    total: float  # of the whole run
    per_tb: float  # for 10^12 bytes of input


def cost_of(wall_s: float, nodes: int, data_bytes: int, per_node_hour: float) -> Cost:
    """Return the cost of a run. Every machine is paid from start to end, busy or not."""
    total = wall_s / 3600 * nodes * per_node_hour
    return Cost(per_node_hour, total, total / (data_bytes / 10**12) if data_bytes else 0.0)
