# SPDX-License-Identifier: Apache-2.0
"""What a pipeline becomes for one run: stages expanded, named and checked, and fused into ops.

An op is a row of steps that one worker runs in one go. An input that can be split takes the `unit` route, where as
much as possible is one op; a file that must be unpacked from its start takes the `stream` route, where reading is an
op of its own so that several workers share the rest.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from thresher.core.checks import (
    check_columns,
    check_keeps_scores,
    check_ordered,
    check_places,
    check_task_types,
)
from thresher.core.needed_columns import read_less
from thresher.core.pipeline import Pipeline, Stage
from thresher.core.resources import Resources
from thresher.core.scores import ScorePlan, ScoreSource, score_columns
from thresher.core.stage import (
    CompositeStage,
    FunctionStage,
    OrderedStage,
    SinkStage,
    SourceStage,
    check_settings,
    needs_own_workers,
)
from thresher.errors import PlanError
from thresher.version import __version__

StepKind = Literal["read", "parse", "process", "write", "join"]
CHUNK_BYTES = 4 * 2**20


class Step(msgspec.Struct, frozen=True):
    """One thing that a worker does inside an op."""

    kind: StepKind
    """What is done."""
    stage: int
    """Number of the stage that does it."""


class Op(msgspec.Struct, frozen=True):
    """Steps that one worker runs in one go."""

    index: int
    """Its number."""
    steps: tuple[Step, ...]
    """What is done, in order."""
    next: int | None = None
    """The op that gets what this one emits; `None`: a writer, or the caller."""
    dedicated: bool = False
    """Whether it has workers of its own; otherwise any shared worker runs it."""
    workers: int | None = None
    """Exactly so many workers of its own; `None`: as many as keep the pipeline going."""
    batch_size: int = 1
    """Tasks per call."""
    max_attempts: int = 3
    """How often a task is tried."""
    resources: Resources = Resources()
    """What a call holds, or a worker of its own while it lives."""

    @property
    def reads(self) -> bool:
        """Whether its tasks are units."""
        return self.steps[0].kind in ("read", "join")

    @property
    def writes(self) -> bool:
        """Whether it ends in a writer."""
        return self.steps[-1].kind in ("write", "join")


@dataclass(frozen=True)
class PlanSettings:
    """What an executor asks of a plan."""

    fusion: bool = True
    """Whether neighbours are fused."""
    barrier: bool = False
    """Whether each stage ends before the next begins."""
    chunk_bytes: int = CHUNK_BYTES
    """About how much a reader gives at a time."""
    max_record_bytes: int = 2**62
    """A larger record is set aside."""
    memory_bytes: int = 0
    """Ceiling for driver and workers together; 0: none."""
    keep_dropped: bool = False
    """Whether dropped records are kept for `dropped_to`."""
    whole_records: bool = False
    """Whether all columns are read, also those that make no difference to the output."""
    keep_scores: bool = False
    """Whether scores are kept in the run folder."""
    known_scores: ScoreSource | None = None
    """A run whose scores are taken where they hold."""


@dataclass(frozen=True)
class Plan:
    """Everything that a worker needs to know."""

    name: str
    """Of the pipeline."""
    stages: tuple[Stage, ...]
    """Single stages, in order; their names are unique."""
    ops: tuple[Op, ...]
    """In such an order that `next` always points forward."""
    entries: dict[str, int]
    """Route to its first op: `unit`, `stream`, `join`, or `task` where there is no reader."""
    settings: PlanSettings = field(default_factory=PlanSettings)
    scores: ScorePlan | None = None
    """What is done with scores; `None`: nothing."""

    @property
    def source(self) -> SourceStage[Any] | None:
        """The reader."""
        first = self.stages[0]
        return first if isinstance(first, SourceStage) else None

    @property
    def sink(self) -> SinkStage[Any, Any] | None:
        """The writer."""
        last = self.stages[-1]
        return last if isinstance(last, SinkStage) else None

    def op_name(self, op: Op) -> str:
        """The names of its stages, joined."""
        numbers = dict.fromkeys(step.stage for step in op.steps)
        return "+".join(self.stages[number].name for number in numbers)

    def groups(self) -> list[list[str]]:
        """Names of stages that run fused, for people."""
        entry: int | None = self.entries.get("unit", self.entries.get("task"))
        groups: list[list[str]] = []
        while entry is not None:
            op = self.ops[entry]
            groups.append([self.stages[n].name for n in dict.fromkeys(step.stage for step in op.steps)])
            entry = op.next
        return groups


def make_plan(pipeline: Pipeline, settings: PlanSettings | None = None, *, initial_tasks: bool = False) -> Plan:
    """Expand, name, check and fuse the stages of a pipeline."""
    settings = settings or PlanSettings()
    stages = _named(expanded(pipeline.stages))
    for stage in stages:
        check_settings(stage)
    check_places(stages, initial_tasks=initial_tasks)
    check_ordered(stages)
    check_task_types(stages)
    check_columns(stages)
    if not settings.keep_dropped and not settings.whole_records:
        stages = read_less(stages)
    if settings.keep_scores:
        check_keeps_scores(stages)
    ops, entries = _fused(stages, settings)
    return Plan(pipeline.name, tuple(stages), ops, entries, settings, _scores(stages, settings))


def _scores(stages: Sequence[Stage], settings: PlanSettings) -> ScorePlan | None:
    if not settings.keep_scores and settings.known_scores is None:
        return None
    return ScorePlan(score_columns(stages, __version__), settings.keep_scores, settings.known_scores)


def expanded(stages: Sequence[Stage], inside: tuple[str, ...] = ()) -> list[Stage]:
    flat: list[Stage] = []
    for stage in stages:
        if not isinstance(stage, CompositeStage):
            flat.append(stage)
            continue
        if type(stage).__name__ in inside:
            raise PlanError(f"{stage.name}: composite stages hold each other: {' > '.join((*inside, stage.name))}")
        parts = stage.decompose()
        if not parts:
            raise PlanError(f"{stage.name}: decompose() gave no stages")
        flat.extend(expanded(parts, (*inside, type(stage).__name__)))
    return flat


def _named(stages: list[Stage]) -> list[Stage]:
    """Copies with unique names: the second of a kind gets `-2`."""
    taken: set[str] = set()
    named = []
    for stage in stages:
        numbered = (f"{stage.name}-{count}" for count in itertools.count(2))
        name = next(name for name in itertools.chain([stage.name], numbered) if name not in taken)
        taken.add(name)
        named.append(stage.with_(name=name))
    return named


# -- fusion ----------------------------------------------------------------------------------------------------


def _stands_alone(stage: Stage) -> bool:
    return needs_own_workers(stage) or not stage.row_wise or stage.batch_size > 1


def gives_bit_by_bit(stage: Stage) -> bool:
    """Whether a stage makes several tasks of one, one after the other; it ends a group."""
    made_by = stage.function if isinstance(stage, FunctionStage) else type(stage).process
    return stage.fans_out or inspect.isgeneratorfunction(made_by)


def _groups_of(stages: Sequence[Stage], numbers: range, fusion: bool) -> list[list[int]]:
    """Neighbours that run in one call."""
    groups: list[list[int]] = []
    is_open = False
    for number in numbers:
        alone = _stands_alone(stages[number]) or not fusion
        if alone or not is_open:
            groups.append([number])
        else:
            groups[-1].append(number)
        is_open = not alone and not gives_bit_by_bit(stages[number])
    return groups


def _fused(stages: list[Stage], settings: PlanSettings) -> tuple[tuple[Op, ...], dict[str, int]]:
    reads, writes = isinstance(stages[0], SourceStage), isinstance(stages[-1], SinkStage)
    last = len(stages) - 1
    fusion = settings.fusion and not settings.barrier
    end = last + 1 - int(writes)
    in_order = next((n for n in range(int(reads), end) if isinstance(stages[n], OrderedStage)), end)
    middle = _groups_of(stages, range(int(reads), in_order), fusion)
    rows = [tuple(Step("process", number) for number in group) for group in middle]
    lone_first = bool(middle) and (_stands_alone(stages[middle[0][0]]) or not fusion)
    ordered = tuple(Step("process", number) for number in range(in_order, end))
    write = (*ordered, Step("write", last)) if writes else ()
    routes: dict[str, list[tuple[Step, ...]]] = {}
    if reads:
        read, parse = Step("read", 0), Step("parse", 0)
        head = [] if lone_first else rows[:1]
        tail = rows if lone_first else rows[1:]
        first = (parse, *(head[0] if head else ()))
        whole = not tail and fusion and not (middle and gives_bit_by_bit(stages[middle[-1][-1]]))
        rest = [*tail, write] if write else list(tail)
        if whole:
            routes["unit"] = [(read, *first, *write)]
        else:
            routes["unit"] = [(read, *first), *rest]
        routes["stream"] = [(read,), first, *rest]
    else:
        routes["task"] = [*rows, *([write] if write else [])]
    if writes and getattr(stages[last], "target_file_size", None):
        routes["join"] = [(Step("join", last),)]
    return _linked(stages, routes)


def _linked(stages: list[Stage], routes: dict[str, list[tuple[Step, ...]]]) -> tuple[tuple[Op, ...], dict[str, int]]:
    """Ops for all routes; what two routes end in alike is there once."""
    found = dict.fromkeys(tuple(route[start:]) for route in routes.values() for start in range(len(route)))
    # The longest tail comes first, so that `next` points forward.
    tails = {tail: index for index, tail in enumerate(sorted(found, key=len, reverse=True))}
    ordered = sorted(tails, key=tails.__getitem__)
    ops = [_op(stages, tails[tail], tail[0], tails[tail[1:]] if len(tail) > 1 else None) for tail in ordered]
    return tuple(ops), {name: tails[tuple(route)] for name, route in routes.items()}


def _op(stages: list[Stage], index: int, steps: tuple[Step, ...], following: int | None) -> Op:
    members = [stages[step.stage] for step in steps]
    counts = [count for stage in members if (count := stage.num_workers()) is not None]
    return Op(
        index,
        steps,
        following,
        any(map(needs_own_workers, members)),
        counts[0] if counts else None,
        max(stage.batch_size for stage in members),
        max(stage.max_attempts for stage in members),
        _together([stage.resources for stage in members]),
    )


def _together(needs: list[Resources]) -> Resources:
    """What one worker needs that runs all of these: it runs one after the other, and keeps what each has loaded."""
    names = dict.fromkeys(name for need in needs for name in need.custom)
    return Resources(
        cpus=max(need.cpus for need in needs),
        gpus=max(need.gpus for need in needs),
        gpu_memory_gb=max(need.gpu_memory_gb for need in needs),
        memory_gb=sum(need.memory_gb for need in needs),
        custom={name: max(need.custom.get(name, 0.0) for need in needs) for name in names},
    )
