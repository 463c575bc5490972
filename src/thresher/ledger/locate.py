# SPDX-License-Identifier: Apache-2.0
"""From the id of a record to its file, its place there, and the unit that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thresher.core.unit import Piece, Unit, file12
from thresher.errors import UsageError
from thresher.ledger.quarantine_entries import RECORD_ID

AN_ID = (
    "An id is file12:OFFSET for JSON lines (3f2a9c01d4e5:1048576) or file12:rROW for Parquet (3f2a9c01d4e5:r42), with "
    "/K behind it for the K-th record that a stage made of it"
)


@dataclass(frozen=True)
class Located:
    """Where a record is in the input."""

    root: str
    """Its id without `/k`: that of the record in the input."""
    piece: Piece
    """The file."""
    position: int
    """Byte in the unpacked file, or row."""
    is_row: bool
    """Whether it is a row."""
    unit: Unit
    """The unit that holds it, or the stream that its unit is cut from."""


def refuse_no_id(text: str) -> re.Match[str]:
    """The parts of an id; `UsageError` if that is none."""
    found = RECORD_ID.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not the id of a record. {AN_ID}")
    return found


def locate(record_id: str, units: Iterable[Unit]) -> Located:
    """Where the record with this id is; `UsageError` if that is no id, or of no file of the run."""
    found = refuse_no_id(record_id)
    position, is_row = int(found[3]), bool(found[2])
    candidates = [(piece, unit) for unit in units for piece in unit.pieces if found[1] == file12(piece.relative)]
    if not candidates:
        raise UsageError(
            f"{record_id}: no input file of this run has ids that begin with {found[1]}. {AN_ID}; "
            '`thresher why RUN --text "some words"` finds ids by text'
        )
    piece, unit = _owner(candidates, position, is_row)
    root = f"{found[1]}:{found[2]}{found[3]}"
    return Located(root, piece, position, is_row, unit)


def _owner(candidates: Sequence[tuple[Piece, Unit]], position: int, is_row: bool) -> tuple[Piece, Unit]:
    """The last stretch of a file that begins at or before a position."""
    by_row = is_row or any(piece.row for piece, _ in candidates)
    # Frames of zstd own the lines that start behind their first byte.
    behind = 1 if by_row and not is_row else 0

    def start(candidate: tuple[Piece, Unit]) -> int:
        first = candidate[0].row if by_row else candidate[0].start
        return first + behind if first else 0

    ordered = sorted(candidates, key=start)
    return max((one for one in ordered if start(one) <= position), key=start, default=ordered[0])
