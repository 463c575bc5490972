# SPDX-License-Identifier: Apache-2.0
"""How much memory a tree of processes holds, seen from outside, through /proc alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The memory of one process tree at one moment."""

    at_s: float  # seconds since the command started
    pss_bytes: int  # sum of proportional set sizes: shared pages are counted once
    unmapped_bytes: int  # memfd pages that exist but that no process maps, so that no PSS shows them

    @property
    def total_bytes(self) -> int:
        """Return the bytes of memory that the process tree takes from the machine."""
        return self.pss_bytes + self.unmapped_bytes


def descendants(root_pid: int) -> list[int]:
    """Every process below `root_pid`, without itself. Orphans count where the root adopts them (child subreaper)."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent_pid(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    queue = [root_pid]
    while queue:
        below = children.get(queue.pop(), [])
        found.extend(below)
        queue.extend(below)
    return found


def sample_tree(pids: list[int], at_s: float) -> MemorySample:
    """Measure the processes `pids`; one that ends meanwhile counts as nothing."""
    pss_kb = 0
    pss_shmem_kb = 0
    for pid in pids:
        rollup = _rollup_kb(pid)
        pss_kb += rollup.get("Pss", 0)
        pss_shmem_kb += rollup.get("Pss_Shmem", 0)
    unmapped = max(0, memfd_bytes(pids) - pss_shmem_kb * 1024)
    return MemorySample(at_s, pss_kb * 1024, unmapped)


def _parent_pid(entry: Path) -> int | None:
    try:
        # The command name stands in brackets and may hold spaces: read behind the last bracket.
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


def _rollup_kb(pid: int) -> dict[str, int]:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}


def memfd_bytes(pids: list[int]) -> int:
    """Allocated bytes of all memfd files that these processes hold open, each file once."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            handles = list(os.scandir(PROC / str(pid) / "fd"))
        except OSError:
            continue
        for handle in handles:
            try:
                if os.readlink(handle.path).startswith("/memfd:"):
                    status = os.stat(handle.path)
                    sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
            except OSError:
                continue
    return sum(sizes.values())
