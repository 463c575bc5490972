# SPDX-License-Identifier: Apache-2.0
"""Parts: files of single units that are joined to output files of a target size, or in the schema of the run."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from thresher.core.files import filesystem
from thresher.core.source import FileFacts
from thresher.core.unit import Piece, Unit
from thresher.ledger.records import JOIN_PREFIX, CommitRecord, OutputFile
from thresher.ledger.stores.errors import writing
from thresher.ledger.stores.store import StagedFile, publish
from thresher.ledger.unit_output import CommitTarget, committed_record, record_commit, unique_name

if TYPE_CHECKING:
    from thresher.core.stage import SinkStage


def plan_joins(parts: Iterable[CommitRecord], target_bytes: int, target: CommitTarget) -> list[Unit]:
    """Return units that join consecutive parts up to `target_bytes`. A larger part becomes a file of its own; with 0,
    every part does.

    `parts` are the commit records of all parts in input order. The pieces of a join unit are its parts: `path` is the
    file, `relative` the id of the unit that it holds.
    """
    groups: list[list[CommitRecord]] = []
    size = 0
    for record in parts:
        if not record.outputs:
            continue
        nbytes = record.outputs[0].bytes
        if not groups or size + nbytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(record)
        size += nbytes
    return [_join_unit(group, target) for group in groups]


def _join_unit(group: list[CommitRecord], target: CommitTarget) -> Unit:
    assert target.parts is not None, "there are parts only where files are joined"
    first = group[0]
    stem = first.outputs[0].path.removesuffix(f"-{first.unit}{target.extension}")
    files = [record.outputs[0] for record in group]
    paths = [filesystem.join(target.parts, file.path) for file in files]
    pieces = tuple(Piece(path, record.unit, file.bytes) for path, record, file in zip(paths, group, files, strict=True))
    return Unit(
        JOIN_PREFIX + first.unit, first.order, pieces, stem, sum(piece.size for piece in pieces), phase=first.phase
    )


JOINED_AT_ONCE = 16
"""Files between two phases that one unit joins."""
TWICE_AT_MOST = 0.25
"""Share of the bytes of a phase that may be on disk twice, in files that are being joined and in the joined ones."""


def phase_tree(
    committed: Mapping[str, CommitRecord], phase: int, most_files: int, target: CommitTarget
) -> tuple[list[Unit], list[CommitRecord]]:
    """Return the units that join files of a phase and can run now; or, if there are none, the records of the files that
    are left for the next phase, at most `most_files` unless that is 0.

    The files are joined in rounds, 16 neighbours at a time. Which ones depends on the units of the phase alone. Not
    all units of a round are returned at once, so that there is always room to remove what was joined.
    """
    of_phase = (r for r in committed.values() if r.handed_on and r.phase == phase and r.outputs and not r.joined)
    level = sorted(of_phase, key=lambda record: (record.order, record.unit))
    number = 0
    while most_files and len(level) > most_files:
        number += 1
        groups = [level[start : start + JOINED_AT_ONCE] for start in range(0, len(level), JOINED_AT_ONCE)]
        units = [_phase_join(group, number, target) for group in groups if len(group) > 1]
        left = [unit for unit in units if unit.id not in committed]
        if left:
            most_bytes = TWICE_AT_MOST * sum(file.bytes for record in level for file in record.outputs)
            return _first_of(left, most_bytes), []
        joined = iter(units)
        level = [group[0] if len(group) == 1 else committed[next(joined).id] for group in groups]
    return [], level


def _first_of(units: list[Unit], most_bytes: float) -> list[Unit]:
    """Return the first of some units, up to a number of bytes; at least one."""
    reached = list(itertools.accumulate(unit.nbytes for unit in units))
    return units[: max(1, bisect.bisect_right(reached, most_bytes))]


def _phase_join(group: list[CommitRecord], level: int, target: CommitTarget) -> Unit:
    """Return a unit that joins files of a phase; its pieces are as those of a unit that joins parts."""
    first = group[0]
    folder = target.phase_folder(first.phase)
    files = [(record, file) for record in group for file in record.outputs]
    pieces = tuple(Piece(filesystem.join(folder, file.path), record.unit, file.bytes) for record, file in files)
    name = f"{JOIN_PREFIX}{level}-{first.unit.removeprefix(JOIN_PREFIX)}"
    return Unit(name, first.order, pieces, "joined", sum(piece.size for piece in pieces), phase=first.phase)


def join(target: CommitTarget, sink: SinkStage[Any, Any], unit: Unit) -> CommitRecord:
    """Join the parts in the pieces of `unit` into one output file, publish it and record it."""
    target = target.of_phase(unit.phase)
    run = None if target.run_dir is None else target.store(target.run_dir)
    found = None if run is None else committed_record(target, unit.id, run)
    if found is not None:
        return found
    assert target.output is not None, "parts are joined for a writer"
    base = os.path.join(target.tmp, f"{unit.id}-{unique_name()}")
    local = f"{base}{target.extension}"
    parts: list[str] = []
    with writing(target.output):
        target.make_tmp()
        try:
            for number, piece in enumerate(unit.pieces):
                parts.append(_local_part(target, piece.path, f"{base}-{number}"))
            facts: FileFacts = sink.join_parts(parts, local, target.schema())
            name = target.output_name(unit)
            publish(target.store(target.output), [StagedFile(local, name, facts.sha256)], [name], target.owner)
        finally:
            for path in (local, *(path for path in parts if path.startswith(base))):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
    output = OutputFile(name, facts.nbytes, facts.records, facts.sha256)
    units = tuple(piece.relative for piece in unit.pieces)
    record = CommitRecord(
        unit.id,
        target.attempt,
        outputs=(output,),
        order=unit.order,
        joined=units,
        run=target.run_id,
        phase=unit.phase,
        handed_on=target.hands_on(unit.phase),
    )
    record.tally.extras = dict(facts.extras)
    if run is None:
        return record
    with writing(run.root):
        return record_commit(target, record, run)


def _local_part(target: CommitTarget, path: str, local: str) -> str:
    if not filesystem.is_url(path):
        return path
    folder, name = path.rsplit("/", 1)
    target.store(folder).get(name, local)
    return local
