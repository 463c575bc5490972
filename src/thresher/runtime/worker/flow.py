# SPDX-License-Identifier: Apache-2.0
"""One order on its way through the steps of an op, depth first: a batch reaches the last step before the next one is
read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thresher.core.planning.checks import cannot_write
from thresher.core.planning.plan import Op, Plan, Step
from thresher.core.planning.task_types import declared_types
from thresher.core.records.record_task import FILTERED, DroppedRows, FailedRows, RecordTask
from thresher.core.source import ReadContext, SourceItem
from thresher.core.stage import OrderedStage, SourceStage
from thresher.core.tally import StageTally
from thresher.core.task import EmptyTask, Task, TaskPack, give_id, note_items
from thresher.core.unit import Unit
from thresher.errors import RunFailedError
from thresher.ledger.quarantine import dropped_lines, enters_at, quarantine_lines
from thresher.runtime.crashes.crash_notes import PARSE, READ, WRITE, Note, notes, short_name
from thresher.runtime.crashes.isolation import place_of
from thresher.runtime.memory.admission import LargeRecord, gate_for
from thresher.runtime.memory.split import only_heads
from thresher.runtime.orders import Produced, TaskOrder, TaskReport
from thresher.runtime.worker.chunk_parse import parse_within_memory
from thresher.runtime.worker.fused_call import Book, judge_stretch
from thresher.runtime.worker.settle import Outcome, settle_gathered
from thresher.runtime.worker.sidecar import (
    Baggage,
    attach,
    carrier,
    detach,
    example_of,
    is_carrier,
    positions,
    sorted_lines,
)
from thresher.runtime.worker.stage_call import run_group, run_stage

if TYPE_CHECKING:
    from thresher.ledger.unit_output import UnitOutput
    from thresher.runtime.worker.score_keeper import ScoreKeeper


class Flow:
    """Runs one order."""

    def __init__(self, plan: Plan, op: Op, order: TaskOrder, context: ReadContext, output: UnitOutput | None) -> None:
        self._plan = plan
        self._op = op
        self._order = order
        self._context = context
        self._output = output
        self._buffered = order.epoch > 0
        """A unit that failed before runs generators to their end first, so that a failure names its record."""
        pack = order.tasks[0] if order.tasks and isinstance(order.tasks[0], TaskPack) else None
        self._tasks: list[Task] = order.tasks if pack is None else pack.data
        self._owners = list(range(len(order.tasks))) if pack is None else [0] * len(self._tasks)
        """By task: which of the order's tasks it is counted under; a pack is one of them."""
        self._reports = [TaskReport() for _ in range(max(1, len(order.tasks)))]
        self._report = self._reports[0]
        self._baggage = Baggage()
        self._consumed = 0
        self._notes = notes()
        self._large = LargeRecord(plan, op, gate_for(plan.settings.memory_bytes))
        self.scores: ScoreKeeper | None = None
        """Where scores are kept, or known ones used."""
        self.kept: dict[int, Any] = {}
        """What stages keep of this unit that need its tasks in order, by number of the stage."""

    def take_reports(self) -> list[TaskReport]:
        """What happened since this was last asked."""
        taken, self._reports = self._reports, [TaskReport() for _ in self._reports]
        self._report = self._reports[0]
        return taken

    def run(self) -> Iterator[Produced]:
        """Everything that leaves the op, in order."""
        first = self._op.steps[0]
        if first.kind == "join":
            return iter(())  # joining happens at the commit
        if first.kind == "read":
            return self._run_reader(first)
        if len(self._tasks) > 1:
            return self._run_group(first)
        return self._run_task(self._tasks[0])

    # -- the three kinds of orders ------------------------------------------------------------------------------------

    def _run_reader(self, first: Step) -> Iterator[Produced]:
        source = self._plan.stages[first.stage]
        assert isinstance(source, SourceStage)
        assert self._order.unit is not None
        context = replace(self._context, before_large=self._before_read)
        items = iter(source.read(self._order.unit, context))
        try:
            while True:
                started = time.perf_counter()
                self._note_read()
                item: SourceItem | None = next(items, None)
                self._notes.end()
                self._spent(first.stage, started)
                if item is None:
                    return
                yield from self._run_item(item, item.unit if self._order.unit.stream else None)
                item = None
                self._large.leave()
        finally:
            self._large.leave()

    def _note_read(self) -> None:
        source, unit = self._plan.stages[0], self._order.unit
        assert unit is not None
        place = short_name(f"{unit.id} after byte {self._consumed} of its file")
        self._notes.begin(Note(READ, source.name, (place,)), source.timeout_s)

    def _before_read(self, nbytes: int = 0) -> None:
        """Waiting for room is not the reader's time."""
        self._notes.end()
        self._large.before_read(nbytes)
        self._note_read()

    def _run_item(self, item: SourceItem, unit: Unit | None) -> Iterator[Produced]:
        self._report.tally.input_bytes += max(0, item.consumed - self._consumed)
        self._consumed = max(self._consumed, item.consumed)
        if item.task is not None:
            self._large.admit(item.task)
            for task in self._through(1, item.task):
                yield self._let_go(Produced(task, unit))
            for task in self._leftover(item.task):
                yield self._let_go(Produced(task, unit))
            if self._output is not None:
                yield Produced(None)  # a whole unit is one call: let the body look around between two chunks
        if item.closes and unit is not None:
            yield Produced(None, unit, closes=True)

    def _run_task(self, task: Task) -> Iterator[Produced]:
        self._count_initial(task)
        self._large.admit(task)
        try:
            for made in self._through(0, task):
                yield self._let_go(Produced(made))
            for made in self._leftover(task):
                yield self._let_go(Produced(made))
        finally:
            self._large.leave()

    def _run_group(self, first: Step) -> Iterator[Produced]:
        """Several tasks in one call of a stage that stands alone."""
        stage = self._plan.stages[first.stage]
        self._group_in(first.stage)
        started = time.perf_counter()
        outcomes = run_group(stage, self._tasks, self._tally_of(first.stage))
        self._spent(first.stage, started)
        yield from self._group_out(first.stage, outcomes)

    def _group_in(self, stage: int) -> None:
        for owner, task in zip(self._owners, self._tasks, strict=True):
            self._report = self._reports[owner]
            self._count_initial(task)
            self._take_over(task)
            if not is_carrier(task):
                self._count_in(stage, task)
        self._report = self._reports[0]

    def _group_out(self, stage: int, outcomes: list[Outcome]) -> Iterator[Produced]:
        for owner, given, outcome in zip(self._owners, self._tasks, outcomes, strict=True):
            self._report = self._reports[owner]
            self._count_out(stage, outcome)
            for task in outcome.tasks:
                yield Produced(self._loaded(task), parent=owner)
            for task in self._leftover(given):
                yield Produced(task, parent=owner)
        self._report = self._reports[0]

    def _let_go(self, produced: Produced) -> Produced:
        """What leaves the op may make this flow wait for long, even for a task that itself waits for room."""
        self._large.leave()
        return produced

    # -- steps --------------------------------------------------------------------------------------------------------

    def _through(self, place: int, task: Task) -> Iterator[Task]:
        """What comes out at the end of the op when `task` enters at step `place`."""
        if place == len(self._op.steps):
            yield self._loaded(task)
            return
        step = self._op.steps[place]
        self._large.at_step(place)
        if step.kind == "parse":
            for made in self._parse(step, task):
                yield from self._through(place + 1, made)
        elif step.kind == "write":
            self._write(step, task)
        elif task.metadata and step.stage < enters_at(task.metadata):  # a record that is tried again
            yield from self._through(place + 1, task)
        else:
            judged = judge_stretch(self._plan, self._op.steps, place, task, self._open_book)
            if judged is None:
                for made in self._process(step, task):
                    yield from self._through(place + 1, made)
            elif judged.batch is not None:
                yield from self._through(judged.place, judged.batch)

    def _parse(self, step: Step, task: Task) -> Iterator[Task]:
        source = self._plan.stages[step.stage]
        assert isinstance(source, SourceStage)
        self._take_over(task)
        self._tally_of(step.stage).in_bytes += task.nbytes
        batches = parse_within_memory(source, task)
        while True:
            started = time.perf_counter()
            self._notes.begin(Note(PARSE, source.name, (place_of(task),)), source.timeout_s)
            batch = next(batches, None)
            self._notes.end()
            self._spent(step.stage, started)
            if batch is None:
                return
            yield from self._parsed(step, batch)

    def _parsed(self, step: Step, batch: RecordTask) -> Iterator[Task]:
        tally = self._tally_of(step.stage)
        outcome = Outcome([batch] if batch.num_items else [], failed=batch.take_failed())
        give_id(batch, self._order.unit.id if self._order.unit is not None else "")
        found = batch.num_items + sum(rows.total for rows in outcome.failed)
        self._report.tally.read += found
        tally.in_docs += found
        tally.tasks += 1
        self._count_out(step.stage, outcome)
        yield from outcome.tasks

    def _process(self, step: Step, task: Task) -> Iterator[Task]:
        self._take_over(task)
        if is_carrier(task):
            return  # what it carried was taken over
        stage = self._plan.stages[step.stage]
        tally = self._count_in(step.stage, task)
        started = time.perf_counter()
        if isinstance(stage, OrderedStage):
            if step.stage not in self.kept:
                self.kept[step.stage] = stage.begin_unit()
            stage.continue_unit(self.kept[step.stage])
        outcomes = run_stage(stage, task, tally, buffered=self._buffered)
        for outcome in outcomes:
            self._spent(step.stage, started)
            self._count_out(step.stage, outcome)
            yield from outcome.tasks
            started = time.perf_counter()
        self._spent(step.stage, started)

    def end_unit(self) -> TaskReport:
        """Nothing more comes of the unit: what stages held back goes to the writer; what there is to report."""
        for place, step in enumerate(self._op.steps):
            if step.stage not in self.kept:
                continue
            stage = self._plan.stages[step.stage]
            assert isinstance(stage, OrderedStage)
            started = time.perf_counter()
            outcome = settle_gathered(EmptyTask(), stage.end_unit(self.kept.pop(step.stage)))
            self._spent(step.stage, started)
            self._count_out(step.stage, outcome)
            for task in outcome.tasks:
                for _ in self._through(place + 1, task):
                    raise AssertionError("what reaches a writer leaves no op")
        for _ in self._leftover(EmptyTask()):
            raise AssertionError("the op writes, so what is left goes to the unit's files")
        return self.take_reports()[0]

    def _write(self, step: Step, task: Task) -> None:
        assert self._output is not None, "an op that writes has an output"
        self._take_over(task)
        tally = self._tally_of(step.stage)
        stage: Any = self._plan.stages[step.stage]
        if not isinstance(task, RecordTask) or (task.num_items and not isinstance(task, declared_types(stage).taken)):
            raise RunFailedError(cannot_write(self._plan.stages, step.stage, task))
        if task.num_items:
            started = time.perf_counter()
            tally.in_docs += task.num_items
            self._notes.begin(Note(WRITE, stage.name, (place_of(task),), task.num_items), stage.timeout_s)
            fitting: RecordTask = stage.fitting(task)
            self._output.write(fitting)
            self._notes.end()
            self._spent(step.stage, started)
            self._count_out(step.stage, Outcome([], failed=fitting.take_failed()))
            tally.out_docs += fitting.num_items
            tally.in_bytes += task.nbytes
            tally.out_bytes += fitting.nbytes
            self._report.tally.written += fitting.num_items
            tally.add_statistics(task.metadata)
        tally.tasks += 1

    # -- counting -----------------------------------------------------------------------------------------------------

    def _open_book(self) -> Book:
        keep_dropped = self._keep_dropped if self._plan.settings.keep_dropped else None
        return Book(self._tally_of, self._large.at_step, self._spent, keep_dropped, self._collect_scores)

    def _tally_of(self, stage: int) -> StageTally:
        tally = self._report.tally
        return tally.stages.get(stage) or tally.stage(stage)

    def _collect_scores(self, stage: int, outcome: Outcome) -> None:
        if self.scores is not None:
            self._baggage.scores.extend(self.scores.collect(stage, outcome))

    def _spent(self, stage: int, started: float) -> None:
        seconds = max(0.0, time.perf_counter() - started - self._large.take_waited_s())
        self._tally_of(stage).busy_s += seconds
        self._report.busy_s += seconds

    def _count_initial(self, task: Task) -> None:
        """A task that no reader read counts as read when it enters the first stage."""
        first = self._op.steps[0]
        if first.kind in ("process", "write") and first.stage == 0:
            self._report.tally.read += task.num_items
            if isinstance(task, RecordTask):
                task.name_records()

    def _count_in(self, stage: int, task: Task) -> Any:
        tally = self._tally_of(stage)
        tally.count_in(note_items(task), task.nbytes)
        if self.scores is not None:
            self.scores.lend(stage, task, tally)
        return tally

    def _count_out(self, number: int, outcome: Outcome) -> None:
        stage = self._plan.stages[number]
        tally = self._tally_of(number)
        for task in outcome.tasks:
            tally.count_out(task.num_items, task.nbytes)
        tally.created += outcome.created
        tally.merged += outcome.merged
        if outcome.filtered:
            tally.count_dropped(FILTERED, outcome.filtered)
        for dropped in outcome.dropped:
            tally.count_dropped(dropped.rule, dropped.batch.num_items)
            self._keep_dropped(stage.name, dropped)
        for failed in outcome.failed:
            tally.quarantined += failed.total
            tally.unknown_losses += failed.unknown
            tally.errors[failed.error] = tally.errors.get(failed.error, 0) + failed.total
            if failed.error not in tally.examples:
                tally.examples[failed.error] = example_of(failed)
            self._keep_failed(stage.name, failed)
        self._collect_scores(number, outcome)
        self._count_own(stage.__dict__, tally)

    def _count_own(self, own: dict[str, Any], tally: StageTally) -> None:
        """What a stage has counted itself."""
        splits = own.pop("_splits", None)
        if splits:
            tally.note_splits(*splits)
        counts = own.pop("_counts", None)
        if counts:
            tally.count_own(counts)

    # -- dropped and failed records -----------------------------------------------------------------------------------

    def _keep_dropped(self, stage_name: str, dropped: DroppedRows) -> None:
        if self._plan.settings.keep_dropped:
            lines = dropped_lines(dropped, stage_name)
            self._baggage.dropped.extend(zip(positions(dropped.batch.ids, len(lines)), lines, strict=True))

    def _keep_failed(self, stage_name: str, failed: FailedRows) -> None:
        try:
            lines = quarantine_lines(failed, stage_name)
        except MemoryError:
            failed = only_heads(failed)
            lines = quarantine_lines(failed, stage_name)
        self._baggage.quarantined.extend(zip(positions(failed.record_ids, len(lines)), lines, strict=True))

    def _take_over(self, task: Task) -> None:
        brought = detach(task)
        if brought is not None:
            self._baggage.add(brought)

    def _loaded(self, task: Task) -> Task:
        """`task`, ready to leave the worker with all that waits."""
        if self._op.next is None and task.metadata:
            self._tally_of(self._op.steps[-1].stage).add_statistics(task.metadata)
        if self._baggage and self._op.next is not None:
            attach(task, self._baggage)
            self._baggage = Baggage()
        return task

    def _leftover(self, task: Task) -> Iterator[Task]:
        """After the last step of a task: bring away what still waits."""
        if not self._baggage:
            return
        baggage, self._baggage = self._baggage, Baggage()
        if self._output is not None:
            baggage.write_to(self._output)
        elif self._op.next is not None:
            yield carrier(task.dataset_name, baggage)
        else:
            self._report.quarantined.extend(sorted_lines(baggage.quarantined))
