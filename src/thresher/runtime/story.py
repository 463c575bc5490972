# SPDX-License-Identifier: Apache-2.0
"""What happened to one record, found by doing it again: it is read from the input and taken through the stages here,
one by one, with the scores of every rule on the way.

A stage whose result for one record alone says nothing about the run is not done again: one that is not deterministic,
needs an accelerator, or looks at whole batches. Nor is the stage that set the record aside: it might crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thresher.core.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.source import ReadContext
from thresher.core.stage import ProcessingStage, SinkStage, SourceStage, overrides
from thresher.core.tally import StageTally
from thresher.core.unit import Unit
from thresher.ledger.locate import Located
from thresher.ledger.quarantine import dropped_lines
from thresher.runtime.settle import Outcome
from thresher.runtime.stage_call import run_stage

Stage = ProcessingStage[Any, Any]
JudgedRules = Callable[[Stage, DocumentBatch], Sequence[Any]]
"""Asks every rule of a stage about a document."""


@dataclass(frozen=True)
class Visit:
    """One record in one stage."""

    stage: str
    """Name of the stage."""
    id: str
    """Of the record."""
    result: str
    """`passed`, `changed`, `became` others, `dropped`, `failed`, `set aside`, `written`, or
    `not recomputed`."""
    rules: Sequence[Any] = ()
    """What each rule of the stage says about it: rule, score, threshold, kept."""
    children: Sequence[str] = ()
    """Ids of the records that were made of it."""
    reason: str = ""
    """The rule that dropped it, what went wrong, or why it was not done again."""
    score: Any = None
    """What that rule found."""
    threshold: Any = None
    """What that rule allows."""
    line: bytes = b""
    """The record as it left the stage; of a dropped one as `dropped_to` would have it."""


@dataclass(frozen=True)
class FoundRecord:
    """A record in the input."""

    unit: str
    """The unit that it belongs to."""
    batch: DocumentBatch | None
    """The record alone; `None` if it cannot be read."""
    error: str = ""
    """Why it cannot be read."""
    line: bytes = b""
    """The record as it is in the input."""


def find_record(reader: SourceStage[Any], located: Located) -> FoundRecord | None:
    """Read a record again; `None` if none begins at that place."""
    for unit, batch in batches_of(reader, located.unit, located.position):
        ids = [] if batch.ids is None else batch.ids.strings()
        if located.root in ids:
            row = ids.index(located.root)
            one = batch.take([row])
            one._failed, one._dropped = [], []
            return FoundRecord(unit, one, line=bytes(one.json_lines()[0]))
        for failed in batch._failed:
            for row in range(len(failed.messages)):
                if failed.ids is not None and failed.ids.at(row) == located.root:
                    return FoundRecord(unit, None, failed.messages[row], bytes(failed.lines[row]))
    return None


class _OtherBlocks(frozenset[str]):
    """All units of a stream but one."""

    wanted: str = ""

    def __contains__(self, item: object) -> bool:
        return item != self.wanted


def batches_of(
    reader: SourceStage[Any], unit: Unit, position: int | None = None
) -> Iterator[tuple[str, DocumentBatch]]:
    """The records of a unit or stream, with the id of the unit that they belong to; `position` leaves out units of a
    stream that cannot hold it."""
    context = ReadContext()
    blocksize = getattr(reader, "blocksize", 0)
    if unit.stream and position is not None and blocksize:
        others = _OtherBlocks()
        others.wanted = unit.block(position // blocksize).id
        context = replace(context, done=others)
    for item in reader.read(unit, context):
        if item.task is not None:
            yield item.unit.id, reader.parse(item.task)


@dataclass
class Telling:
    """Takes a record through the stages."""

    stages: Sequence[Stage]
    """Of the plan, the reader included."""
    judged_rules: JudgedRules
    """How rules are asked."""
    set_aside: frozenset[tuple[str, bytes]] = frozenset()
    """What a run set aside: the stage, and the record as it came to it or its id."""

    def visits(self, batch: DocumentBatch, wanted: str, first: int = 1) -> list[Visit]:
        """Everything that happens to the records of `batch` that have to do with the id `wanted`, from stage number
        `first` on."""
        visits: list[Visit] = []
        current = [batch]
        ready: list[Stage] = []
        try:
            for stage in self.stages[first:]:
                following: list[DocumentBatch] = []
                for one in _singles(current, wanted):
                    visit, made = self._visit(stage, one, ready)
                    visits.append(visit)
                    following += made
                current = following
        finally:
            for stage in reversed(ready):
                if overrides(stage, "teardown"):
                    stage.teardown()
        return visits

    def _visit(self, stage: Stage, one: DocumentBatch, ready: list[Stage]) -> tuple[Visit, list[DocumentBatch]]:
        record_id = _id_of(one)
        if isinstance(stage, SinkStage):
            return Visit(stage.name, record_id, "written", line=bytes(one.json_lines()[0])), []
        before = bytes(one.json_lines()[0])
        if not self.set_aside.isdisjoint({(stage.name, before), (stage.name, record_id.encode())}):
            reason = "set aside in the run; not tried again here"
            return Visit(stage.name, record_id, "set aside", reason=reason, line=before), []
        why_not = _why_not(stage)
        if not why_not:
            why_not = _set_up(stage, ready)
        if why_not:
            return Visit(stage.name, record_id, "not recomputed", reason=why_not), []
        rules = self._rules(stage, one)
        outcome = Outcome()
        for part in run_stage(stage, one, StageTally(), buffered=True):
            outcome.add(part)
        return _told(stage.name, record_id, before, outcome, rules)

    def _rules(self, stage: Stage, one: DocumentBatch) -> Sequence[Any]:
        try:
            return self.judged_rules(stage, one)
        except Exception:  # a rule's own code may raise anything; the stage itself will say so
            return ()


def _told(
    stage: str, record_id: str, before: bytes, outcome: Outcome, rules: Sequence[Any]
) -> tuple[Visit, list[DocumentBatch]]:
    made = [task for task in outcome.tasks if isinstance(task, DocumentBatch)]
    for dropped in outcome.dropped:
        score = dropped.scores[0] if dropped.scores else None
        line = dropped_lines(dropped, stage)[0]
        return Visit(stage, record_id, "dropped", rules, (), dropped.rule, score, dropped.threshold, line), []
    for failed in outcome.failed:
        return Visit(stage, record_id, "failed", rules, (), f"{failed.error}: {failed.messages[0]}"), []
    ids = [found for batch in made for found in (batch.ids.strings() if batch.ids is not None else [])]
    if ids == [record_id]:
        line = bytes(made[0].json_lines()[0])
        return Visit(stage, record_id, "passed" if line == before else "changed", rules, line=line), made
    if not ids:
        return Visit(stage, record_id, "dropped", rules, reason="the stage gave nothing back"), []
    return Visit(stage, record_id, "became", rules, ids), made


def _singles(batches: Sequence[DocumentBatch], wanted: str) -> Iterator[DocumentBatch]:
    """The records of some batches one by one, as far as they are ancestors or descendants of the one that is wanted."""
    for batch in batches:
        for row, record_id in enumerate(batch.ids.strings() if batch.ids is not None else []):
            if is_related(record_id, wanted):
                yield batch.take([row])


def is_related(record_id: str, wanted: str) -> bool:
    """Whether one of two ids is that of an ancestor of the other, or both are the same."""
    return f"{record_id}/".startswith(f"{wanted}/") or f"{wanted}/".startswith(f"{record_id}/")


def _id_of(one: DocumentBatch) -> str:
    return one.ids.at(0) if one.ids is not None else ""


def _why_not(stage: Stage) -> str:
    if not stage.deterministic:
        return "the stage is not deterministic: it may say something else now"
    if stage.resources.requires_gpu:
        return "the stage needs an accelerator"
    if not stage.row_wise:
        return "the stage looks at whole batches, so one record alone says nothing"
    return ""


def _set_up(stage: Stage, ready: list[Stage]) -> str:
    """Get a stage ready; what went wrong, if anything did."""
    if stage in ready:
        return ""
    try:
        if overrides(stage, "setup_on_node"):
            stage.setup_on_node(NodeInfo(), WorkerMetadata())
        if overrides(stage, "setup"):
            stage.setup(WorkerMetadata())
    except Exception as error:  # a stage's own code may raise anything
        return f"the stage cannot be set up here: {type(error).__name__}: {error}"
    ready.append(stage)
    return ""
