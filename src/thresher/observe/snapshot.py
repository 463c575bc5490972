# SPDX-License-Identifier: Apache-2.0
"""Snapshot of a run: the values in the live view, the log lines and metrics.json."""

from __future__ import annotations

import msgspec


class StageSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One stage at one moment."""

    name: str
    """Its name in the plan."""
    leads: bool
    """True for the first stage of an op, which shows the queue and workers of the whole op."""
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
    """Records that were quarantined because they failed."""
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
    """Waiting tasks (units, for a reader)."""
    queue_bytes: int = 0
    """Payload bytes of the waiting tasks."""
    workers_busy: int = 0
    """Workers that run an op whose first stage this is."""
    workers_total: int = 0
    """Workers that can run such an op: its dedicated ones, or all shared ones."""


class Message(msgspec.Struct, frozen=True):
    """A message for the user."""

    number: int
    """Sequence number from 1, so that a display can tell which messages are new."""
    t: float
    """Seconds since the start of the attempt."""
    text: str
    """Text of one line."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    elapsed_s: float
    """Seconds since the start of the attempt."""
    stages: tuple[StageSnapshot, ...]
    """Stages in plan order."""
    units_done: int = 0
    """Units that are committed, restored ones included."""
    units_listed: int = 0
    """Units known so far, restored ones included."""
    units_resumed: int = 0
    """Units that an earlier attempt had committed."""
    listing_complete: bool = False
    """True if no further input will be listed."""
    bytes_done: int = 0
    """Input bytes that are read or committed; 0 if units are weighted in another measure."""
    bytes_listed: int = 0
    """Input bytes known so far; 0 if units are weighted in another measure."""
    progress_ratio: float | None = None
    """Done share of the input by bytes or weight, or by units without a size; `None` while input is being listed."""
    eta_s: float | None = None
    """Remaining seconds at the rate of the last minute; `None` if unknown."""
    memory_bytes: int = 0
    """Last memory sample of the whole run."""
    memory_limit_bytes: int = 0
    """Memory limit; 0: none."""
    memory_peak_bytes: int = 0
    """Largest memory sample."""
    inflight_bytes: int = 0
    """Bytes of unreleased payloads."""
    workers_busy: int = 0
    """Workers that hold a task."""
    workers_total: int = 0
    """Workers that are set up."""
    workers_starting: int = 0
    """Workers that are not set up yet."""
    errors: int = 0
    """Failures of tasks, workers and commits, retried or not."""
    quarantined: int = 0
    """Quarantined records, over all stages."""
    messages: tuple[Message, ...] = ()
    """The most recent messages."""
