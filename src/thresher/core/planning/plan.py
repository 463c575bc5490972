# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: the stages of a pipeline expanded, named, checked and fused into ops.

An op is a sequence of steps that one worker runs in one call. An input that can be split takes the `unit` route, where
as much as possible is one op; a file that must be unpacked from its start takes the `stream` route, where reading is a
separate op so that several workers share the rest.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from thresher.core.arguments.stage_settings import check_settings
from thresher.core.function_stage import FunctionStage
from thresher.core.outlets import KEPT_STREAMS
from thresher.core.phases import PhaseReader, PhaseWriter, phase_starts
from thresher.core.pipeline import Pipeline, Stage
from thresher.core.planning.checks import (
    Problems,
    check_columns,
    check_keeps_dropped,
    check_keeps_scores,
    check_ordered,
    check_outlets,
    check_positions,
    check_task_types,
)
from thresher.core.planning.inputs import input_columns
from thresher.core.registry import OUTLET_FILES, resolve
from thresher.core.resources import Resources
from thresher.core.scores import ScorePlan, ScoreSource, score_columns
from thresher.core.stage import (
    CompositeStage,
    OrderedStage,
    SinkStage,
    SourceStage,
    needs_own_workers,
    overrides,
)
from thresher.core.tally import Tally
from thresher.errors import PlanError, RefusedError
from thresher.version import __version__

StepKind = Literal["read", "parse", "process", "write", "join"]
CHUNK_BYTES = 4 * 2**20


class Step(msgspec.Struct, frozen=True):
    """One action of a worker inside an op."""

    kind: StepKind
    """Kind of the action."""
    stage: int
    """Index of the stage that performs it."""


class Op(msgspec.Struct, frozen=True):
    """Steps that one worker runs in one call."""

    index: int
    """Index in the plan."""
    steps: tuple[Step, ...]
    """Steps in order."""
    next: int | None = None
    """Index of the op that receives the output; `None` if the output goes to a writer or to the caller."""
    dedicated: bool = False
    """True if it has its own workers; otherwise any shared worker runs it."""
    workers: int | None = None
    """Fixed number of dedicated workers; `None` for as many as keep the pipeline busy."""
    batch_size: int = 1
    """Tasks per call."""
    max_attempts: int = 3
    """Maximum number of attempts per task."""
    resources: Resources = Resources()
    """Resources that a call holds, or a dedicated worker until it exits."""

    @property
    def reads(self) -> bool:
        """Return True if its tasks are input units."""
        return self.steps[0].kind in ("read", "join")

    @property
    def writes(self) -> bool:
        """Return True if it ends in a writer."""
        return self.steps[-1].kind in ("write", "join")


@dataclass(frozen=True)
class PlanSettings:
    """Settings of an executor for a plan."""

    fusion: bool = True
    """True to fuse neighbouring stages."""
    barrier: bool = False
    """True if each stage finishes before the next one starts."""
    chunk_bytes: int = CHUNK_BYTES
    """Approximate size of the chunks that a reader emits."""
    large_bytes: int = 0
    """Size above which a record needs admission before each step; at least two chunks."""
    max_record_bytes: int = 2**62
    """Size above which a record is quarantined."""
    memory_bytes: int = 0
    """Memory limit for driver and workers together; 0 for none."""
    keep_dropped: bool = False
    """True to keep dropped records for `dropped_to`."""
    whole_records: bool = False
    """True to read all columns, including those that do not affect the output."""
    keep_scores: bool = False
    """True to keep scores in the run folder."""
    known_scores: ScoreSource | None = None
    """Another run whose scores are reused where they are valid."""


