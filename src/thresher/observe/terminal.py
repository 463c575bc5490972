# SPDX-License-Identifier: Apache-2.0
"""The live view on a terminal. rich is imported when the view starts, in parallel to the start of workers."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Any, TextIO

from thresher.observe.layout import STYLES, Line, Span, frame
from thresher.observe.progress import RunInfo, Snapshot, write_text
from thresher.observe.summary import summary_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

REFRESH_S = 0.24
"""Time between two frames: a little less than the quarter second between two snapshots of the driver."""
PIPE_BYTES = 2**20
"""Capacity of the pipe between two frames; a worker that prints more waits for the next frame."""
_F_SETPIPE_SZ = 1031


class LiveProgress:
    """Redraws a frame in place four times a second. Output of the driver and of workers appears above it."""

    def __init__(self, stream: TextIO, color: bool) -> None:
        self._stream = stream
        self._color = color
        self._next_t = 0.0
        self._console: Console | None = None
        self._live: Live | None = None
        self._info: RunInfo | None = None
        self._prints: PrintPipe | None = None

    def start(self, info: RunInfo) -> None:
        """Start the live view."""
        self._info = info
        self._console = make_console(self._stream, self._color)
        # Stages that run in this process may stop in a debugger, which needs the real stdout for its prompt.
        self._live = start_live(self._console, prints_above=info.executor != "serial")

    def due(self, t: float) -> bool:
        """Return True four times a second."""
        return t >= self._next_t

    def update(self, snapshot: Snapshot) -> None:
        """Draw a frame, if one is due."""
        if not self.due(snapshot.elapsed_s):
            return
        self._next_t = snapshot.elapsed_s + REFRESH_S
        self._show_prints()
        # A closed terminal must not fail the run.
        with contextlib.suppress(OSError, ValueError):
            self._draw(snapshot)

    def message(self, text: str) -> None:
        """Print a line above the live view."""
        if self._console is None:
            write_text(self._stream, text + "\n")
            return
        from rich.text import Text

        with contextlib.suppress(OSError, ValueError):
            self._console.print(Text.from_ansi(text), soft_wrap=True)

    def worker_output(self) -> int | None:
        """Return a pipe whose lines appear above the live view with the next frame."""
        if self._prints is None:
            self._prints = PrintPipe()
        return self._prints.write_fd

    def finish(self, report: dict[str, Any] | None) -> None:
        """Remove the live view and show the summary in its place."""
        self._show_prints(include_partial=True)
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError, ValueError):
                live.stop()
        self._console = None
        if report is not None:
            write_text(self._stream, summary_text(report, self._color))

    def close(self) -> None:
        """Show the last output of workers."""
        self._show_prints(include_partial=True)
        if self._prints is not None:
            self._prints.close()
            self._prints = None

    def _show_prints(self, *, include_partial: bool = False) -> None:
        lines = self._prints.lines(include_partial=include_partial) if self._prints is not None else []
        if lines:
            self.message("\n".join(lines))

    def _draw(self, snapshot: Snapshot) -> None:
        if self._live is None or self._console is None or self._info is None:
            return
        lines = frame(self._info, snapshot, self._console.width)
        bar = self._prints.bar() if self._prints is not None else ""
        lines += [[Span(bar)]] if bar else []
        # A frame that is higher than the terminal cannot be redrawn in place: leave out the end of the table.
        room = max(4, self._console.height - 1)
        if len(lines) > room:
            lines = [*lines[: room - 2], *lines[-2:]]
        self._live.update(to_text(lines), refresh=True)


def make_console(stream: TextIO, color: bool) -> Console:
    """Return a console that writes to `stream`."""
    from rich.console import Console
    from rich.theme import Theme

    return Console(file=stream, no_color=not color, highlight=False, theme=Theme(STYLES), force_terminal=True)


def start_live(console: Console, *, prints_above: bool) -> Live:
    """Start an area at the end of the terminal that is redrawn in place and removed at the end.

    `prints_above`: output of this process is shown above the area.
    """
    from rich.live import Live

    # No thread of its own: the driver draws when it has time, and never in the middle of a fork.
    live = Live(
        console=console,
        auto_refresh=False,
        transient=True,
        vertical_overflow="crop",
        redirect_stdout=prints_above,
        redirect_stderr=prints_above,
    )
    live.start()
    return live


def to_text(lines: list[Line]) -> Text:
    """Return lines as text of rich."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for span in line:
            text.append(span.text, style=span.style or None)
    return text


class PrintPipe:
    """A pipe for the output of workers, which is shown above the live view. The driver holds both ends."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        # Only this end: a worker must block when the pipe is full, not fail.
        os.set_blocking(self._read_fd, False)
        with contextlib.suppress(OSError):  # above the limit of this user: the pipe keeps its 64 kB
            fcntl.fcntl(self.write_fd, _F_SETPIPE_SZ, PIPE_BYTES)
        self._unfinished = b""

    def lines(self, *, include_partial: bool = False) -> list[str]:
        """Return the lines printed since the last call; `include_partial`: also an unfinished one."""
        data = self._unfinished
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._read_fd, PIPE_BYTES):
                data += piece
        whole, _, rest = data.rpartition(b"\n")
        # Of a line that is redrawn in place, such as a progress bar, only the last state is kept.
        rest = b"\r" * (b"\r" in rest) + rest.rstrip(b"\r").rpartition(b"\r")[2]
        self._unfinished = b"" if include_partial else rest
        if include_partial and rest and not rest.startswith(b"\r"):
            whole = whole + b"\n" + rest if whole else rest
        return [_last_redraw(line) for line in whole.decode("utf-8", "replace").split("\n")] if whole else []

    def bar(self) -> str:
        """Return the unfinished line that is redrawn in place, or an empty text."""
        return _last_redraw(self._unfinished.decode("utf-8", "replace")) if b"\r" in self._unfinished else ""

    def close(self) -> None:
        """Close both ends. May be called twice."""
        for fd in (self._read_fd, self.write_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._read_fd = self.write_fd = -1


def _last_redraw(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2].removeprefix("\033[K")
