# SPDX-License-Identifier: Apache-2.0
"""Which parts become which file when files of a target size are asked for."""

from __future__ import annotations

from collections.abc import Iterable

from thresher.core.filesystem import join
from thresher.core.unit import Piece, Unit
from thresher.ledger.place import JOIN_PREFIX, CommitPlace
from thresher.ledger.records import CommitRecord


def plan_joins(parts: Iterable[CommitRecord], target_bytes: int, place: CommitPlace) -> list[Unit]:
    """Units that join consecutive parts up to `target_bytes`; a part that is larger is a file of its own.

    `parts` are the records of all parts in input order. The pieces of a unit are its parts: `path` is the file,
    `relative` the id of the unit that it holds.
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
    return [_join_unit(group, place) for group in groups]


def _join_unit(group: list[CommitRecord], place: CommitPlace) -> Unit:
    assert place.parts is not None, "there are parts only where files are joined"
    first = group[0]
    stem = first.outputs[0].path.removesuffix(f"-{first.unit}{place.extension}")
    pieces = tuple(
        Piece(join(place.parts, record.outputs[0].path), record.unit, record.outputs[0].bytes) for record in group
    )
    return Unit(JOIN_PREFIX + first.unit, first.order, pieces, stem, sum(piece.size for piece in pieces))
