# SPDX-License-Identifier: Apache-2.0
"""Run the steps of an op on tasks, count, and keep the open files of units.

The same class works in a process of its own, in the driver (serial) and inside other engines. Its caller advances the
iterator that `start` returns while there is credit, and takes away what is produced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from thresher.core.planning.plan import Op, Plan, Step
from thresher.core.planning.task_types import ANY_TASK, declared_types
from thresher.core.resources import NodeInfo, WorkerMetadata, available_cpus, threads_for
from thresher.core.scores import JudgingStage, introduce
from thresher.core.source import ReadContext
from thresher.core.stage import OrderedStage, needs_own_workers, overrides
from thresher.core.tally import StageContext, Tally, bind_context, unbind_context
from thresher.core.unit import Unit
from thresher.credentials import print_traceback, traceback_of
from thresher.errors import RefusedError
from thresher.ledger.parts import join
from thresher.ledger.records import JOIN_PREFIX, CommitRecord
from thresher.ledger.unit_output import UnitOutput
from thresher.runtime.memory.admission import gate_for
from thresher.runtime.orders import Produced, TaskOrder, TaskReport, WorkerSetup
from thresher.runtime.processes.preload import compile_kernels
from thresher.runtime.worker.count import Kept
from thresher.runtime.worker.flow import Flow
from thresher.runtime.worker.score_keeper import ScoreKeeper
from thresher.stage_errors import ControlSignal


class SetupFailed(Exception):
    """Raised if a stage's `setup` failed several times, or its `setup_on_node` failed."""


SETUP_ATTEMPTS = 3


class OpContext:
    """The state that all orders of one op share in one worker."""

    def __init__(
        self,
        plan: Plan,
        op: Op,
        contexts: Sequence[StageContext] | None = None,
        scores: ScoreKeeper | None = None,
    ) -> None:
        """`contexts`: of all stages of the plan; without them the stages get new ones."""
        self.plan, self.op, self.scores = plan, op, scores
        self.contexts = contexts or [bind_context(stage) for stage in plan.stages]
        self.kept = Kept(plan.settings.keep_dropped, plan.outlets)
        """Records that leave the pipeline and are kept."""
        self.gate = gate_for(plan.settings.memory_bytes)
        """Admission of large records; `None` if they never wait."""
        self.fused = [_fused_stages(plan, op.steps, place, self.contexts) for place in range(len(op.steps))]
        """By step: the stages that it may run in one fused call with those that follow."""
        last = op.steps[-1]
        self.written = declared_types(plan.stages[last.stage]).taken if last.kind == "write" else ANY_TASK
        """Types of tasks that the writer takes."""


