# SPDX-License-Identifier: Apache-2.0
"""The machines of a rehearsal, as people write them: `64cpu,512GB,8gpu,80GB`.

A size belongs to what stands before it: behind `cpu` it is the memory of the machine, behind `gpu` that of each
accelerator. `name=number` is a named resource.
"""

from __future__ import annotations

import re

import msgspec

from thresher.core.sizes import parse_size, show_size
from thresher.errors import UsageError
from thresher.scheduler.model import NodeSpec

EXAMPLE = '"64cpu,512GB,8gpu,80GB"'
MEMORY_PER_CPU = 4 * 10**9
"""Host memory of a machine whose text names none."""
GPU_MEMORY = 80 * 10**9
"""Memory of each accelerator where the text names none."""

_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(cpu|gpu)s?")
_NAMED = re.compile(r"([A-Za-z_][\w-]*)\s*=\s*(\d+(?:\.\d+)?)")


class NodeText(msgspec.Struct, frozen=True):
    """What one machine has."""

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
    """A machine from its text; UsageError says what is wrong with which part of it."""
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
        f"--node: {text!r} is no machine: {why}. Write its CPUs, the size of its memory, its GPUs and the memory of "
        f"each, such as {EXAMPLE}"
    )


def make_nodes(text: NodeText, count: int) -> tuple[NodeSpec, ...]:
    """So many machines of one kind."""
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
