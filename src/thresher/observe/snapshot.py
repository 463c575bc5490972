# SPDX-License-Identifier: Apache-2.0
"""What a run looks like at one moment: the values that live view, log lines and metrics.json show."""

from __future__ import annotations

import msgspec


class StageSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One stage at one moment."""

    name: str
    """Its name in the plan."""
    leads: bool
    """The first stage of an op: queue and workers of the whole op are told here."""
    in_docs: int = 0
    """Records that came in."""
    out_docs: int = 0
    """Records that went on."""
    in_bytes: int = 0
    """Bytes that came in."""
    out_bytes: int = 0
    """Bytes that went on."""
    dropped: int = 0
    """Records that a rule dropped."""
    quarantined: int = 0
    """Records that were set aside because they failed."""
    kept_ratio: float | None = None
    """Share of the records that were neither dropped nor quarantined; `None` before the first one."""
    docs_per_s: float = 0.0
    """Records a second, over the window."""
    bytes_per_s: float = 0.0
    """Bytes a second, over the window."""
    docs_per_s_overall: float = 0.0
    """Records a second, since work began."""
    bytes_per_s_overall: float = 0.0
    """Bytes a second, since work began."""
    busy_ratio: float = 0.0
    """Share of all workers' time, over the window, that went into this stage's own code."""
    queue_tasks: int = 0
    """Tasks (units, for a reader) that wait for a worker."""
    queue_bytes: int = 0
    """Payload bytes of the tasks that wait."""
    workers_busy: int = 0
    """Workers that run an op which this stage leads."""
    workers_total: int = 0
    """Workers that could: its own, or all shared ones."""


class Message(msgspec.Struct, frozen=True):
    """Something that people should know."""

    number: int
    """Counts from 1, so that a view can tell which are new."""
    t: float
    """Seconds since the start of the attempt."""
    text: str
    """One line."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    elapsed_s: float
    """Seconds since the start of the attempt."""
    stages: tuple[StageSnapshot, ...]
    """In the order of the plan."""
    units_done: int = 0
    """Units that are committed, restored ones included."""
    units_listed: int = 0
    """Units known so far, restored ones included."""
    units_resumed: int = 0
    """Units that an earlier attempt had committed."""
    listing_complete: bool = False
    """No further input will be found."""
    bytes_done: int = 0
    """Input bytes that are read or behind us."""
    bytes_listed: int = 0
    """Input bytes known so far."""
    progress_ratio: float | None = None
    """Done share of the input by bytes; `None` while input is still being listed."""
    eta_s: float | None = None
    """Seconds to the end, at the pace of the last minute; `None` while nobody can know."""
    memory_bytes: int = 0
    """Memory of the whole run, last sample."""
    memory_limit_bytes: int = 0
    """Its ceiling; 0: none."""
    memory_peak_bytes: int = 0
    """The largest sample."""
    inflight_bytes: int = 0
    """Payload bytes that are emitted and not yet released."""
    workers_busy: int = 0
    """Workers that have something to do."""
    workers_total: int = 0
    """Workers that are set up."""
    workers_starting: int = 0
    """Workers that are not set up yet."""
    errors: int = 0
    """Failures of tasks, workers and commits, retried or not."""
    quarantined: int = 0
    """Records set aside, over all stages."""
    messages: tuple[Message, ...] = ()
    """The last few."""
