# SPDX-License-Identifier: Apache-2.0
"""Snapshot of a run, that is the values in the live view, the log lines and metrics.json; and rates over a sliding
window, from samples of cumulative counters."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from thresher.core.tally import StageTally, Tally

SAMPLE_S = 0.5
"""Time between samples."""
WINDOW_S = 5.0
"""Window for the rates of stages."""
PACE_S = 60.0
"""Window for the remaining time: longer, so that it does not jump with every commit."""


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
    phase: int = 1
    """Number of the phase that runs, from 1 on."""
    phases: int = 1
    """Number of phases."""
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


class Speed(NamedTuple):
    """Rates of a stage."""

    docs_per_s: float = 0.0  # records
    bytes_per_s: float = 0.0  # bytes
    busy_s_per_s: float = 0.0  # seconds of its own code per second: 2.0 is two busy workers


class _Counters(NamedTuple):
    docs: int
    nbytes: int
    busy_s: float


class _Sample(NamedTuple):
    t: float
    bytes_done: int
    stages: dict[int, _Counters]


def _counters(tally: StageTally) -> _Counters:
    # A reader that is the first stage may have no input counts.
    return _Counters(tally.in_docs or tally.out_docs, tally.in_bytes or tally.out_bytes, tally.busy_s)


_NOTHING = _Counters(0, 0, 0.0)


class Rates:
    """Samples of the last minute."""

    def __init__(self, bytes_done: int) -> None:
        self.next_sample_t = 0.0
        self._begin: _Sample | None = None
        self._samples: deque[_Sample] = deque([_Sample(0.0, bytes_done, {})])

    def begin(self, t: float, bytes_done: int) -> None:
        """Mark the begin of work at the first call: the time before was spent on setup."""
        if self._begin is None:
            self._begin = _Sample(t, bytes_done, {})
            self._samples = deque([self._begin])

    def sample(self, t: float, bytes_done: int, total: Tally) -> None:
        """Store a sample of all counters."""
        self.next_sample_t = t + SAMPLE_S
        stages = {number: _counters(tally) for number, tally in total.stages.items()}
        self._samples.append(_Sample(t, bytes_done, stages))
        while len(self._samples) > 2 and self._samples[1].t <= t - PACE_S:
            self._samples.popleft()

    def window(self, number: int, tally: StageTally, t: float) -> Speed:
        """Return the rates of a stage over the last few seconds."""
        return _speed(self._sample_before(t - WINDOW_S), number, tally, t)

    def overall(self, number: int, tally: StageTally, t: float) -> Speed:
        """Return the rates of a stage since work began."""
        return _speed(self._begin, number, tally, t) if self._begin is not None else Speed()

    def seconds_for(self, left_bytes: int, bytes_done: int, t: float) -> float | None:
        """Return the time for `left_bytes` at the rate of the last minute; `None` if there is no rate yet."""
        first = self._sample_before(t - PACE_S)
        moved = bytes_done - first.bytes_done
        if left_bytes <= 0:
            return 0.0
        return left_bytes * (t - first.t) / moved if moved > 0 else None

    def _sample_before(self, t: float) -> _Sample:
        """Return the latest sample at or before `t`, else the oldest sample."""
        for sample in reversed(self._samples):
            if sample.t <= t:
                return sample
        return self._samples[0]


def _speed(since: _Sample, number: int, tally: StageTally, t: float) -> Speed:
    now, then, seconds = _counters(tally), since.stages.get(number, _NOTHING), t - since.t
    if seconds <= 0:
        return Speed()
    # The counts of a unit that restarts are subtracted; a negative rate would be meaningless.
    return Speed(
        max(0.0, (now.docs - then.docs) / seconds),
        max(0.0, (now.nbytes - then.nbytes) / seconds),
        max(0.0, (now.busy_s - then.busy_s) / seconds),
    )
