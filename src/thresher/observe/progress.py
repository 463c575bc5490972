# SPDX-License-Identifier: Apache-2.0
"""The progress display of a run: a live view on a terminal, log lines elsewhere, or nothing."""

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
