# SPDX-License-Identifier: Apache-2.0
"""The least memory with which a plan can keep its promise; a run with less is refused before it begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from thresher.core.plan import Plan
from thresher.core.sizes import show_size
from thresher.errors import UsageError
from thresher.runtime.memory import proportional_bytes

if TYPE_CHECKING:
    from thresher.runtime.executor import Limits

DRIVER_BYTES = 45 * 10**6
"""The driver of a run at its work, where it is not measured to be larger already."""
LARGE_DRIVER_BYTES = 2 * DRIVER_BYTES
"""A driver of so much is worth a word where the memory does not suffice."""
ZYGOTE_BYTES = 40 * 10**6
"""The process that workers are forked from: most of what Python and Arrow take is there, and shared."""
WORKER_BYTES = 65 * 10**6
"""What a worker takes for itself at its work. Of that, 40 MB are pandas, which Arrow imports with its first column."""
CHUNK_COPIES = 2
"""How many times the chunks of all workers are there beyond that, on the average."""
RECORD_COPIES = 7
"""How many times the largest record that is promised to be worked on, a sixteenth of the memory, may be there: as
bytes, as text, as a column, as a line. Accented text that is rewritten takes as much."""
RECORD_SHARE, CHUNK_SHARE = 16, 64
"""The largest record is this part of the memory; so are the chunks of all workers together."""
_FOR_DATA = RECORD_COPIES / RECORD_SHARE + CHUNK_COPIES / CHUNK_SHARE
GB = 10**9


def chunk_bytes(memory_bytes: int, workers: int, most: int) -> int:
    """How long chunks may be so that all workers together stay within their part of the memory."""
    return max(65536, min(most, memory_bytes // (CHUNK_SHARE * workers)))


def memory_floor(plan: Plan, limits: Limits) -> int:
    """Bytes that the plan needs: all processes, what stages ask for, and on top the shares of chunks and records."""
    own = [(op.workers or 1, op.resources.memory_gb) for op in plan.ops if op.dedicated]
    workers = limits.workers_per_node + sum(count for count, _ in own)
    shared = max((stage.resources.memory_gb for stage in plan.stages), default=0.0)
    asked = sum(count * gigabytes for count, gigabytes in own) or shared
    processes = driver_bytes() + ZYGOTE_BYTES + workers * WORKER_BYTES
    return int((processes + asked * GB) / (1 - _FOR_DATA))


def driver_bytes() -> int:
    """What the process takes that a run is started from: the program of a user, or the command line."""
    return max(DRIVER_BYTES, proportional_bytes(os.getpid()) or 0)


def refuse_below_floor(plan: Plan, limits: Limits) -> None:
    """Raise where the memory that a run is given cannot be enough."""
    if not limits.memory_bytes:
        return
    floor = memory_floor(plan, limits)
    if limits.memory_bytes < floor:
        own = sum(op.workers or 1 for op in plan.ops if op.dedicated)
        workers = f"{limits.shared_workers} workers" + (f" and {own} of stages' own" if own else "")
        raise UsageError(
            f"memory: {show_size(limits.memory_bytes)} is below the {show_size(floor)} that this plan needs with "
            f"{workers}; give at least that, or fewer workers{_what_this_process_takes()}"
        )


def _what_this_process_takes() -> str:
    """Said where the program that starts the run has grown large by itself: the promise counts it."""
    driver = driver_bytes()
    if driver < LARGE_DRIVER_BYTES:
        return ""
    return f" (this Python process has {show_size(driver)} already, and they count)"
