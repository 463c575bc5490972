# SPDX-License-Identifier: Apache-2.0
"""What an earlier run tells about the cost of its stages, as far as a rehearsal needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from thresher.errors import UsageError, nearest
from thresher.scheduler.model import OpSpec

DRIVER_EVENT_S = 80e-6
"""Time the driver takes for one event, where a log is too short to tell."""


class Output(msgspec.Struct, frozen=True, gc=False):
    """One batch that a task emitted."""

    nbytes: int  # its size; -1: no batch, the entry only closes a unit
    unit: int = 0  # in a stream: number of the unit it belongs to, from 0
    closes: bool = False  # in a stream: the last of its unit


class TaskSample(msgspec.Struct, frozen=True, gc=False):
    """One task that was run."""

    in_bytes: int  # of its payload, or of the unit it read
    busy_s: float  # time inside stages
    outputs: tuple[Output, ...] = ()  # what it emitted
    stages: dict[str, tuple[float, int]] = {}  # stage -> time inside it, bytes that went into it


class OpProfile(msgspec.Struct, frozen=True):
    """What the tasks of one op did."""

    name: str  # as in the log
    samples: tuple[TaskSample, ...]  # tasks to draw from; each worker's first one is left out where there are enough
    overhead_s: float  # time that a task held its worker beyond its stages: messages, payloads, waiting for the driver
    cold_s: float = 0.0  # what the first task of a worker took longer than others
    start_s: float | None = None  # time until a worker of its own was ready; None: it had none
    at_once: bool = False  # its last output came with the news of its end, always: it never parks behind that

    @property
    def busy_s(self) -> float:
        """Mean time of a task inside stages."""
        return sum(sample.busy_s for sample in self.samples) / len(self.samples)


class FileSample(msgspec.Struct, frozen=True, gc=False):
    """One input file, or one pack of small ones."""

    nbytes: int  # its size
    units: int  # units it was cut into before the run
    op: tuple[str, ...]  # key of the op that it enters at
    stream: bool = False  # cut while it is read


class CommitSample(msgspec.Struct, frozen=True, gc=False):
    """One unit that was committed."""

    in_bytes: int  # of the unit's input; 0: not known, as it was cut from a stream
    held_s: float  # time that it held its worker


class RunProfile(msgspec.Struct, frozen=True):
    """Everything that a rehearsal takes from an earlier run."""

    stages: tuple[str, ...]  # names of the stages of its pipeline
    ops: dict[tuple[str, ...], OpProfile]  # by `op_key`
    files: tuple[FileSample, ...]  # its input
    docs: int = 0  # records it read
    commits: tuple[CommitSample, ...] = (CommitSample(0, 0.005),)  # its commits
    start_s: float = 0.05  # time until a shared worker was ready
    start_gap_s: float = 0.0  # time between two workers of one machine that start together
    listing_s: float = 0.0  # time until the first units were listed
    outside_s: float = 0.0  # time of the run before and after the driver's loop
    driver_event_s: float = DRIVER_EVENT_S  # time the driver takes for one event
    worker_bytes: int = 0  # memory of one worker without payloads
    workers: int = 1  # shared workers it had

    @property
    def input_bytes(self) -> int:
        """Size of all files."""
        return sum(file.nbytes for file in self.files)


def op_key(op: OpSpec) -> tuple[str, ...]:
    """What makes an op of one plan the same as one of another: its stages and its place in the route."""
    place = ("source" if op.source else "", "sink" if op.sink else "", "" if op.next is None else "emits")
    return (*op.stages, *place)


def check_fits(profile: RunProfile, stages: Sequence[str], where: str) -> None:
    """Raise if the profile is one of another pipeline."""
    if tuple(stages) == profile.stages:
        return
    missing = [name for name in stages if name not in profile.stages]
    extra = [name for name in profile.stages if name not in stages]
    what = "the same stages in another order"
    if missing or extra:
        parts = [f"no {', '.join(missing)}"] if missing else []
        parts += [f"{', '.join(extra)}, which the recipe has not"] if extra else []
        what = " and ".join(parts)
    raise UsageError(
        f"--profile {where}: that run was one of another pipeline: it has {what}. Its stages: "
        f"{', '.join(profile.stages)}; those of the recipe: {', '.join(stages)}. Run the recipe once on a little data "
        "and give that run"
    )


def check_routes(profile: RunProfile, ops: Sequence[OpSpec], where: str) -> None:
    """Raise if an op that the input passes through was never measured."""
    for file in profile.files:
        op: OpSpec | None = next((o for o in ops if o.source and op_key(o) == file.op), None)
        if op is None:
            raise UsageError(
                f"--profile {where}: its stages were grouped in another way than the recipe asks for now (fusion or "
                "execution_mode). Run the recipe once as it is now and give that run"
            )
        while op is not None:
            if op_key(op) not in profile.ops:
                raise UsageError(
                    f"--profile {where}: no task of {op.name!r} ended in that run, so its cost is not known. "
                    "Give a run that got further"
                )
            op = None if op.next is None else ops[op.next]


def with_costs(profile: RunProfile, costs: Mapping[str, float]) -> RunProfile:
    """The profile with some stages at a given cost, in seconds for 10^6 bytes that go in."""
    for stage in costs:
        if stage not in profile.stages:
            raise UsageError(
                f"--cost {stage}=…: the pipeline has no stage {stage!r}.{nearest(stage, profile.stages)} "
                f"Its stages: {', '.join(profile.stages)}"
            )
    ops = {key: _costed(op, costs) for key, op in profile.ops.items()}
    return msgspec.structs.replace(profile, ops=ops)


def _costed(op: OpProfile, costs: Mapping[str, float]) -> OpProfile:
    samples = []
    for sample in op.samples:
        busy_s = sample.busy_s
        stages = dict(sample.stages)
        for stage, (stage_s, nbytes) in sample.stages.items():
            if stage in costs:
                stages[stage] = (costs[stage] * nbytes / 1e6, nbytes)
                busy_s += stages[stage][0] - stage_s
        samples.append(msgspec.structs.replace(sample, busy_s=max(0.0, busy_s), stages=stages))
    return msgspec.structs.replace(op, samples=tuple(samples))


def given_profile(
    ops: Sequence[OpSpec], stages: Sequence[str], entry: OpSpec, block_bytes: int, chunk_bytes: int
) -> RunProfile:
    """A profile without any run: every stage costs nothing until `with_costs`, and gives as many bytes as it takes."""
    found = {}
    for op in ops:
        size = block_bytes if op.source and op.next is None else chunk_bytes
        outputs = (Output(size),) if op.next is not None else ()
        costs = dict.fromkeys(op.stages, (0.0, size))
        samples = (TaskSample(size, 0.0, outputs, costs),)
        found[op_key(op)] = OpProfile(op.name, samples, 0.001, at_once=not op.source)
    files = (FileSample(block_bytes, 1, op_key(entry)),)
    return RunProfile(tuple(stages), found, files)
