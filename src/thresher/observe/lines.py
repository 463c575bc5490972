# SPDX-License-Identifier: Apache-2.0
"""Show progress without a terminal: one log line per interval."""

from __future__ import annotations

from typing import Any, TextIO

from thresher.core.arguments.sizes import counted, show_size
from thresher.core.outlets import running_branch, with_sent
from thresher.observe.figures import created_and_passed, duration, megabytes, percent, short
from thresher.observe.progress import RunInfo, Snapshot, write_text
from thresher.observe.summary import summary_text

FIRST_LINE_S = 2.0
"""Time of the first line: early, to show that the run works and how fast."""


class LineProgress:
    """Writes progress as log lines to a stream."""

    def __init__(self, stream: TextIO, interval_s: float, color: bool) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._color = color
        self._next_t = min(FIRST_LINE_S, interval_s)
        self._messages_shown = 0
        self._info: RunInfo | None = None

    def start(self, info: RunInfo) -> None:
        """Write the start line."""
        self._info = info
        parts = [f"{info.name}: executor {info.executor}"]
        parts += [branch_text(info)] if info.branches else []
        parts += [counted(info.workers, "worker")] if info.workers else []
        parts += [f"run folder {info.run_dir}"] if info.run_dir else []
        parts += [f"{counted(info.units_resumed, 'unit')} done already"] if info.units_resumed else []
        self._write(", ".join(parts))

    def due(self, t: float) -> bool:
        """Return True once per interval."""
        return t >= self._next_t

    def update(self, snapshot: Snapshot) -> None:
        """Write a progress line and the new messages, if a line is due."""
        if not self.due(snapshot.elapsed_s):
            return
        self._next_t = snapshot.elapsed_s + self._interval_s
        for message in snapshot.messages:
            if message.number > self._messages_shown:
                self.message(message.text)
                self._messages_shown = message.number
        self._show(snapshot)

    def _show(self, snapshot: Snapshot) -> None:
        """Write a progress line."""
        self._write(progress_line(snapshot, self._info))

    def message(self, text: str) -> None:
        """Write a message."""
        self._write(text)

    def worker_output(self) -> int | None:
        """Return None: workers may share the stream."""
        return None

    def finish(self, report: dict[str, Any] | None) -> None:
        """Write the summary."""
        if report is not None:
            write_text(self._stream, "\n" + summary_text(report, self._color))

    def close(self) -> None:
        """Do nothing."""

    def _write(self, text: str) -> None:
        write_text(self._stream, f"thresher: {text}\n")


def branch_text(info: RunInfo) -> str:
    """Return which branch begins, what it gets, and the branches that come after it."""
    running = running_branch(info.branches)
    sent = info.branches[running].sent
    later = [branch.name for branch in info.branches[running + 1 :]]
    text = info.branch() + (f" with {counted(sent, 'record')}" if sent is not None else "")
    return f"{text}, then {', '.join(later)}" if later else text


def progress_line(snapshot: Snapshot, info: RunInfo | None = None) -> str:
    """Return a snapshot as one line."""
    s = snapshot
    branches = info.branches if info is not None else ()
    units = f"{s.units_done:,}/{s.units_listed:,}{'' if s.listing_complete else '+'} units"
    parts = [duration(s.elapsed_s)]
    parts += [info.branch()] if info is not None and branches else []
    parts += [f"phase {s.phase}/{s.phases}"] if s.phases > 1 else []
    parts += [percent(s.progress_ratio)] if s.progress_ratio is not None else []
    parts += [units]
    if s.stages:
        reader, writer = s.stages[0], s.stages[-1]
        parts += [] if s.bytes_listed else [created_and_passed(reader.out_docs, writer.out_docs)]
        parts += [f"{short(reader.docs_per_s)} docs/s", f"{megabytes(reader.bytes_per_s)} MB/s"]
        taken = reader.in_docs or reader.out_docs + reader.quarantined
        parts += [f"kept {percent(min(1.0, writer.out_docs / taken))}"] if taken else []
    later = with_sent(branches, s.sent)[running_branch(branches) + 1 :] if branches else []
    parts += [f"to {branch.name} {short(branch.sent)}" for branch in later if branch.sent is not None]
    parts += [f"quarantined {s.quarantined:,}"] if s.quarantined else []
    parts += [f"errors {s.errors:,}"] if s.errors else []
    parts += [f"workers {s.workers_busy}/{s.workers_total}"]
    if s.memory_bytes:
        limit = f" of {show_size(s.memory_limit_bytes)}" if s.memory_limit_bytes else ""
        parts += [f"memory {show_size(s.memory_bytes)}{limit}"]
    parts += [f"ETA {duration(s.eta_s)}"] if s.eta_s is not None else []
    return "  ".join(parts)