@dataclass(frozen=True)
class Plan:
    """The complete plan of a run, as sent to every worker."""

    name: str
    """Name of the pipeline."""
    stages: tuple[Stage, ...]
    """Stages without composites, in order, with unique names."""
    ops: tuple[Op, ...]
    """Ops, ordered so that `next` always points forward."""
    entries: dict[str, int]
    """Route to its first op: `unit`, `stream`, `join`, or `task` without a reader; `phase-2` and so on for the phases
    after the first."""
    settings: PlanSettings = field(default_factory=PlanSettings)
    scores: ScorePlan | None = None
    """Use of scores; `None` if there is none."""
    corrections: dict[str, Tally] = field(default_factory=dict)
    """Counts to add to the commit of a unit, by its id: records that are retried were counted before."""
    outlets: dict[str, Any] = field(default_factory=dict)
    """Openers of the files for documents that stages send to outlets, by outlet."""

    @property
    def source(self) -> SourceStage[Any] | None:
        """Return the reader, if there is one."""
        first = self.stages[0]
        return first if isinstance(first, SourceStage) else None

    @property
    def sink(self) -> SinkStage[Any, Any] | None:
        """Return the writer, if there is one."""
        last = self.stages[-1]
        return last if isinstance(last, SinkStage) else None

    @functools.cached_property
    def phase_starts(self) -> list[int]:
        """Return the index of the first stage of each phase."""
        return phase_starts(self.stages)

    @property
    def phase_writers(self) -> list[PhaseWriter[Any]]:
        """Return the writers between phases."""
        return [stage for stage in self.stages if isinstance(stage, PhaseWriter)]

    def source_of(self, phase: int) -> SourceStage[Any] | None:
        """Return the reader of a phase; only the first phase may have none."""
        first = self.stages[self.phase_starts[phase]]
        return first if isinstance(first, SourceStage) else None

    def sink_of(self, phase: int) -> SinkStage[Any, Any] | None:
        """Return the writer of a phase; only the last phase may have none."""
        writers = self.phase_writers
        return writers[phase] if phase < len(writers) else self.sink

    def op_name(self, op: Op) -> str:
        """Return the joined names of the stages of an op."""
        numbers = dict.fromkeys(step.stage for step in op.steps)
        return "+".join(self.stages[number].name for number in numbers)

    def by_unit(self, op: Op) -> bool:
        """Return True if a call of an op takes tasks of one unit only.

        Such a call may return a list of another length, made from all its tasks, and units are committed one by one.
        Initial tasks are units of their own: there a call takes the tasks that are ready, and is repeated by unit if
        necessary.
        """
        later_phases = self.phase_starts[1:]
        has_reader = self.source is not None or (bool(later_phases) and op.steps[0].stage >= later_phases[0])
        return has_reader and self._groups_tasks(op)

    def packs_tasks(self, op: Op) -> bool:
        """Return True if a unit of an op holds as many initial tasks as one call takes, instead of one."""
        return self.source is None and self._groups_tasks(op) and op.index == self.entries.get("task")

    @property
    def tasks_per_unit(self) -> int:
        """Return the number of initial tasks per unit."""
        op = self.ops[self.entries["task"]]
        return op.batch_size if self.packs_tasks(op) else 1

    def _groups_tasks(self, op: Op) -> bool:
        stage = self.stages[op.steps[0].stage]
        return op.batch_size > 1 and not op.reads and not op.writes and overrides(stage, "process_batch")

    def tasks_per_call(self, op: Op) -> int:
        """Return how many tasks of a Dispatch go into one call."""
        return 1 if op.reads or op.writes or self.packs_tasks(op) else op.batch_size

    def emits_gradually(self, op: Op) -> bool:
        """Return True if time may pass between two outputs of an op for one task."""
        return op.reads or any(emits_one_by_one(self.stages[step.stage]) for step in op.steps)

    def groups(self) -> list[list[str]]:
        """Return the names of the stages that run fused, by op."""
        entry: int | None = self.entries.get("unit", self.entries.get("task"))
        groups: list[list[str]] = []
        while entry is not None:
            op = self.ops[entry]
            groups.append([self.stages[n].name for n in dict.fromkeys(step.stage for step in op.steps)])
            entry = op.next
        return groups


def make_plan(
    pipeline: Pipeline,
    settings: PlanSettings | None = None,
    *,
    initial_tasks: bool | None = False,
    find_more: Callable[[Sequence[Stage]], Iterable[RefusedError]] | None = None,
) -> Plan:
    """Expand, name, check and fuse the stages of a pipeline.

    All problems are raised in one error. `initial_tasks`: whether the run has some; `None` if that is not known yet.
    `find_more` returns those that depend on the executor and its environment.
    """
    settings = settings or PlanSettings()
    stages = _named(expanded(pipeline.stages))
    problems = Problems()
    for stage in stages:
        problems.check(check_settings, stage)
    problems.check(check_positions, stages, initial_tasks=initial_tasks)
    problems.check(check_ordered, stages)
    problems.check(check_task_types, stages)
    problems.check(check_columns, stages)
    problems.check(check_outlets, stages, pipeline.outlets)
    if settings.keep_scores:
        problems.check(check_keeps_scores, stages)
    if settings.keep_dropped:
        problems.check(check_keeps_dropped, stages)
    if find_more is not None:
        problems.found += find_more(stages)
    problems.refuse()
    if not settings.keep_dropped and not settings.whole_records and not pipeline.outlets:
        stages = prune_columns(stages)
    stages = [_with_run_settings(stage, stages[-1], settings) for stage in stages]
    ops, entries = _link_routes(stages, _routes(stages, settings))
    scores, outlets = _scores(stages, settings), _outlets(pipeline, settings)
    return Plan(pipeline.name, tuple(stages), ops, entries, settings, scores, outlets=outlets)


