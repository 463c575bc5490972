# SPDX-License-Identifier: Apache-2.0
"""Take one order through the steps of an op, depth first: a batch reaches the last step before the next one is read.

A task is measured when it enters the op and when it leaves a stage; `Sized` carries the figures to the next step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thresher.core.phases import PhaseReader, PhaseWriter
from thresher.core.planning.checks import cannot_write
from thresher.core.planning.plan import Step
from thresher.core.records.record_task import RecordTask
from thresher.core.source import ReadContext, SourceItem
from thresher.core.stage import OrderedStage, SourceStage
from thresher.core.tally import StageContext, StageTally
from thresher.core.task import EmptyTask, Task, TaskPack, give_id
from thresher.core.unit import Unit
from thresher.errors import RunFailedError
from thresher.ledger.quarantine import enters_at
from thresher.runtime.crashes import crash_notes
from thresher.runtime.crashes.crash_notes import PARSE, READ, WRITE, Note, short_name
from thresher.runtime.crashes.isolation import place_of
from thresher.runtime.memory.admission import LargeRecord
from thresher.runtime.orders import Produced, TaskOrder, TaskReport
from thresher.runtime.worker.call import parse_within_memory
from thresher.runtime.worker.count import Baggage, Sized, carrier, count, sorted_lines
from thresher.runtime.worker.fused_call import FusedCall, begin_fused
from thresher.runtime.worker.settle import Outcome, settle_gathered
from thresher.runtime.worker.stage_call import run_group, run_stage

if TYPE_CHECKING:
    from thresher.ledger.unit_output import UnitOutput
    from thresher.runtime.worker.worker import OpContext


class Flow:
    """An order on its way through the steps of its op."""

    def __init__(self, shared: OpContext, order: TaskOrder, context: ReadContext, output: UnitOutput | None) -> None:
        self._shared, self._order, self._context, self._output = shared, order, context, output
        self._plan, self._op, self._contexts, self._scores = shared.plan, shared.op, shared.contexts, shared.scores
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
        self._waited_s = 0.0
        """Time that reading has waited for room; it is no work."""
        self._notes = crash_notes.keeper
        self._large = None if shared.gate is None else LargeRecord(self._plan, self._op, shared.gate)
        self.kept: dict[int, Any] = {}
        """State of the stages that need the tasks of this unit in order, by number of the stage."""

    def take_reports(self) -> list[TaskReport]:
        """Return what happened since the last call, one entry per task of the order."""
        taken, self._reports = self._reports, [TaskReport() for _ in self._reports]
        self._report = self._reports[0]
        return taken

    def run(self) -> Iterator[Produced]:
        """Return everything that leaves the op, in order."""
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
        source, unit = self._plan.stages[first.stage], self._order.unit
        assert isinstance(source, SourceStage)
        assert unit is not None
        context = self._context if self._large is None else replace(self._context, before_large=self._before_read)
        items = iter(source.read(unit, context))
        try:
            while True:
                started = time.perf_counter()
                self._note_read()
                item: SourceItem | None = next(items, None)
                self._end_note()
                self._spent(first.stage, started)
                if item is None:
                    return
                yield from self._run_item(item, item.unit if unit.stream else None)
                item = None
                self._leave()
        finally:
            self._leave()

    def _note_read(self) -> None:
        if self._notes is not None:
            source, unit = self._plan.stages[self._op.steps[0].stage], self._order.unit
            assert unit is not None
            place = short_name(f"{unit.id} after byte {self._consumed} of its file")
            self._notes.begin(Note(READ, source.name, (place,)), source.timeout_s)

    def _end_note(self) -> None:
        if self._notes is not None:
            self._notes.end()

    def _before_read(self, nbytes: int = 0) -> None:
        """Wait for room, which is not the reader's time."""
        assert self._large is not None
        self._end_note()
        self._waited_s += self._large.before_read(nbytes)
        self._note_read()

    def _run_item(self, item: SourceItem, unit: Unit | None) -> Iterator[Produced]:
        self._report.tally.input_bytes += max(0, item.consumed - self._consumed)
        self._consumed = max(self._consumed, item.consumed)
        if item.task is not None:
            for task in self._run_steps(1, item.task):
                yield Produced(task, unit)
            if self._output is not None:
                yield Produced(None)  # a whole unit is one call: let the body look around between two chunks
        if item.closes and unit is not None:
            yield Produced(None, unit, closes=True)

    def _run_task(self, task: Task) -> Iterator[Produced]:
        self._count_initial(task)
        try:
            for made in self._run_steps(0, task):
                yield Produced(made)
        finally:
            self._leave()

    def _run_steps(self, place: int, task: Task) -> Iterator[Task]:
        """Yield everything that leaves the op if `task` enters it at step `place`. What leaves may make this flow wait
        for long, even for a task that itself waits for room, so the room is released before."""
        given = Sized(task, task.num_items, task.nbytes)
        self._take_over(task)
        if self._large is not None:
            self._large.admit(task, given.nbytes)
        for made in self._through(place, given):
            self._leave()
            yield made
        for made in self._leftover(task):
            self._leave()
            yield made

    def _run_group(self, first: Step) -> Iterator[Produced]:
        """Run several tasks in one call of a stage that stands alone."""
        self._group_in(first.stage)
        started = time.perf_counter()
        outcomes = run_group(self._contexts[first.stage], self._tasks)
        self._spent(first.stage, started)
        yield from self._group_out(first.stage, outcomes)

    def _group_in(self, stage: int) -> None:
        for owner, task in zip(self._owners, self._tasks, strict=True):
            self._report = self._reports[owner]
            self._count_initial(task)
            self._take_over(task)
            items = task.num_items
            if items or not isinstance(task, RecordTask):
                self._count_in(stage, Sized(task, items, task.nbytes))
        self._report = self._reports[0]

    def _group_out(self, stage: int, outcomes: list[Outcome]) -> Iterator[Produced]:
        for owner, given, outcome in zip(self._owners, self._tasks, outcomes, strict=True):
            self._report = self._reports[owner]
            for made in self._count_out(stage, outcome):
                yield Produced(self._loaded(made.task), parent=owner)
            for task in self._leftover(given):
                yield Produced(task, parent=owner)
        self._report = self._reports[0]

    def _leave(self) -> None:
        if self._large is not None:
            self._large.leave()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _through(self, place: int, given: Sized) -> Iterator[Task]:
        """Yield what leaves the op if `given` enters it at step `place`."""
        if place == len(self._op.steps):
            yield self._loaded(given.task)
            return
        step, metadata = self._op.steps[place], given.task.metadata
        if self._large is not None:
            self._large.at_step(place)
        if step.kind == "write":
            self._write(step, given)
            return
        if step.kind == "parse":
            passed: Iterator[Sized] = self._parse(step, given)
        elif metadata and step.stage < enters_at(metadata):  # a record that is tried again
            passed = iter((given,))
        else:
            fused = begin_fused(self._shared.fused[place], given) if self._shared.fused[place] else None
            after, left = (place, given) if fused is None else self._judge(fused, place, given)
            if left is None:
                return
            if after > place:
                yield from self._through(after, left)
                return
            passed = self._process(step, given)
        for made in passed:
            yield from self._through(place + 1, made)

    def _judge(self, fused: FusedCall, place: int, given: Sized) -> tuple[int, Sized | None]:
        """Run the stages of a fused call, or those before the first that fails; return the step that comes next and
        what is left for it."""
        _, items, nbytes = given
        for context in fused.contexts:
            if self._large is not None:
                self._large.at_step(place)
            stage, started = self._op.steps[place].stage, time.perf_counter()
            outcome = fused.judge(context)
            if outcome is None or outcome.judged is None:
                break
            self._count_in(stage, Sized(given.task, items, nbytes))
            self._count_out(stage, outcome)
            self._spent(stage, started)
            items, nbytes = len(outcome.judged.left), outcome.judged.left_bytes
            place += 1
            if not items:
                return place, None
        return place, fused.left()

    def _parse(self, step: Step, given: Sized) -> Iterator[Sized]:
        source, task = self._plan.stages[step.stage], given.task
        assert isinstance(source, SourceStage)
        self._tally_of(step.stage).in_bytes += given.nbytes
        batches = parse_within_memory(source, task)
        while True:
            started = time.perf_counter()
            if self._notes is not None:
                self._notes.begin(Note(PARSE, source.name, (place_of(task),)), source.timeout_s)
            batch = next(batches, None)
            self._end_note()
            self._spent(step.stage, started)
            if batch is None:
                return
            yield from self._parsed(step, batch)

    def _parsed(self, step: Step, batch: RecordTask) -> list[Sized]:
        tally, items = self._tally_of(step.stage), batch.num_items
        outcome = Outcome([batch] if items else [], dropped=batch.take_dropped(), failed=batch.take_failed())
        give_id(batch, self._order.unit.id if self._order.unit is not None else "")
        found = items + sum(rows.total for rows in outcome.failed) + sum(len(rows.batch) for rows in outcome.dropped)
        source = self._plan.stages[step.stage]
        if not isinstance(source, PhaseReader):
            self._report.tally.read += found
        elif not source.creates:
            self._report.tally.handed_on -= found
        if isinstance(source, PhaseReader) and source.creates:
            tally.created += found
        else:
            tally.in_docs += found
        tally.tasks += 1
        return self._count_out(step.stage, outcome)

    def _process(self, step: Step, given: Sized) -> Iterator[Sized]:
        task, number = given.task, step.stage
        if not given.items and isinstance(task, RecordTask):
            return  # a carrier: what it carried was taken over
        context = self._contexts[number]
        self._count_in(number, given)
        started = time.perf_counter()
        if isinstance(context.stage, OrderedStage):
            if number not in self.kept:
                self.kept[number] = context.stage.begin_unit()
            context.stage.continue_unit(self.kept[number])
        for outcome in run_stage(context, task, buffered=self._buffered):
            self._spent(number, started)
            yield from self._count_out(number, outcome)
            started = time.perf_counter()
        self._spent(number, started)

    def end_unit(self) -> TaskReport:
        """Write what stages held back of a unit, of which nothing more comes; return the last report."""
        for place, step in enumerate(self._op.steps):
            if step.stage not in self.kept:
                continue
            stage = self._plan.stages[step.stage]
            assert isinstance(stage, OrderedStage)
            started = time.perf_counter()
            outcome = settle_gathered(EmptyTask(), stage.end_unit(self.kept.pop(step.stage)))
            self._spent(step.stage, started)
            for made in self._count_out(step.stage, outcome):
                for _ in self._through(place + 1, made):
                    raise AssertionError("what reaches a writer leaves no op")
        for _ in self._leftover(EmptyTask()):
            raise AssertionError("the op writes, so what is left goes to the unit's files")
        return self.take_reports()[0]

    def _write(self, step: Step, given: Sized) -> None:
        assert self._output is not None, "an op that writes has an output"
        task, items, nbytes = given
        stage: Any = self._plan.stages[step.stage]
        if not isinstance(task, RecordTask) or (items and not isinstance(task, self._shared.written)):
            raise RunFailedError(cannot_write(self._plan.stages, step.stage, task))
        if isinstance(stage, PhaseWriter):
            self._hand_on(step, given)
            return
        tally = self._tally_of(step.stage)
        tally.tasks += 1
        if not items:
            return
        started = time.perf_counter()
        tally.in_docs += items
        tally.in_bytes += nbytes
        if self._notes is not None:
            self._notes.begin(Note(WRITE, stage.name, (place_of(task),), items), stage.timeout_s)
        fitting: RecordTask = stage.fitting(task)
        self._output.write(fitting)
        self._end_note()
        self._spent(step.stage, started)
        self._count_out(step.stage, Outcome([], failed=fitting.take_failed()))
        if fitting is not task:
            items, nbytes = fitting.num_items, fitting.nbytes
        tally.out_docs += items
        tally.out_bytes += nbytes
        self._report.tally.written += items
        if task.metadata:
            tally.add_statistics(task.metadata)

    def _hand_on(self, step: Step, given: Sized) -> None:
        """Give a task to the writer that ends a phase. Its code is called as that of any stage."""
        assert self._output is not None, "an op that writes has an output"
        context, tally = self._contexts[step.stage], self._tally_of(step.stage)
        stage: Any = context.stage
        if not given.items:
            tally.tasks += 1
            return
        self._count_in(step.stage, given)
        started = time.perf_counter()
        for outcome in run_stage(context, given.task, buffered=self._buffered):
            passed, outcome.tasks = outcome.tasks, []
            self._count_out(step.stage, outcome)
            for task in passed:
                assert isinstance(task, RecordTask), "the stage returns what it was given"
                items, nbytes = task.num_items, task.nbytes
                self._output.write(task)
                if stage.merges:
                    tally.merged += items
                    continue
                tally.count_out(items, nbytes)
                self._report.tally.handed_on += items
        self._spent(step.stage, started)
        if given.task.metadata:
            tally.add_statistics(given.task.metadata)

    # -- counting -----------------------------------------------------------------------------------------------------

    def _tally_of(self, stage: int) -> StageTally:
        stages = self._report.tally.stages
        return stages.get(stage) or stages.setdefault(stage, StageTally())

    def _spent(self, stage: int, started: float) -> None:
        seconds = max(0.0, time.perf_counter() - started - self._waited_s)
        self._waited_s = 0.0
        self._tally_of(stage).busy_s += seconds
        self._report.busy_s += seconds

    def _count_initial(self, task: Task) -> None:
        """Count a task that no reader read as read when it enters the first stage."""
        first = self._op.steps[0]
        if first.kind in ("process", "write") and first.stage == 0:
            self._report.tally.read += task.num_items
            if isinstance(task, RecordTask):
                task.name_records()

    def _count_in(self, stage: int, given: Sized) -> None:
        task, items, nbytes = given
        tally = self._tally_of(stage)
        tally.in_docs += items
        tally.in_bytes += nbytes
        tally.tasks += 1
        task.counted_items = items
        if self._scores is not None:
            self._scores.lend(stage, task, tally)

    def _count_out(self, number: int, outcome: Outcome) -> list[Sized]:
        """Count an outcome; return the tasks that go on."""
        context, tally = self._contexts[number], self._tally_of(number)
        if self._scores is not None:
            self._baggage.scores.extend(self._scores.collect(number, outcome))
        self._count_noted(context, tally)
        return count(tally, outcome, context.stage, self._baggage, self._shared.kept)

    def _count_noted(self, context: StageContext, tally: StageTally) -> None:
        """Count what was noted in the context of a stage."""
        noted = context.noted
        if noted.counts or noted.retries or noted.split_to:
            tally.add(context.take_noted())

    # -- lines that travel with tasks ---------------------------------------------------------------------------------

    def _take_over(self, task: Task) -> None:
        if task.unit_lines is not None:
            self._baggage.add(task.unit_lines)
            task.unit_lines = None

    def _loaded(self, task: Task) -> Task:
        """Return `task`, ready to leave the worker with all lines that wait."""
        if self._op.next is None and task.metadata:
            self._tally_of(self._op.steps[-1].stage).add_statistics(task.metadata)
        if self._baggage and self._op.next is not None:
            task.unit_lines, self._baggage = self._baggage, Baggage()
        return task

    def _leftover(self, task: Task) -> Iterator[Task]:
        """Take away the lines that still wait after the last step of a task."""
        if not self._baggage:
            return
        baggage, self._baggage = self._baggage, Baggage()
        if self._output is not None:
            baggage.write_to(self._output)
        elif self._op.next is not None:
            yield carrier(task.dataset_name, baggage)
        else:
            self._report.quarantined.extend(sorted_lines(baggage.quarantined))
