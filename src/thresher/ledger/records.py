# SPDX-License-Identifier: Apache-2.0
"""Commit records of units, and what derives from them: the manifest, and the units that join parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from thresher.core.files.filesystem import join
from thresher.core.tally import Tally
from thresher.core.unit import Piece, Unit
from thresher.ledger.quarantine import split_retry
from thresher.ledger.stores.commit_target import JOIN_PREFIX, CommitTarget


class OutputFile(msgspec.Struct, frozen=True):
    """A finished file."""

    path: str
    """Name below its folder: the output folder, `parts/` of the run folder, or `dropped_to`."""
    bytes: int
    """Size of the file."""
    records: int
    """Number of records in the file."""
    sha256: str
    """SHA-256 of the file."""


class CommitRecord(msgspec.Struct, frozen=True):
    """One committed unit: one line of the ledger."""

    unit: str
    """Id of the unit."""
    attempt: int
    """Attempt that committed it."""
    read: int = 0
    """Number of records read."""
    written: int = 0
    """Number of records written."""
    dropped: int = 0
    """Number of records dropped by rules."""
    quarantined: int = 0
    """Number of quarantined records."""
    outputs: tuple[OutputFile, ...] = ()
    """Files with its records: one, or none if no record is left."""
    order: tuple[int, int] = (0, 0)
    """Position in the input."""
    part: bool = False
    """True if `outputs` are parts that are joined later."""
    dropped_outputs: tuple[OutputFile, ...] = ()
    """Files with its dropped records."""
    joined: tuple[str, ...] = ()
    """For a joined file, the units of its parts in order."""
    tally: Tally = msgspec.field(default_factory=Tally)
    """Counts of each stage."""
    run: str = ""
    """Run that committed it; records of other runs are ignored."""
    schema: str = ""
    """For a part with open types, the schema that it proposes for the run."""


class ManifestLine(msgspec.Struct, frozen=True):
    """One finished output file of a finished run."""

    path: str
    """Name below the output folder."""
    bytes: int
    """Size of the file."""
    records: int
    """Number of records in the file."""
    sha256: str
    """SHA-256 of the file."""
    units: tuple[str, ...]
    """Units in the file, in order."""


_COMMIT = msgspec.json.Decoder(CommitRecord)
encode = msgspec.json.encode


def decode_commit(line: bytes) -> CommitRecord | None:
    """Return a commit record of the ledger or the inbox; `None` if a crash truncated it."""
    try:
        return _COMMIT.decode(line)
    except msgspec.DecodeError:
        return None


# -- manifest ---------------------------------------------------------------------------------------------------------


def in_input_order(records: Iterable[CommitRecord], files: Mapping[str, int]) -> list[CommitRecord]:
    """Return the records in input order; `files` has the current index of each file if the input was listed again."""

    def position(record: CommitRecord) -> tuple[int, int, str]:
        file = split_retry(record.unit.removeprefix(JOIN_PREFIX))[0].rsplit("-", 1)[0]
        return files.get(file, record.order[0]), record.order[1], record.unit

    return sorted(records, key=position)


def manifest_lines(records: Iterable[CommitRecord]) -> list[ManifestLine]:
    """Return one line per output file. Parts that were joined are not output files."""
    return [
        ManifestLine(file.path, file.bytes, file.records, file.sha256, record.joined or (record.unit,))
        for record in records
        if not record.part
        for file in record.outputs
    ]


# -- joins ------------------------------------------------------------------------------------------------------------


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
    pieces = tuple(
        Piece(join(target.parts, record.outputs[0].path), record.unit, record.outputs[0].bytes) for record in group
    )
    return Unit(JOIN_PREFIX + first.unit, first.order, pieces, stem, sum(piece.size for piece in pieces))
