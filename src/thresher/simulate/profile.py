# SPDX-License-Identifier: Apache-2.0
"""The profile of an earlier run: the measured costs that a rehearsal draws from, scaled by bytes.

Samples are drawn without replacement in random order, then all of them again. So the mean of the drawn samples is the
measured mean, even in a short run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from thresher.errors import UsageError, nearest
from thresher.scheduler.model import OpSpec, RunSpec
from thresher.simulate.workload import RunningTask, SimulatedOutput, SimulatedWork, Workload

Card = TypeVar("Card")
LEAST_SHARE = 0.1
"""A call takes at least this share of the time of its stages."""
MANY_TASKS = 1_000_000
"""Tasks per call if none of them emits more than one batch: their ends are reported together, as by real workers."""
DRIVER_EVENT_S = 80e-6
"""Time of the driver for one event, if a log is too short to measure it."""


class TaskSample(msgspec.Struct, frozen=True, gc=False):
    """One measured task."""

    in_bytes: int  # size of its payload, or of the unit it read
    busy_s: float  # time inside stages
    outputs: tuple[SimulatedOutput, ...] = ()  # emitted batches
    stages: dict[str, tuple[float, int]] = {}  # stage -> time inside it, input bytes


class OpProfile(msgspec.Struct, frozen=True):
    """Measured tasks of one op."""

    name: str  # name in the log
    samples: tuple[TaskSample, ...]  # tasks to draw from; without each worker's first one, if there are enough
    overhead_s: float  # time that a task occupied its worker beyond its stages: messages, payloads, the driver
    cold_s: float = 0.0  # extra time of the first task of a worker
    start_s: float | None = None  # setup time of a dedicated worker; None: it had none
    at_once: bool = False  # its last output was always reported with its end: it never parks after that

    @property
    def busy_s(self) -> float:
        """Return the mean time of a task inside stages."""
        return sum(sample.busy_s for sample in self.samples) / len(self.samples)


class FileSample(msgspec.Struct, frozen=True, gc=False):
    """One input file, or one pack of small ones."""

    nbytes: int  # size
    units: int  # number of units it was cut into before the run
    op: tuple[str, ...]  # key of its entry op
    stream: bool = False  # cut while it is read
    later: bool = False  # what a phase after the first has read


class CommitSample(msgspec.Struct, frozen=True, gc=False):
    """One measured commit."""

    in_bytes: int  # size of the unit's input; 0: unknown, because it was cut from a stream
    held_s: float  # time that it occupied its worker


class RunProfile(msgspec.Struct, frozen=True):
    """Measurements of an earlier run that a rehearsal uses."""

    stages: tuple[str, ...]  # names of the stages of its pipeline
    ops: dict[tuple[str, ...], OpProfile]  # profiles by `op_key`
    files: tuple[FileSample, ...]  # input files
    docs: int = 0  # records read
    commits: tuple[CommitSample, ...] = (CommitSample(0, 0.005),)  # measured commits
    start_s: float = 0.05  # setup time of a shared worker
    start_gap_s: float = 0.0  # delay between two workers of one machine that start together
    listing_s: float = 0.0  # time until the first units were listed
    outside_s: float = 0.0  # time of the run before and after the driver's loop
    driver_event_s: float = DRIVER_EVENT_S  # time of the driver for one event
    worker_bytes: int = 0  # memory of one worker without payloads
    workers: int = 1  # number of shared workers

    @property
    def input_bytes(self) -> int:
        """Return the size of all input files."""
        return sum(file.nbytes for file in self.files if not file.later)


def op_key(op: OpSpec) -> tuple[str, ...]:
    """Return the key that identifies an op across plans: its stages and its position in the route."""
    place = ("source" if op.source else "", "sink" if op.sink else "", "" if op.next is None else "emits")
    return (*op.stages, *place)


def check_fits(profile: RunProfile, stages: Sequence[str], where: str) -> None:
    """Raise UsageError if the profile belongs to another pipeline."""
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
    """Raise UsageError if an op on the route of the input was never measured."""
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
    """Return the profile with given costs of some stages, in seconds per 10^6 input bytes."""
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
    ops: Sequence[OpSpec], stages: Sequence[str], entries: Sequence[OpSpec], block_bytes: int, chunk_bytes: int
) -> RunProfile:
    """Return a profile without a run: stages cost nothing until `with_costs`, and emit as many bytes as they take.

    `entries`: where each phase begins; a phase reads as many bytes as the one before.
    """
    found = {}
    for op in ops:
        size = block_bytes if op.source and op.next is None else chunk_bytes
        outputs = (SimulatedOutput(size),) if op.next is not None else ()
        costs = dict.fromkeys(op.stages, (0.0, size))
        samples = (TaskSample(size, 0.0, outputs, costs),)
        found[op_key(op)] = OpProfile(op.name, samples, 0.001, at_once=not op.source)
    files = [FileSample(block_bytes, 1, op_key(entry), later=number > 0) for number, entry in enumerate(entries)]
    return RunProfile(tuple(stages), found, tuple(files))


class Deck(Generic[Card]):
    """Draws cards without replacement in random order, and starts over when none is left."""

    __slots__ = ("_cards", "_random", "_waiting")

    def __init__(self, cards: Sequence[Card], random: Random) -> None:
        self._cards = list(cards)
        self._random = random
        self._waiting: list[Card] = []

    def deal(self) -> Card:
        """Return the next card."""
        if not self._waiting:
            self._waiting = self._cards.copy()
            self._random.shuffle(self._waiting)
        return self._waiting.pop()


class OpCosts:
    """Draws the work of tasks of one op."""

    __slots__ = ("_deck", "_overhead_s", "_source", "emits", "profile", "tasks_per_call")

    def __init__(self, op: OpSpec, profile: OpProfile, random: Random) -> None:
        self.profile = profile
        self.emits = op.next is not None
        self._deck = Deck(profile.samples, random)
        self._source = op.source
        self._overhead_s = profile.overhead_s
        self.tasks_per_call = op.batch_size
        if op.batch_size == 1 and (not self.emits or max(len(sample.outputs) for sample in profile.samples) <= 1):
            self.tasks_per_call = MANY_TASKS

    def draw(self, in_bytes: int) -> SimulatedWork:
        """Return the work of one task with `in_bytes` of input."""
        sample = self._deck.deal()
        scale = in_bytes / sample.in_bytes if in_bytes and sample.in_bytes else 1.0
        busy_s = sample.busy_s * scale
        held_s = max(busy_s + self._overhead_s, LEAST_SHARE * busy_s)
        if not self.emits or not sample.outputs:
            return SimulatedWork(held_s, busy_s)
        if 0.999 < scale < 1.001:
            return SimulatedWork(held_s, busy_s, sample.outputs)
        return SimulatedWork(
            held_s, busy_s, _scale_count(sample, scale) if self._source else _scale_sizes(sample, scale)
        )


class CommitCosts:
    """Draws the costs of commits: the time of the quickest one is fixed, the rest is scaled by bytes.

    It is scaled from the mean size: that of a small unit alone says little about a large one.
    """

    __slots__ = ("_deck", "_least_s", "_mean_bytes")

    def __init__(self, samples: Sequence[CommitSample], random: Random) -> None:
        self._deck = Deck(samples, random)
        self._least_s = min(sample.held_s for sample in samples)
        known = [sample.in_bytes for sample in samples if sample.in_bytes]
        self._mean_bytes = sum(known) / len(known) if known else 0.0

    def draw(self, in_bytes: int) -> float:
        """Return the time that a commit occupies its worker."""
        sample = self._deck.deal()
        scale = in_bytes / self._mean_bytes if in_bytes and sample.in_bytes else 1.0
        return self._least_s + (sample.held_s - self._least_s) * scale


class ProfileWorkload(Workload):
    """Draws the work of a run from the profile of another one."""

    limits_cores = True

    def __init__(self, spec: RunSpec, profile: RunProfile, seed: int) -> None:
        random = Random(seed)
        found = [profile.ops.get(op_key(op)) for op in spec.ops]
        self._ops: list[Any] = [
            None if own is None else OpCosts(op, own, random) for op, own in zip(spec.ops, found, strict=True)
        ]
        self._commits = CommitCosts(profile.commits, random)
        self._start_s = profile.start_s
        self.start_gap_s = profile.start_gap_s
        self.driver_event_s = profile.driver_event_s
        # With as many workers per machine as in the profile, its costs already include the load of the driver.
        self.driver_adds_load = spec.shared_workers > profile.workers * max(1, len(spec.nodes))

    def start_s(self, op: int | None) -> float:
        """Return the setup time of a worker: of its stage, if it was measured."""
        costs = None if op is None else self._ops[op]
        return self._start_s if costs is None or costs.profile.start_s is None else costs.profile.start_s

    def tasks_per_call(self, op: int) -> int:
        """Return the maximum number of tasks that one call takes."""
        costs: OpCosts | None = self._ops[op]
        assert costs is not None, f"no task of op {op} was measured"
        return costs.tasks_per_call

    def is_gradual(self, op: int) -> bool:
        """Return True for ops that emit anything."""
        return bool(self._ops[op].emits)

    def ends_at_once(self, op: int) -> bool:
        """Return True if tasks were never seen to wait after their last output."""
        return bool(self._ops[op].profile.at_once)

    def draw(self, op: int, task: RunningTask, in_bytes: int, *, gradual: bool) -> SimulatedWork:
        """Return the work of a measured task, scaled to `in_bytes`."""
        work: SimulatedWork = self._ops[op].draw(in_bytes)
        return work

    def cold_s(self, op: int) -> float:
        """Return the extra time of the first call of an op in a worker."""
        return float(self._ops[op].profile.cold_s)

    def commit_s(self, in_bytes: int) -> float:
        """Return the time of a measured commit, scaled to `in_bytes`."""
        return self._commits.draw(in_bytes)


def _scale_sizes(sample: TaskSample, scale: float) -> tuple[SimulatedOutput, ...]:
    """Scale the size of each output, for tasks that read a batch."""
    return tuple(SimulatedOutput(max(1, int(out.nbytes * scale)), out.unit, out.closes) for out in sample.outputs)


def _scale_count(sample: TaskSample, scale: float) -> tuple[SimulatedOutput, ...]:
    """Scale the number of outputs (and of units of a stream), for tasks that read a file."""
    outputs = sample.outputs
    units = 1 + max(out.unit for out in outputs)
    found = []
    for place in range(max(1, round(len(outputs) * scale))):
        turn, rest = divmod(place, len(outputs))
        out = outputs[rest]
        found.append(SimulatedOutput(out.nbytes, out.unit + turn * units, out.closes))
    return tuple(found)
