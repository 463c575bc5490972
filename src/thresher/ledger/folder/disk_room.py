# SPDX-License-Identifier: Apache-2.0
"""Room on disk for the files between phases, predicted from the size of the input."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from thresher.core.arguments.sizes import show_size
from thresher.core.files.filesystem import is_url, local_path
from thresher.core.unit import Unit
from thresher.errors import OutputRefusedError

PLAIN = (".jsonl", ".ndjson", ".json", ".txt")
"""Ends of the names of files that are not compressed."""
PLAIN_SHARE = 0.3
"""Size of plain text between phases, compared with the input. Text compresses to this or less, so a run with less room
would surely not end, and one with more is not refused."""


def expected_bytes(units: Sequence[Unit]) -> int:
    """Return about how many bytes the documents of some units take between two phases."""
    return sum(int(unit.nbytes * (PLAIN_SHARE if unit.pieces[0].path.endswith(PLAIN) else 1.0)) for unit in units)


def refuse_without_room(folder: str, needed: int) -> None:
    """Raise if a local folder has less room than phases surely need; nothing is known of object stores."""
    if is_url(folder):
        return
    free = shutil.disk_usage(_existing(local_path(folder))).free
    if needed > free:
        raise OutputRefusedError(
            f"{folder}: the files between the phases of this run need about {show_size(needed)}, and "
            f"{show_size(free)} are free on this disk. Make room, or put the run folder on another disk with "
            "--run-dir (run_dir=…)"
        )


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