class Worker:
    """Runs ops on tasks."""

    flow_type: type[Flow] = Flow
    """The class that runs its orders."""

    def __init__(self, setup: WorkerSetup) -> None:
        self.plan = setup.plan
        self._place = setup.place
        self._metadata = setup.metadata
        self._ready: list[int] = []
        """Stages that are set up, in that order."""
        self._ready_ops: set[int] = set()
        """Ops all of whose stages are."""
        self._in_order = {op.index for op in self.plan.ops if _has_ordered_stage(self.plan, op)}
        """Ops with a stage that needs the tasks of a unit in order."""
        self._writing = {op.index for op in self.plan.ops if op.writes}
        """Ops that end in a writer."""
        self.tasks_per_call = [self.plan.tasks_per_call(op) for op in self.plan.ops]
        """By op: how many tasks of a Dispatch go into one call."""
        phases = range(len(self.plan.phase_starts))
        self._ends = [(self.plan.source_of(phase), self.plan.sink_of(phase)) for phase in phases]
        """By phase: its reader and its writer."""
        self._context = ReadContext(setup.plan.settings.chunk_bytes, setup.plan.settings.max_record_bytes)
        self._outputs: dict[tuple[str, int], UnitOutput] = {}
        self._kept: dict[tuple[str, int], tuple[Op, dict[int, Any]]] = {}
        """By unit and epoch: the op with stages that need the unit's tasks in order, and what these stages keep."""
        self._flows: dict[int, Flow] = {}
        introduce(self.plan.stages, ([step.stage for step in op.steps] for op in self.plan.ops))
        scores = ScoreKeeper(setup.plan) if setup.plan.scores is not None else None
        contexts = [bind_context(stage) for stage in self.plan.stages]
        self._shared = [OpContext(self.plan, op, contexts, scores) for op in self.plan.ops]
        """By op: the state that its orders share."""

    # -- running ------------------------------------------------------------------------------------------------------

    def start(self, order: TaskOrder) -> Iterator[Produced]:
        """Run an order; advance the iterator to its end, then call `finish`."""
        op = self.plan.ops[order.op]
        if not self.is_ready(op.index):
            self.prepare(op)
        context = replace(self._context, done=order.done) if order.done else self._context
        output = self._output(order) if op.index in self._writing else None
        flow = self.flow_type(self._shared[order.op], order, context, output)
        if order.unit is not None and op.index in self._in_order:
            flow.kept = self._kept.setdefault((order.unit.id, order.epoch), (op, {}))[1]
        self._flows[id(order)] = flow
        return flow.run()

    def flow_of(self, order: TaskOrder) -> Flow:
        """Return the flow of an order that was started."""
        return self._flows[id(order)]

    def report(self, order: TaskOrder) -> list[TaskReport]:
        """Return what happened since the last report, one entry per task of the order; also while it still runs."""
        return self._flows[id(order)].take_reports()

    def finish(self, order: TaskOrder) -> list[TaskReport]:
        """Return the last report of an order."""
        return self._flows.pop(id(order)).take_reports()

    def forget(self, order: TaskOrder) -> None:
        """Drop an order that will not be finished."""
        self._flows.pop(id(order), None)

    def prepare(self, op: Op, metadata: WorkerMetadata | None = None) -> None:
        """Set up the stages of an op that are not set up yet; `metadata`: of the worker, if it is another one for
        them."""
        for step in op.steps:
            if step.stage not in self._ready:
                self._set_up(step.stage, metadata or self._metadata)
                self._ready.append(step.stage)
        self._ready_ops.add(op.index)

    def _set_up(self, number: int, metadata: WorkerMetadata) -> None:
        stage = self.plan.stages[number]
        if not overrides(stage, "setup"):
            return
        is_local = metadata.node.node_id == NodeInfo().node_id  # on a cluster the other workers may be elsewhere
        beside = metadata.num_workers if is_local and needs_own_workers(stage) else 1
        metadata = replace(
            metadata,
            threads=threads_for(stage.resources.cpus, available_cpus(), beside),
            run_dir=None if self._place is None else self._place.run_dir,
            run_id="" if self._place is None else self._place.run_id,
        )
        for attempt in range(1, SETUP_ATTEMPTS + 1):
            try:
                stage.setup(metadata)
                return
            except RefusedError as error:  # a mistake of the user, which no second attempt mends
                raise SetupFailed(str(error)) from error
            except ControlSignal:
                raise
            except BaseException as error:
                if attempt == SETUP_ATTEMPTS:
                    text = traceback_of(error)
                    raise SetupFailed(f"{stage.name}.setup failed {attempt} times:\n{text}") from error

    def is_ready(self, op: int) -> bool:
        """Return True if all stages of an op are set up."""
        return op in self._ready_ops

    # -- units --------------------------------------------------------------------------------------------------------

    def _output(self, order: TaskOrder) -> UnitOutput | None:
        assert order.unit is not None, "an op that writes is given the unit"
        op = self.plan.ops[order.op]
        if op.steps[-1].kind == "join":
            return None
        key = (order.unit.id, order.epoch)
        found = self._outputs.get(key)
        if found is None:
            assert self._place is not None, "a plan with a writer has a place to commit to"
            source, sink = self._ends[order.unit.phase]
            found = UnitOutput(self._place, sink, order.unit, order.epoch, source, self.plan.outlets)
            if self.plan.scores is not None and self.plan.scores.keep:
                found.keep_scores(self.plan.scores.columns)
            self._outputs[key] = found
        return found

    def commit(self, unit: Unit, epoch: int, tally: Tally) -> CommitRecord:
        """Publish what was written for a unit."""
        output = self._outputs.pop((unit.id, epoch), None)
        assert self._place is not None, "a plan with a writer has a place to commit to"
        if output is None and unit.id.startswith(JOIN_PREFIX):
            sink = self.plan.sink_of(unit.phase)
            assert sink is not None, "parts are joined for a writer"
            return join(self._place, sink, unit)
        if output is None:
            output = UnitOutput(self._place, self.plan.sink_of(unit.phase), unit, epoch)
        op, kept = self._kept.pop((unit.id, epoch), (None, {}))
        if op is not None:
            flow = Flow(self._shared[op.index], TaskOrder(op.index, unit, epoch, []), ReadContext(), output)
            flow.kept = kept
            tally.add(flow.end_unit().tally)
        if unit.id in self.plan.corrections:
            tally.add(self.plan.corrections[unit.id])
        return output.commit(tally)

    def discard(self, unit_id: str, epoch: int) -> None:
        """Remove what was written for epochs of a unit before `epoch`."""
        for key in [key for key in self._outputs if key[0] == unit_id and key[1] < epoch]:
            self._outputs.pop(key).abort()
            self._kept.pop(key, None)

    def teardown(self) -> None:
        """Remove the files of unfinished units, and tear the stages down."""
        for output in self._outputs.values():
            output.abort()
        self._outputs.clear()
        self._kept.clear()
        self._ready_ops.clear()
        while self._ready:
            stage = self.plan.stages[self._ready.pop()]
            try:
                stage.teardown()
            except ControlSignal:
                raise
            except BaseException as error:  # whatever it is, the other stages must still be torn down
                print_traceback(error)
        for stage in self.plan.stages:
            unbind_context(stage)


