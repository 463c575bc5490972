# SPDX-License-Identifier: Apache-2.0
"""The progress of a run: a snapshot, which the live view, the log lines and metrics.json show, rates over a sliding
window, and the displays: a live view on a terminal, log lines elsewhere, or nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from typing import Any, NamedTuple, Protocol, TextIO

import msgspec

from thresher.core.tally import StageTally, Tally
from thresher.errors import UsageError, nearest

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


MODES = ("auto", "live", "lines", "none")
"""`auto` is `live` on a terminal, else `lines`."""
LOGGING_INTERVAL_S = 10.0
"""Seconds between log lines, unless the executor sets `logging_interval`."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a run that are known before it starts."""

    name: str
    """The name of the pipeline."""
    executor: str
    """The name of the executor."""
    run_dir: str | None = None
    """The run folder, if there is one."""
    workers: int = 0
    """Number of workers that will be started."""
    units_resumed: int = 0
    """Units that an earlier attempt had committed."""


class Progress(Protocol):
    """Interface of a progress display. Methods never fail because the display fails."""

    def start(self, info: RunInfo) -> None:
        """Start the display."""

    def due(self, t: float) -> bool:
        """Return True if a snapshot taken `t` seconds after the start would be shown. Cheap enough for every round."""

    def update(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""

    def message(self, text: str) -> None:
        """Show a message at once."""

    def worker_output(self) -> int | None:
        """Return the descriptor for stdout and stderr of workers; `None`: they share those of the driver."""

    def finish(self, report: dict[str, Any] | None) -> None:
        """End the display and show the summary of the report, if given. May be called twice, and without `start`."""

    def close(self) -> None:
        """Show the last output of the workers, after all of them have ended. May be called twice."""


class NoProgress:
    """Shows nothing."""

    def start(self, info: RunInfo) -> None:
        """Do nothing."""

    def due(self, t: float) -> bool:
        """Return False."""
        return False

    def update(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def message(self, text: str) -> None:
        """Do nothing."""

    def worker_output(self) -> int | None:
        """Return None: workers share the streams of the driver."""
        return None

    def finish(self, report: dict[str, Any] | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def make_progress(
    mode: str = "auto", stream: TextIO | None = None, *, interval_s: float = LOGGING_INTERVAL_S
) -> Progress:
    """Return the display for `mode` on `stream` (stderr by default); `interval_s` is the time between log lines."""
    if mode not in MODES:
        legal = ", ".join(MODES)
        raise UsageError(f"progress: {mode!r} is not a kind of view; legal are {legal}.{nearest(mode, MODES)}")
    stream = sys.stderr if stream is None else stream
    if mode == "auto":
        mode = "live" if is_terminal(stream) else "lines"
    if mode == "live":
        from thresher.observe.terminal import LiveProgress

        return LiveProgress(stream, wants_color(stream))
    if mode == "lines":
        from thresher.observe.lines import LineProgress

        return LineProgress(stream, interval_s, wants_color(stream))
    return NoProgress()


def is_terminal(stream: TextIO) -> bool:
    """Return True if the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def wants_color(stream: TextIO) -> bool:
    """Return True if the stream is a terminal and NO_COLOR is not set."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def write_text(stream: TextIO, text: str) -> None:
    """Write and flush; ignore a closed stream, which must not fail the run."""
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()
