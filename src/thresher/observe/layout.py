# SPDX-License-Identifier: Apache-2.0
"""Lay out the live view as lines of styled text: a pure function of a snapshot and a width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from thresher.core.arguments.sizes import show_size
from thresher.core.outlets import running_branch, with_sent
from thresher.observe.figures import created_and_passed, cut, duration, megabytes, percent, short, shorten, whole
from thresher.observe.progress import RunInfo, Snapshot, StageSnapshot

MIN_WIDTH = 40
"""Minimum width; narrower terminals cut the lines."""
MAX_WIDTH = 100
"""Maximum width, unless the name of a stage needs more."""
MESSAGES_SHOWN = 3
"""Number of messages shown."""


class Span(NamedTuple):
    """A part of a line in one style."""

    text: str  # displayed text
    style: str = ""  # name of a style, as in STYLES


Line = list[Span]

STYLES = {
    "title": "bold",
    "head": "bold",
    "quiet": "dim",
    "bar": "green",
    "rest": "dim",
    "warn": "yellow",
    "high": "red",
}
"""Styles of rich, by name."""


class _Column(NamedTuple):
    """One column of the stage table."""

    head: str  # title
    width: int  # characters, without the gap before it
    at_least: int  # shown from this terminal width on


_COLUMNS = (
    _Column("docs/s", 7, 0),
    _Column("MB/s", 6, 0),
    _Column("kept", 6, 0),
    _Column("queue", 12, 72),
    _Column("workers", 7, 60),
    _Column("quarantined", 11, 78),
)
_BRANCH_WIDTHS = (7, 10, 10)
"""Widths of the columns after the name of a branch: its state, and records sent there and written."""


def frame(info: RunInfo, snapshot: Snapshot, width: int) -> list[Line]:
    """Return the lines of the live view."""
    width = max(MIN_WIDTH, min(max(MAX_WIDTH, _full_width(snapshot)), width - 1))
    lines = [_header(info, snapshot, width), _progress(info, snapshot, width), []]
    lines += _table(snapshot, width)
    lines += _branches(info, snapshot, width)
    lines += [[], _memory(snapshot, width)]
    recent = snapshot.messages[-MESSAGES_SHOWN:]
    lines += [[Span(cut(f"{duration(m.t):>7}  {m.text}", width), "warn")] for m in recent]
    return lines


def _header(info: RunInfo, snapshot: Snapshot, width: int) -> Line:
    right = f"elapsed {duration(snapshot.elapsed_s)}"
    if snapshot.eta_s is not None:
        right += f"   ETA {duration(snapshot.eta_s)}"
    left = f"{info.name}"
    detail = f"  {info.executor}"
    room = width - len(right) - 1
    left = shorten(left, max(8, room - len(detail)))
    if len(left) + len(detail) > room:
        detail = ""
    gap = " " * max(1, width - len(left) - len(detail) - len(right))
    return [Span(left, "title"), Span(detail, "quiet"), Span(gap), Span(right)]


def _progress(info: RunInfo, snapshot: Snapshot, width: int) -> Line:
    """Return a progress bar by bytes if all input is listed; before that, the input found so far."""
    s = snapshot
    units = f"{s.units_done:,}/{s.units_listed:,} units"
    branch = info.branch() and f"   {info.branch()}"
    if s.progress_ratio is None:
        return [Span("looking for input  ", "quiet"), Span(f"{units} so far, {show_size(s.bytes_listed)}{branch}")]
    sizes = f"{show_size(s.bytes_done)} of {show_size(s.bytes_listed)}"
    if not s.bytes_listed and s.stages:
        sizes = created_and_passed(s.stages[0].out_docs, s.stages[-1].out_docs)
    phase = f"   phase {s.phase}/{s.phases}" if s.phases > 1 else ""
    right = f" {percent(s.progress_ratio):>5}{branch}{phase}   {sizes}   {units}"
    bar_width = max(10, width - len(right))
    return [*_bar(s.progress_ratio, bar_width, "bar"), Span(shorten(right, width - bar_width))]


def _bar(ratio: float, width: int, style: str) -> Line:
    filled = round(max(0.0, min(1.0, ratio)) * width)
    return [Span("━" * filled, style), Span("━" * (width - filled), "rest")]


def _full_width(snapshot: Snapshot) -> int:
    """Return the width at which no stage name is cut."""
    longest = max((len(stage.name) for stage in snapshot.stages), default=0)
    return longest + len("└ ") + 1 + sum(column.width + 1 for column in _COLUMNS)


def _table(snapshot: Snapshot, width: int) -> list[Line]:
    columns = [column for column in _COLUMNS if width >= column.at_least]
    name_width = width - sum(column.width + 1 for column in columns)
    head = f"{'stage':<{name_width}}" + "".join(f" {column.head:>{column.width}}" for column in columns)
    return [[Span(head, "head")]] + [_row(stage, columns, name_width) for stage in snapshot.stages]


def _row(stage: StageSnapshot, columns: list[_Column], name_width: int) -> Line:
    # A stage that is fused into the call of another one is shown below it, without a queue and workers.
    name = stage.name if stage.leads else f"└ {stage.name}"
    line = [Span(f"{shorten(name, name_width - 1):<{name_width}}")]
    for column in columns:
        text, style = _cell(stage, column.head)
        line.append(Span(f" {text:>{column.width}}", style))
    return line


def _cell(stage: StageSnapshot, head: str) -> tuple[str, str]:
    """Return the text of one stage in one column, and its style."""
    if head in ("queue", "workers") and not stage.leads:
        return "", ""
    if head == "queue":
        size = f"{megabytes(stage.queue_bytes)}M " if stage.queue_bytes else ""
        return f"{size}{short(stage.queue_tasks):>4}", ""
    if head == "quarantined":
        return short(stage.quarantined), "warn" if stage.quarantined else "quiet"
    return {
        "docs/s": short(stage.docs_per_s),
        "MB/s": megabytes(stage.bytes_per_s),
        "kept": percent(stage.kept_ratio),
        "workers": f"{stage.workers_busy}/{stage.workers_total}",
    }[head], ""


def _branches(info: RunInfo, snapshot: Snapshot, width: int) -> list[Line]:
    """Return the pipeline and its outlets: those that are done, the one that runs, and those to come."""
    if not info.branches:
        return []
    names = width - sum(size + 1 for size in _BRANCH_WIDTHS)
    head = ("branch", "state", "sent", "written")
    lines: list[Line] = [[], [Span(_branch_row(head, names), "head")]]
    running = running_branch(info.branches)
    for number, branch in enumerate(with_sent(info.branches, snapshot.sent)):
        state, style = ("done", "bar") if number < running else ("to come", "quiet")
        state, style = ("running", "title") if number == running else (state, style)
        counts = ["" if n is None else whole(n, 10) for n in (branch.sent, branch.written)]
        lines.append([Span(_branch_row(("  " * branch.depth + branch.name, state, *counts), names), style)])
    return lines


def _branch_row(cells: Sequence[str], names: int) -> str:
    rest = "".join(f" {cell:>{width}}" for cell, width in zip(cells[1:], _BRANCH_WIDTHS, strict=True))
    return f"{shorten(cells[0], names):<{names}}{rest}"


def _memory(snapshot: Snapshot, width: int) -> Line:
    s = snapshot
    workers = f"workers {s.workers_busy}/{s.workers_total} busy"
    if s.workers_starting:
        workers += f", {s.workers_starting} starting"
    extra = f"   errors {s.errors:,}" if s.errors else ""
    if not s.memory_limit_bytes:
        return [Span(f"memory {show_size(s.memory_bytes)}   {workers}"), Span(extra, "warn")]
    ratio = s.memory_bytes / s.memory_limit_bytes
    style = "bar" if ratio < 0.8 else "warn" if ratio < 0.95 else "high"
    right = f" {show_size(s.memory_bytes)} of {show_size(s.memory_limit_bytes)}   {workers}"
    bar_width = max(8, min(24, width - len("memory ") - len(right) - len(extra)))
    return [Span("memory "), *_bar(ratio, bar_width, style), Span(right), Span(extra, "warn")]
