# SPDX-License-Identifier: Apache-2.0
"""How a run shows its progress: a live view on a terminal, log lines elsewhere, or nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Protocol, TextIO

import msgspec

from thresher.errors import UsageError, nearest
from thresher.observe.snapshot import Snapshot

MODES = ("auto", "live", "lines", "none")
"""`auto` is `live` on a terminal, else `lines`."""
LOGGING_INTERVAL_S = 10.0
"""Seconds between log lines, unless the executor's `logging_interval` says otherwise."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run before it begins."""

    name: str
    """The name of the pipeline."""
    executor: str
    """The name of the executor."""
    run_dir: str | None = None
    """The run folder, if there is one."""
    workers: int = 0
    """Workers that will be started."""
    units_resumed: int = 0
    """Units that an earlier attempt had committed."""


class Progress(Protocol):
    """What a driver tells while it runs. Methods never fail because of what they show."""

    def start(self, info: RunInfo) -> None:
        """The run begins."""

    def due(self, t: float) -> bool:
        """Whether a snapshot taken `t` seconds after the start would be shown. Cheap: ask in every round."""

    def update(self, snapshot: Snapshot) -> None:
        """Show how the run is doing."""

    def message(self, text: str) -> None:
        """Show something that people should know, now."""

    def worker_output(self) -> int | None:
        """The descriptor that workers should have as stdout and stderr; `None`: those of the driver are fine."""

    def finish(self, report: dict[str, Any] | None) -> None:
        """The run is over; with a report, show its summary. May be called twice, and without `start`."""

    def close(self) -> None:
        """All workers have ended: show what they printed last. May be called twice."""


class NoProgress:
    """Shows nothing."""

    def start(self, info: RunInfo) -> None:
        """Nothing to show."""

    def due(self, t: float) -> bool:
        """Never."""
        return False

    def update(self, snapshot: Snapshot) -> None:
        """Nothing to show."""

    def message(self, text: str) -> None:
        """Nothing to show."""

    def worker_output(self) -> int | None:
        """There is no view that prints could tear."""
        return None

    def finish(self, report: dict[str, Any] | None) -> None:
        """Nothing to show."""

    def close(self) -> None:
        """Nothing to show."""


def make_progress(
    mode: str = "auto", stream: TextIO | None = None, *, interval_s: float = LOGGING_INTERVAL_S
) -> Progress:
    """The view that `mode` names, on `stream` (stderr by default); `interval_s` is the time between log lines."""
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
    """Whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def wants_color(stream: TextIO) -> bool:
    """Colour is for terminals, and for people who did not set NO_COLOR."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def write_text(stream: TextIO, text: str) -> None:
    """Write and flush; a reader that went away is no reason to fail a run."""
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()
