# SPDX-License-Identifier: Apache-2.0
"""The inputs of a rehearsal: machines from their text form, the plan for them, their cost, and units of data.

In the text form of a machine, `64cpu,512GB,8gpu,80GB`, a size refers to the part before it: after `cpu` it is the
memory of the machine, after `gpu` that of each accelerator. `name=number` is a named resource.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

import msgspec

from thresher.core.arguments.sizes import parse_size, show_size
from thresher.core.pipeline import Pipeline
from thresher.core.planning.plan import Plan, make_plan
from thresher.errors import UsageError
from thresher.runtime.executor import PAYLOAD_SHARE, Limits, refuse_misfits, run_spec
from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec, UnitSpec
from thresher.simulate.profile import FileSample, RunProfile, op_key

EXAMPLE = '"64cpu,512GB,8gpu,80GB"'
MEMORY_PER_CPU = 4 * 10**9
"""Host memory per CPU if the text names none."""
MEMORY_SHARE = 0.6
"""Share of a machine's memory that a run may use, as in a local run by default."""
GPU_MEMORY = 80 * 10**9
"""Memory of each accelerator if the text names none."""
MOST_UNITS = 5_000_000
"""Limit for the number of units, which must fit in memory; larger files make fewer of them."""

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


def make_units(
    profile: RunProfile,
    ops: tuple[OpSpec, ...],
    *,
    data_bytes: int | None = None,
    file_bytes: int | None = None,
    block_bytes: int | None = None,
) -> list[UnitSpec]:
    """Return the units of `data_bytes` of input. Files are those of the profile, repeated, or all of one size."""
    entries = {op_key(op): op.index for op in ops if op.source}
    total = data_bytes if data_bytes is not None else profile.input_bytes
    if not profile.input_bytes:
        given = [file for file in profile.files if not file.later]
        return [UnitSpec(f"task-{n}", (0, n), entries[file.op], 0) for n, file in enumerate(given)]
    files = _files(profile, file_bytes)
    expected = sum(1 if file.stream else _unit_count(file, block_bytes) for file in files)
    if expected * total / sum(file.nbytes for file in files) > MOST_UNITS:
        raise UsageError(
            f"--data: {total:,} bytes in files as small as those of the profile are over {MOST_UNITS:,} units. "
            "Say how large the files will be with --file-size, such as --file-size 1GB"
        )
    units: list[UnitSpec] = []
    for number, file in enumerate(_repeat_files(files, total)):
        entry = entries[file.op]
        if file.stream:
            units.append(UnitSpec(f"f{number}", (number, 0), entry, file.nbytes, stream=True))
            continue
        count = _unit_count(file, block_bytes)
        base, rest = divmod(file.nbytes, count)
        units.extend(
            UnitSpec(f"f{number}-{block}", (number, block), entry, base + (block < rest)) for block in range(count)
        )
    return units


class LaterPhase(NamedTuple):
    """A phase after the first."""

    entry: OpSpec
    """Index of the op at which its units enter."""
    block_bytes: int | None
    """Approximate size of its units; `None`: it has as many units as in the measured run, however large the input."""


def later_phases(plan: Plan, ops: Sequence[OpSpec]) -> list[LaterPhase]:
    """Return the phases of a plan after the first."""
    found = []
    for phase in range(1, len(plan.phase_starts)):
        stage = getattr(plan.source_of(phase), "stage", None)
        found.append(LaterPhase(ops[plan.entries[f"phase-{phase + 1}"]], getattr(stage, "blocksize", None)))
    return found


def make_phase_units(profile: RunProfile, phases: Sequence[LaterPhase], data_bytes: int) -> list[list[UnitSpec]]:
    """Return the units of each phase after the first, for `data_bytes` of input; without those that have none.

    Where units have a size, there are more of them for more input. A phase that makes one result of all records costs
    what it has cost in the measured run.
    """
    scale = data_bytes / profile.input_bytes if profile.input_bytes else 1.0
    found = []
    for number, phase in enumerate(phases, start=2):
        files = [file for file in profile.files if file.later and file.op == op_key(phase.entry)]
        units, nbytes = sum(file.units for file in files), sum(file.nbytes for file in files)
        if units and phase.block_bytes:
            nbytes = int(nbytes * scale)
            units = max(1, round(units * scale) if units > 1 else -(-nbytes // phase.block_bytes))
            if units > MOST_UNITS:
                raise UsageError(
                    f"--data: phase {number} of {data_bytes:,} bytes of input has over {MOST_UNITS:,} units. Set a "
                    f"larger blocksize for {phase.entry.stages[0].removesuffix('-read')}, such as 256MB"
                )
        sizes = [nbytes // units] * units
        found.append([UnitSpec(f"p{number}-{n}", (n, 0), phase.entry.index, size) for n, size in enumerate(sizes)])
    return [units for units in found if units]


def _files(profile: RunProfile, file_bytes: int | None) -> list[FileSample]:
    """Return the files of the profile, or one of the given size in their place."""
    files = [file for file in profile.files if file.nbytes and not file.later]
    if file_bytes is None:
        return files
    largest = max(files, key=lambda file: file.nbytes)
    units = max(1, round(file_bytes * largest.units / largest.nbytes))
    return [FileSample(file_bytes, units, largest.op, largest.stream)]


def _repeat_files(files: list[FileSample], total: int) -> Iterator[FileSample]:
    """Yield files over and over, up to `total` bytes; the last one is truncated."""
    left = total
    for file in cycle(files):
        if left <= 0:
            return
        if file.nbytes > left:
            yield FileSample(left, max(1, round(file.units * left / file.nbytes)), file.op, file.stream)
        else:
            yield file
        left -= file.nbytes


def _unit_count(file: FileSample, block_bytes: int | None) -> int:
    """Return the number of units of a file: as in the profile, unless the recipe sets a very different block size."""
    if block_bytes is None:
        return file.units
    measured = file.nbytes / file.units
    if measured / 2 <= block_bytes and (file.units == 1 or block_bytes <= 2 * measured):
        return file.units
    return -(-file.nbytes // block_bytes)