def _outlets(pipeline: Pipeline, settings: PlanSettings) -> dict[str, Any]:
    """Return what opens the files for outlets; those that get what the framework keeps need none."""
    names = [name for name in pipeline.outlets if name not in KEPT_STREAMS]
    if not names:
        return {}
    files = resolve(OUTLET_FILES)
    room = settings.large_bytes // len(names)
    return {name: files(max(2**20, room)) if room else files() for name in names}


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
        parts = stage.parts()
        if not parts:
            raise PlanError(f"{stage.name}: decompose() returned no stages")
        if stage.drops_to is not None:
            parts = [part if part.drops_to is not None else part.with_(drops_to=stage.drops_to) for part in parts]
        flat.extend(expanded(parts, (*inside, type(stage).__name__)))
    return flat


def writer_of(stages: Sequence[Stage]) -> SinkStage[Any, Any] | None:
    """Return the writer at the end of a pipeline, also where a composite holds it; `None` if there is none."""
    *_, last = [None, *expanded(stages[-1:])]
    return last if isinstance(last, SinkStage) else None


def _named(stages: list[Stage]) -> list[Stage]:
    """Return copies with unique names: the second of a kind gets `-2`."""
    taken: set[str] = set()
    named = []
    for stage in stages:
        numbered = (f"{stage.name}-{count}" for count in itertools.count(2))
        name = next(name for name in itertools.chain([stage.name], numbered) if name not in taken)
        taken.add(name)
        named.append(stage.with_(name=name))
    return named


# -- fusion ----------------------------------------------------------------------------------------------------


def _is_unfused(stage: Stage) -> bool:
    return needs_own_workers(stage) or not stage.row_wise or stage.batch_size > 1


def emits_one_by_one(stage: Stage) -> bool:
    """Return True if a stage emits several tasks for one, one after the other; such a stage ends a fused group."""
    made_by = stage.function if isinstance(stage, FunctionStage) else type(stage).process
    is_called = not overrides(stage, "process_batch")
    return stage.fans_out or (is_called and inspect.isgeneratorfunction(made_by))


def _groups_of(stages: Sequence[Stage], numbers: range, fusion: bool) -> list[list[int]]:
    """Group neighbouring stages that run in one call."""
    groups: list[list[int]] = []
    is_open = False
    for number in numbers:
        alone = _is_unfused(stages[number]) or not fusion
        if alone or not is_open:
            groups.append([number])
        else:
            groups[-1].append(number)
        is_open = not alone and not emits_one_by_one(stages[number])
    return groups


_BUFFERED_CHUNKS = 4
"""Chunks of the largest size that a stage between phases may hold. With fewer the files of a unit hold many sorted
runs, and each range of places is read in many parts."""


def _with_run_settings(stage: Stage, last: Stage, settings: PlanSettings) -> Stage:
    """Return the stage; one that ends or begins a phase with the share of memory that one unit may take, and with the
    options of the folder that holds the files of phases."""
    if not isinstance(stage, PhaseWriter | PhaseReader):
        return stage
    changed: PhaseWriter[Any] | PhaseReader[Any] = stage.with_()
    if settings.large_bytes:
        changed.buffer_bytes = min(type(stage).buffer_bytes, max(2**20, _BUFFERED_CHUNKS * settings.large_bytes))
    changed.storage_options = last.storage_options if isinstance(last, SinkStage) else None
    return changed


