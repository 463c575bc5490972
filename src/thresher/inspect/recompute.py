# SPDX-License-Identifier: Apache-2.0
"""Recompute the history of one record: find it in the input and run it through the stages, with the scores of all
rules.

A stage is not run if its result for a single record says nothing about the run: one that is not deterministic, needs an
accelerator, or works on whole batches. The stage that quarantined the record is not run either, because it might crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thresher.core.phases import PhaseReader, PhaseWriter
from thresher.core.records.record_task import DroppedRows, RecordTask
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.source import ReadContext
from thresher.core.stage import ProcessingStage, SinkStage, SourceStage, overrides
from thresher.core.tally import context_of
from thresher.core.unit import Piece, Unit, file12
from thresher.credentials import error_line
from thresher.errors import UsageError
from thresher.inspect.retry_source import AllUnitsBut
from thresher.ledger.quarantine import RECORD_ID, QuarantineEntry, dropped_lines
from thresher.runtime.worker.settle import Outcome
from thresher.runtime.worker.stage_call import run_stage
from thresher.stage_errors import ControlSignal

Stage = ProcessingStage[Any, Any]
JudgedRules = Callable[[Stage, Any], Sequence[Any]]
"""Function that evaluates every rule of a stage on a document."""


@dataclass(frozen=True)
class Visit:
    """The passage of one record through one stage."""

    stage: str
    """Name of the stage."""
    id: str
    """Id of the record."""
    result: str
    """`passed`, `changed`, `became` others, `copied` or `sent` to an outlet, `merged` into a result over many,
    `dropped`, `failed`, `set aside`, `written`, or `not recomputed`."""
    rules: Sequence[Any] = ()
    """Result of each rule of the stage: rule, score, threshold, kept."""
    children: Sequence[str] = ()
    """Ids of the records that were made from it."""
    reason: str = ""
    """Rule that dropped it, outlet that gets it, error, or reason for not recomputing it."""
    score: Any = None
    """Score of that rule."""
    threshold: Any = None
    """Threshold of that rule."""
    line: bytes = b""
    """The record as it left the stage; for a dropped one, its line in `dropped_to`."""
    sent: RecordTask | None = None
    """The record as it goes to the outlet."""

    @property
    def is_last(self) -> bool:
        """Return True if the record goes no further."""
        return self.result not in ("became", "passed", "changed", "copied")


@dataclass(frozen=True)
class FoundRecord:
    """A record in the input."""

    unit: str
    """Id of its unit."""
    batch: RecordTask | None
    """Batch with only this record; `None` if it cannot be read."""
    error: str = ""
    """Reason why it cannot be read."""
    line: bytes = b""
    """The record in the input."""


def find_record(reader: SourceStage[Any], located: Located) -> FoundRecord | None:
    """Read a record again; return `None` if none begins at that position."""
    for unit, batch in batches_of(reader, located.unit, located.position):
        ids = [] if batch.ids is None else batch.ids.strings()
        if located.root in ids:
            row = ids.index(located.root)
            one = batch.pick([row])
            return FoundRecord(unit, one, line=bytes(one.json_lines()[0]))
        for failed in batch.take_failed():
            for row, message in enumerate(failed.messages):
                count = failed.counts[row] if failed.counts else 1
                if failed.ids is not None and QuarantineEntry(failed.ids.at(row), records=count).holds(located.root):
                    return FoundRecord(unit, None, message, bytes(failed.lines[row]))
    return None


def batches_of(reader: SourceStage[Any], unit: Unit, position: int | None = None) -> Iterator[tuple[str, RecordTask]]:
    """Yield the records of a unit or stream with the id of their unit; with `position`, skip units of a stream that
    cannot contain it."""
    context = ReadContext()
    blocksize = getattr(reader, "blocksize", 0)
    if unit.stream and position is not None and blocksize:
        context = replace(context, done=AllUnitsBut(unit.block(position // blocksize).id))
    for item in reader.read(unit, context):
        if item.task is not None:
            yield item.unit.id, reader.parse(item.task)


@dataclass
class Recomputation:
    """Runner that takes a record through the stages."""

    stages: Sequence[Stage]
    """Stages of the plan, including the reader."""
    judged_rules: JudgedRules
    """Function that evaluates the rules of a stage."""
    quarantined: frozenset[tuple[str, bytes]] = frozenset()
    """Quarantined records of the run: the stage, and the record as it arrived there or its id."""
    run_dir: str = ""
    """Run folder, where phases may have recorded what they dropped."""
    options: dict[str, Any] | None = None
    """Options for opening it, if it is a URL."""

    def visits(self, batch: RecordTask, wanted: str, first: int = 1) -> list[Visit]:
        """Return the passages of the records of `batch` that are related to the id `wanted`, from stage index `first`
        on."""
        visits: list[Visit] = []
        current = [batch]
        ready: list[Stage] = []
        try:
            for stage in self.stages[first:]:
                following: list[RecordTask] = []
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

    def _visit(self, stage: Stage, one: RecordTask, ready: list[Stage]) -> tuple[Visit, list[RecordTask]]:
        record_id = _id_of(one)
        if isinstance(stage, PhaseWriter | PhaseReader):
            return self._phase_visit(stage, one)
        if isinstance(stage, SinkStage):
            return Visit(stage.name, record_id, "written", line=bytes(one.json_lines()[0])), []
        before = bytes(one.json_lines()[0])
        if not self.quarantined.isdisjoint({(stage.name, before), (stage.name, record_id.encode())}):
            reason = "quarantined in the run; not run again here"
            return Visit(stage.name, record_id, "set aside", reason=reason, line=before), []
        reason_to_skip = _reason_to_skip(stage)
        if not reason_to_skip:
            reason_to_skip = _set_up(stage, ready)
        if reason_to_skip:
            return Visit(stage.name, record_id, "not recomputed", reason=reason_to_skip), []
        rules = self._rules(stage, one)
        outcome = Outcome()
        for part in run_stage(context_of(stage), one, buffered=True):
            outcome.add(part)
        return _visit_from(stage, record_id, before, outcome, rules)

    def _phase_visit(
        self, stage: PhaseWriter[Any] | PhaseReader[Any], one: RecordTask
    ) -> tuple[Visit, list[RecordTask]]:
        """Return the passage of a record from one phase to the next."""
        record_id, line = _id_of(one), bytes(one.json_lines()[0])
        if isinstance(stage, PhaseWriter):
            if stage.merges:
                return Visit(stage.name, record_id, "merged", line=line), []
        elif self.run_dir and (drop := stage.recorded_drop(self.run_dir, record_id, self.options)) is not None:
            rows = DroppedRows(one, drop[0], [drop[1]])
            line = dropped_lines(rows, stage.name)[0]
            return Visit(stage.name, record_id, "dropped", (), (), drop[0], drop[1], None, line), []
        return Visit(stage.name, record_id, "passed", line=line), [one]

    def _rules(self, stage: Stage, one: RecordTask) -> Sequence[Any]:
        try:
            return self.judged_rules(stage, one)
        except ControlSignal:
            raise
        except BaseException:  # calling the stage reports the error
            return ()


def _visit_from(
    given: Stage, record_id: str, before: bytes, outcome: Outcome, rules: Sequence[Any]
) -> tuple[Visit, list[RecordTask]]:
    stage = given.name
    made = [task for task in outcome.tasks if isinstance(task, RecordTask)]
    copies = [dropped for dropped in outcome.dropped if dropped.copied]
    for dropped in outcome.dropped:
        if dropped.copied:
            continue
        outlet = dropped.outlet or given.drops_to
        if outlet:
            return Visit(stage, record_id, "sent", rules, reason=outlet, sent=dropped.batch), []
        score = dropped.scores[0] if dropped.scores else None
        line = dropped_lines(dropped, stage)[0]
        return Visit(stage, record_id, "dropped", rules, (), dropped.rule, score, dropped.threshold, line), []
    for failed in outcome.failed:
        return Visit(stage, record_id, "failed", rules, (), f"{failed.error}: {failed.messages[0]}"), []
    ids = [found for batch in made for found in (batch.ids.strings() if batch.ids is not None else [])]
    if ids == [record_id]:
        line = bytes(made[0].json_lines()[0])
        for copy in copies:
            return Visit(stage, record_id, "copied", rules, reason=copy.outlet, line=line, sent=copy.batch), made
        return Visit(stage, record_id, "passed" if line == before else "changed", rules, line=line), made
    if not ids:
        return Visit(stage, record_id, "dropped", rules, reason="the stage returned nothing"), []
    return Visit(stage, record_id, "became", rules, ids), made


def _singles(batches: Sequence[RecordTask], wanted: str) -> Iterator[RecordTask]:
    """Yield the records of batches one by one, if they are ancestors or descendants of the wanted one."""
    for batch in batches:
        for row, record_id in enumerate(batch.ids.strings() if batch.ids is not None else []):
            if is_related(record_id, wanted):
                yield batch.take([row])


def is_related(record_id: str, wanted: str) -> bool:
    """Return True if two ids are equal or one is an ancestor of the other."""
    return f"{record_id}/".startswith(f"{wanted}/") or f"{wanted}/".startswith(f"{record_id}/")


def _id_of(one: RecordTask) -> str:
    return one.ids.at(0) if one.ids is not None else ""


def _reason_to_skip(stage: Stage) -> str:
    if not stage.deterministic:
        return "the stage is not deterministic: it may say something else now"
    if stage.resources.requires_gpu:
        return "the stage needs an accelerator"
    if not stage.row_wise:
        return "the stage works on whole batches, so a single record gives another result"
    return ""


def _set_up(stage: Stage, ready: list[Stage]) -> str:
    """Set up a stage; return the error message if that fails."""
    if stage in ready:
        return ""
    try:
        if overrides(stage, "setup_on_node"):
            stage.setup_on_node(NodeInfo(), WorkerMetadata())
        if overrides(stage, "setup"):
            stage.setup(WorkerMetadata())
    except ControlSignal:
        raise
    except BaseException as error:
        return f"the stage cannot be set up here: {error_line(error)}"
    ready.append(stage)
    return ""


# -- finding a record by its id ---------------------------------------------------------------------------------------


ID_FORMAT = (
    "An id is file12:OFFSET for JSON lines (3f2a9c01d4e5:1048576) or file12:rROW for Parquet (3f2a9c01d4e5:r42), with "
    "/K behind it for the K-th record that a stage made of it"
)


@dataclass(frozen=True)
class Located:
    """Location of a record in the input."""

    root: str
    """Id of the record in the input, without `/k`."""
    piece: Piece
    """File of the record."""
    position: int
    """Byte offset in the unpacked file, or row."""
    is_row: bool
    """True if the position is a row."""
    unit: Unit
    """Unit that holds the record, or the stream that the unit is cut from."""


def parse_record_id(text: str) -> re.Match[str]:
    """Return the parts of an id; raise `UsageError` if it is not an id."""
    found = RECORD_ID.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not the id of a record. {ID_FORMAT}")
    return found


def locate(record_id: str, units: Iterable[Unit]) -> Located:
    """Return the location of a record; raise `UsageError` if the id is invalid or belongs to no file of the run."""
    found = parse_record_id(record_id)
    position, is_row = int(found[3]), bool(found[2])
    candidates = [(piece, unit) for unit in units for piece in unit.pieces if found[1] == file12(piece.relative)]
    if not candidates:
        raise UsageError(
            f"{record_id}: no input file of this run has ids that begin with {found[1]}. {ID_FORMAT}; "
            '`thresher why RUN --text "some words"` finds ids by text'
        )
    piece, unit = _owner(candidates, position, is_row)
    root = f"{found[1]}:{found[2]}{found[3]}"
    return Located(root, piece, position, is_row, unit)


def _owner(candidates: Sequence[tuple[Piece, Unit]], position: int, is_row: bool) -> tuple[Piece, Unit]:
    """Return the last range of a file that begins at or before a position."""
    by_row = is_row or any(piece.row for piece, _ in candidates)
    # A zstd frame owns the lines that start after its first byte.
    behind = 1 if by_row and not is_row else 0

    def start(candidate: tuple[Piece, Unit]) -> int:
        first = candidate[0].row if by_row else candidate[0].start
        return first + behind if first else 0

    ordered = sorted(candidates, key=start)
    return max((one for one in ordered if start(one) <= position), key=start, default=ordered[0])
