# SPDX-License-Identifier: Apache-2.0
"""Room on disk for what phases write, predicted from the input, and from what a phase will read when it begins."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.core.arguments.sizes import show_size
from thresher.core.files.filesystem import is_url, local_path
from thresher.core.unit import Unit
from thresher.errors import OutputRefusedError

if TYPE_CHECKING:
    from thresher.ledger.unit_output import CommitTarget

PLAIN = (".jsonl", ".ndjson", ".json", ".txt")
"""Ends of the names of files that are not compressed."""
PLAIN_SHARE = 0.3
"""Size of plain text between phases, compared with the input. Text compresses to this or less, so a run with less room
would surely not end, and one with more is not refused."""
SURELY = 0.9
"""Share of a predicted size that is needed for sure; the same documents took 0.99 to 1.06 of what was predicted."""
PACKED_SHARE = 0.6
"""Size of compressed documents, compared with that between the phases before; measured 0.8 for Parquet with zstd."""
_GO_ON = (
    "Make room, then run the same command again: it goes on with this phase. Or start over on another disk with "
    "--fresh, another output path or --run-dir (run_dir=…)"
)


def expected_bytes(units: Sequence[Unit]) -> int:
    """Return about how many bytes the documents of some units take between two phases."""
    given = [unit for unit in units if unit.pieces]
    return sum(int(unit.nbytes * (PLAIN_SHARE if unit.pieces[0].path.endswith(PLAIN) else 1.0)) for unit in given)


def refuse_input(target: CommitTarget, needed: int) -> None:
    """Raise if there is surely no room for what the documents of the whole input take between phases."""
    assert target.phases is not None, "a run of several phases has a folder for them"
    what = f"the files between the phases of this run need about {show_size(needed)}"
    _refuse(target.phases, needed, what, "Make room, or put the run folder on another disk with --run-dir (run_dir=…)")


def refuse_joins(target: CommitTarget, units: Sequence[Unit]) -> None:
    """Raise if there is no room for files that are joined next, which are removed afterwards."""
    needed = sum(unit.nbytes for unit in units)
    what = f"to join files of phase {units[0].phase + 1} takes {show_size(needed)}"
    _refuse(target.phase_folder(units[0].phase), needed, what, _GO_ON)


def refuse_phase(target: CommitTarget, units: Sequence[Unit], left: Sequence[Unit], read_bytes: int) -> None:
    """Raise if there is surely no room for what the units that are left of a phase will write.

    The phase writes all documents as it reads them. `read_bytes`: the size of the files that it reads.
    """
    if not left:
        return
    phase, nbytes = left[0].phase, sum(unit.nbytes for unit in left)
    folder = target.phase_folder(phase) if target.hands_on(phase) else target.output
    if folder is None:
        return
    packed = read_bytes * nbytes / max(1, sum(unit.nbytes for unit in units))
    if target.hands_on(phase):
        needed = int(SURELY * packed)
    else:
        needed = int(SURELY * nbytes if target.extension.endswith(PLAIN) else PACKED_SHARE * packed)
    _refuse(folder, needed, f"phase {phase + 1} of this run will write about {show_size(needed)} more", _GO_ON)


def _refuse(folder: str, needed: int, what: str, advice: str) -> None:
    """Raise if a local folder has less room than needed; nothing is known of object stores."""
    if is_url(folder):
        return
    free = shutil.disk_usage(_existing(local_path(folder))).free
    if needed > free:
        raise OutputRefusedError(f"{folder}: {what}, and {show_size(free)} are free on this disk. {advice}")


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
