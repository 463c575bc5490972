# SPDX-License-Identifier: Apache-2.0
"""The progress of a run: a snapshot, which all displays, the metrics endpoint and metrics.json show, and the displays:
a live view on a terminal, log lines elsewhere, lines of JSON, or nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Protocol, TextIO

import msgspec

from thresher.core.outlets import Branch, running_branch
from thresher.errors import UsageError, nearest

TIME_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Upper bounds of the buckets of a `TimeHistogram`; one more bucket has no bound."""


class TimeHistogram(msgspec.Struct, frozen=True):
    """Distribution of times."""

    counts: tuple[int, ...] = (0,) * (len(TIME_BOUNDS_S) + 1)
    """Number of times in each bucket; a bound belongs to the bucket that it ends."""
    sum_s: float = 0.0
    """Sum of all times."""

    @property
    def count(self) -> int:
        """Return the number of times."""
        return sum(self.counts)


class WorkerStates(msgspec.Struct, frozen=True, kw_only=True):
    """Number of workers by state. `ready` workers are either busy or idle."""

    starting: int = 0
    """Workers that are not set up yet."""
    ready: int = 0
    """Workers that are set up."""
    busy: int = 0
    """Workers that hold a task which is not parked."""
    recycled: int = 0
    """Workers so far that were replaced in good order: because of their age, their memory or their number of tasks."""
    lost: int = 0
    """Workers so far that crashed, hung, could not be set up, or were on a lost node."""

    @property
    def idle(self) -> int:
        """Return the number of workers that are set up and hold no task."""
        return self.ready - self.busy


class DeviceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An accelerator at one moment, as NVML measured it."""

    name: str
    """Its node and number, such as `local/0`."""
    memory_bytes: int = 0
    """Memory in use, by any process."""
    memory_total_bytes: int = 0
    """Memory of the device."""
    busy_ratio: float = 0.0
    """Share of the last sampling period of NVML in which the device was busy."""


class StageSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One stage at one moment. Counts include work that earlier attempts had committed, and are net: the records of a
    unit that starts again count once."""

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
    """Share of the time of the workers that can run this stage, over the window, that went into its own code."""
    queue_tasks: int = 0
    """Waiting tasks (units, for a reader)."""
    queue_bytes: int = 0
    """Payload bytes of the waiting tasks."""
    workers_busy: int = 0
    """Workers that run an op whose first stage this is."""
    workers_total: int = 0
    """Workers that can run such an op: its dedicated ones, or all shared ones."""
    created: int = 0
    """New records; what a reader read is not among them."""
    merged: int = 0
    """Records that new ones replaced."""
    tasks: int = 0
    """Calls."""
    retries: int = 0
    """Calls that were made again."""
    busy_s: float = 0.0
    """Seconds in the stage's own code, over all workers."""
    drop_reasons: dict[str, int] = {}
    """Dropped records by rule."""
    quarantine_reasons: dict[str, int] = {}
    """Quarantined records by kind of error."""
    sent: dict[str, int] = {}
    """Records that went to outlets, by name of the outlet."""
    user_counts: dict[str, int] = {}
    """Numbers that the stage counted itself, or that tasks carried to their end."""
    charts: dict[str, list[dict[str, Any]]] = {}
    """Charts of the stage, as in report.json."""
    errors: dict[str, int] = {}
    """Failures of tasks, workers and commits in this attempt, by reason; at the first stage of the op."""
    service: TimeHistogram = TimeHistogram()
    """Times that finished tasks ran, in this attempt; at the first stage of the op."""
    queue: TimeHistogram = TimeHistogram()
    """Times that finished tasks waited: from when they were emitted (those of a reader: sent to a worker) to their end,
    without the time that they ran; at the first stage of the op."""
    backpressure_s: float = 0.0
    """Seconds in which tasks waited for credit, or although a worker was free; at the first stage of the op."""
    parked_tasks: int = 0
    """Tasks that wait for credit in their workers."""
    dedicated: WorkerStates | None = None
    """Workers of this stage alone; `None` if it runs in shared workers, or inside the call of another stage."""
    workers_target: int = 0
    """Number of dedicated workers that the autoscaler wants; 0: it does not manage them."""
    scaled_up: int = 0
    """Decisions of the autoscaler for more workers."""
    scaled_down: int = 0
    """Decisions of the autoscaler for fewer workers."""
    accelerators: int = 0
    """Accelerators of its dedicated workers; one that several workers share counts once."""


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
    sent: dict[str, int] = {}
    """Records that went to each outlet."""
    messages: tuple[Message, ...] = ()
    """The most recent messages."""
    status: str = "running"
    """`running`, `finished`, `stopped` or `failed`."""
    counts: dict[str, int] = {}
    """The law of counts, as in report.json: read, created, merged, written, dropped, quarantined; sent, if any."""
    shared: WorkerStates = WorkerStates()
    """The workers that run every stage without dedicated ones."""
    devices: tuple[DeviceSnapshot, ...] = ()
    """Accelerators that NVML measures; none if there is no NVML, or if no stage needs one."""
    errors_elsewhere: dict[str, int] = {}
    """Those of `errors` that belong to no stage, by reason."""
    bottleneck: str | None = None
    """The stage that keeps its workers busiest; `None` if all have time to spare."""


MODES = ("auto", "live", "lines", "json", "none")
"""`auto` is `live` on a terminal, else `lines`; `json` is lines of JSON."""
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
    branches: tuple[Branch, ...] = ()
    """The pipeline and its outlets in the order in which they run; empty if there are no outlets."""
    outlet: str = ""
    """The outlet that the run is made for, if it is."""

    def branch(self) -> str:
        """Return which of the branches this run is; empty if there are none."""
        if not self.branches:
            return ""
        return f"branch {running_branch(self.branches) + 1}/{len(self.branches)}"


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


class WithWatcher:
    """A display, and a watcher that gets the same snapshots and nothing else."""

    def __init__(self, display: Progress, watcher: Progress) -> None:
        self._display, self._watcher = display, watcher
        self.message = display.message
        self.worker_output = display.worker_output
        self.finish = display.finish
        self.close = display.close

    def start(self, info: RunInfo) -> None:
        """Start both."""
        self._watcher.start(info)
        self._display.start(info)

    def due(self, t: float) -> bool:
        """Return True if one of them is due."""
        return self._display.due(t) or self._watcher.due(t)

    def update(self, snapshot: Snapshot) -> None:
        """Show the snapshot where it is due."""
        for shown in (self._display, self._watcher):
            if shown.due(snapshot.elapsed_s):
                shown.update(snapshot)


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
    if mode == "json":
        from thresher.observe.json_lines import JsonProgress

        return JsonProgress(stream, interval_s)
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