def _routes(stages: list[Stage], settings: PlanSettings) -> dict[str, list[tuple[Step, ...]]]:
    """Return the steps of each route, by op."""
    starts = phase_starts(stages)
    routes = _phase_routes(stages, 0, (starts[1:] or [len(stages)])[0], settings)
    for number, (start, end) in enumerate(itertools.pairwise([*starts[1:], len(stages)]), start=2):
        writer = stages[start - 1]
        if isinstance(writer, PhaseWriter) and writer.most_files:
            routes[f"join-{number - 1}"] = [(Step("join", start - 1),)]
        routes[f"phase-{number}"] = _phase_routes(stages, start, end, settings)["unit"]
    sink, last = stages[-1], len(stages) - 1
    if isinstance(sink, SinkStage) and (sink.target_file_size or sink.settles_schema):
        routes["join"] = [(Step("join", last),)]
    return routes


def _phase_routes(
    stages: list[Stage], start: int, end: int, settings: PlanSettings
) -> dict[str, list[tuple[Step, ...]]]:
    """Return the routes through the stages of one phase, `start` to `end` - 1."""
    last = end - 1
    reads, writes = isinstance(stages[start], SourceStage), isinstance(stages[last], SinkStage)
    fusion = settings.fusion and not settings.barrier
    end -= int(writes)
    in_order = next((n for n in range(start + int(reads), end) if isinstance(stages[n], OrderedStage)), end)
    middle = _groups_of(stages, range(start + int(reads), in_order), fusion)
    rows = [tuple(Step("process", number) for number in group) for group in middle]
    lone_first = bool(middle) and (_is_unfused(stages[middle[0][0]]) or not fusion)
    ordered = tuple(Step("process", number) for number in range(in_order, end))
    write = (*ordered, Step("write", last)) if writes else ()
    routes: dict[str, list[tuple[Step, ...]]] = {}
    if reads:
        read, parse = Step("read", start), Step("parse", start)
        head = [] if lone_first else rows[:1]
        tail = rows if lone_first else rows[1:]
        first = (parse, *(head[0] if head else ()))
        whole = not tail and fusion and not (middle and emits_one_by_one(stages[middle[-1][-1]]))
        rest = [*tail, write] if write else list(tail)
        if whole:
            routes["unit"] = [(read, *first, *write)]
        else:
            routes["unit"] = [(read, *first), *rest]
        routes["stream"] = [(read,), first, *rest]
    else:
        routes["task"] = [*rows, *([write] if write else [])]
    return routes


def _link_routes(
    stages: list[Stage], routes: dict[str, list[tuple[Step, ...]]]
) -> tuple[tuple[Op, ...], dict[str, int]]:
    """Build the ops of all routes; identical tails of routes share their ops."""
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
        _combined_resources([stage.resources for stage in members]),
    )


def _combined_resources(needs: list[Resources]) -> Resources:
    """Return the resources of a worker that runs all stages in turn and keeps what each has loaded."""
    names = dict.fromkeys(name for need in needs for name in need.custom)
    return Resources(
        cpus=max(need.cpus for need in needs),
        gpus=max(need.gpus for need in needs),
        gpu_memory_gb=max(need.gpu_memory_gb for need in needs),
        memory_gb=sum(need.memory_gb for need in needs),
        custom={name: max(need.custom.get(name, 0.0) for need in needs) for name in names},
    )


# -- columns: a reader may skip those that do not affect the output ---------------------------------------------------


def needed_columns(stages: Sequence[Stage]) -> list[str] | None:
    """Return the columns that the writer keeps or that a stage reads or makes; `None` if all of them may be needed.

    The result is not `None` only if every stage declares all columns that it reads (`looks_at_inputs_only`) and the
    writer keeps only some.
    """
    first, *between, last = stages
    if not isinstance(first, SourceStage) or not isinstance(last, SinkStage) or last.fields is None:
        return None
    if not all(stage.looks_at_inputs_only for stage in between):
        return None
    columns = list(last.fields)
    for stage in between:
        # Output columns count too: a stage, and the column order, may depend on whether the input has such a column.
        columns += [*input_columns(stage), *stage.outputs()[1]]
    return list(dict.fromkeys(columns))


def prune_columns(stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages, with a reader that reads only the needed columns if it supports that."""
    needed = needed_columns(stages) if len(stages) > 1 else None
    first = stages[0]
    if needed is None or not isinstance(first, SourceStage):
        return list(stages)
    return [first.reading_only(needed), *stages[1:]]
