# SPDX-License-Identifier: Apache-2.0
"""Input must stay as it was listed: a file that changes would give records with wrong ids, or halves of two."""

from __future__ import annotations

from typing import BinaryIO

from thresher.core.filesystem import StorageOptions, open_read, opened_state
from thresher.core.unit import Piece
from thresher.errors import InputError


def open_piece(piece: Piece, start: int = 0, storage_options: StorageOptions = None) -> BinaryIO:
    """The file of a piece, opened at byte `start`; `InputError` when it is gone or not the one that was listed."""
    opened = open_read(piece.path, start, storage_options)
    state = opened_state(opened)
    if state is not None and piece.version and state[1] and state != (piece.size, piece.version):
        opened.close()
        raise InputError(
            f"{piece.path} changed after it was listed (it had {piece.size} bytes, now it has {state[0]}); "
            "leave input alone during a run, then run again with --fresh"
        )
    return opened
