# SPDX-License-Identifier: Apache-2.0
"""The memory floor of a plan; a run with less memory is refused before it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from thresher.core.arguments.sizes import counted, show_size
from thresher.core.planning.plan import Plan
from thresher.errors import UsageError
from thresher.runtime.memory.usage import proportional_bytes

if TYPE_CHECKING:
    from thresher.runtime.executor import Limits

DRIVER_BYTES = 45 * 10**6
"""Memory of a running driver, if it is not measured to be larger."""
LARGE_DRIVER_BYTES = 2 * DRIVER_BYTES
"""Size from which the driver is mentioned in the error message."""
ZYGOTE_BYTES = 40 * 10**6
"""Memory of the zygote: most of what Python and Arrow take is there, and shared."""
WORKER_BYTES = 65 * 10**6
"""Private memory of a running worker. 40 MB of it is pandas, which Arrow imports with its first column."""
CHUNK_COPIES = 2
"""Average number of copies of the chunks of all workers."""
RECORD_COPIES = 7
"""Number of copies of the largest supported record, a sixteenth of the memory: as bytes, as text, as a column, as a
line. Accented text that is rewritten takes that much."""
RECORD_SHARE, CHUNK_SHARE = 16, 64
"""The largest supported record is one part in `RECORD_SHARE` of the memory; the chunks of all workers together are one
part in `CHUNK_SHARE`."""
_FOR_DATA = RECORD_COPIES / RECORD_SHARE + CHUNK_COPIES / CHUNK_SHARE
GB = 10**9


def chunk_bytes(memory_bytes: int, workers: int, most: int) -> int:
    """Return the chunk size with which all workers together stay within their part of the memory."""
    return max(65536, min(most, memory_bytes // (CHUNK_SHARE * workers)))


def memory_floor(plan: Plan, limits: Limits) -> int:
    """Return the bytes that the plan needs: all processes, the memory that stages request, and the shares of chunks and
    records."""
    own = [(op.workers or 1, op.resources.memory_gb) for op in plan.ops if op.dedicated]
    workers = limits.workers_per_node + sum(count for count, _ in own)
    shared = max((stage.resources.memory_gb for stage in plan.stages), default=0.0)
    asked = sum(count * gigabytes for count, gigabytes in own) or shared
    processes = driver_bytes() + ZYGOTE_BYTES + workers * WORKER_BYTES
    return int((processes + asked * GB) / (1 - _FOR_DATA))


def driver_bytes() -> int:
    """Return the memory of the process that starts the run: the user's program or the command line."""
    return max(DRIVER_BYTES, proportional_bytes(os.getpid()) or 0)


def refuse_below_floor(plan: Plan, limits: Limits) -> None:
    """Raise if the memory limit, which there is, is below the floor of the plan."""
    floor = memory_floor(plan, limits)
    if limits.memory_bytes < floor:
        own = sum(op.workers or 1 for op in plan.ops if op.dedicated)
        workers = counted(limits.shared_workers, "worker") + (f" and {own} of stages' own" if own else "")
        raise UsageError(
            f"memory: {show_size(limits.memory_bytes)} is below the {show_size(floor)} that this plan needs with "
            f"{workers}; give at least that, or fewer workers{_large_driver_note()}"
        )


def _large_driver_note() -> str:
    """Return a note if the program that starts the run is large itself, because the limit includes it."""
    driver = driver_bytes()
    if driver < LARGE_DRIVER_BYTES:
        return ""
    return f" (this Python process already uses {show_size(driver)}, which counts)"