def _has_ordered_stage(plan: Plan, op: Op) -> bool:
    return any(isinstance(plan.stages[step.stage], OrderedStage) for step in op.steps)


def set_up_node(setup: WorkerSetup, node: NodeInfo | None = None) -> None:
    """Set up a machine, once, before any worker is set up; `node` names one of a cluster.

    Raises `SetupFailed`.
    """
    compile_kernels(setup.plan, setup.announce, and_the_rest=node is None)
    for stage in setup.plan.stages:
        if overrides(stage, "setup_on_node"):
            try:
                stage.setup_on_node(node or NodeInfo(), WorkerMetadata())
            except RefusedError as error:  # a mistake of the user: the traceback is of no interest
                raise SetupFailed(f"{stage.name}.setup_on_node failed: {error}") from error
            except ControlSignal:
                raise
            except BaseException as error:
                raise SetupFailed(f"{stage.name}.setup_on_node failed:\n{traceback_of(error)}") from None


def _fused_stages(
    plan: Plan, steps: Sequence[Step], place: int, contexts: Sequence[StageContext]
) -> Sequence[StageContext]:
    """Return the stages from step `place` on that can judge in one fused call; empty if they are called one by one."""
    step = steps[place]
    first = plan.stages[step.stage] if step.kind == "process" else None
    if not isinstance(first, JudgingStage) or not first.beside:
        return ()
    numbers = [later.stage for later in steps[place : place + 1 + len(first.beside)]]
    stages = [plan.stages[number] for number in numbers]
    uses_other_scores = plan.scores is not None and plan.scores.known is not None
    if stages != [first, *first.beside] or uses_other_scores or not all(stage.row_wise for stage in stages):
        return ()
    return [contexts[number] for number in numbers]
