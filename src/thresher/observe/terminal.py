# SPDX-License-Identifier: Apache-2.0
"""The live view on a terminal. rich is imported when the view starts, while workers are starting too."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TextIO

from thresher.observe.layout import STYLES, Line, frame
from thresher.observe.print_pipe import PrintPipe
from thresher.observe.progress import RunInfo, write_text
from thresher.observe.snapshot import Snapshot
from thresher.observe.summary import summary_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

REFRESH_S = 0.24
"""Time between two pictures: a little less than the quarter second at which a driver offers them."""


class LiveProgress:
    """Draws a picture four times a second, in place. What driver and workers print meanwhile appears above it."""

    def __init__(self, stream: TextIO, color: bool) -> None:
        self._stream = stream
        self._color = color
        self._next_t = 0.0
        self._console: Console | None = None
        self._live: Live | None = None
        self._info: RunInfo | None = None
        self._prints: PrintPipe | None = None

    def start(self, info: RunInfo) -> None:
        """Take the terminal over."""
        self._info = info
        self._console = make_console(self._stream, self._color)
        # Stages that run in this very process may stop in a debugger, which needs the real stdout for its prompt.
        self._live = start_live(self._console, prints_above=info.executor != "serial")

    def due(self, t: float) -> bool:
        """Four times a second."""
        return t >= self._next_t

    def update(self, snapshot: Snapshot) -> None:
        """Draw a picture; a snapshot that comes too early is left out."""
        if not self.due(snapshot.elapsed_s):
            return
        self._next_t = snapshot.elapsed_s + REFRESH_S
        self._show_prints()
        # A terminal that went away is no reason to fail a run.
        with contextlib.suppress(OSError, ValueError):
            self._draw(snapshot)

    def message(self, text: str) -> None:
        """Print a line above the picture."""
        if self._console is None:
            write_text(self._stream, text + "\n")
            return
        from rich.text import Text

        with contextlib.suppress(OSError, ValueError):
            self._console.print(Text.from_ansi(text), soft_wrap=True)

    def worker_output(self) -> int | None:
        """A pipe: what workers print appears above the picture, with the next one."""
        if self._prints is None:
            self._prints = PrintPipe()
        return self._prints.write_fd

    def finish(self, report: dict[str, Any] | None) -> None:
        """Take the picture away and give the terminal back; show the summary in its place."""
        self._show_prints(all_of_it=True)
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError, ValueError):
                live.stop()
        self._console = None
        if report is not None:
            write_text(self._stream, summary_text(report, self._color))

    def close(self) -> None:
        """Show what workers printed at their end."""
        self._show_prints(all_of_it=True)
        if self._prints is not None:
            self._prints.close()
            self._prints = None

    def _show_prints(self, *, all_of_it: bool = False) -> None:
        lines = self._prints.lines(all_of_it=all_of_it) if self._prints is not None else []
        if lines:
            self.message("\n".join(lines))

    def _draw(self, snapshot: Snapshot) -> None:
        if self._live is None or self._console is None or self._info is None:
            return
        lines = frame(self._info, snapshot, self._console.width)
        # A picture that is higher than the terminal cannot be drawn in place: leave out the end of the table.
        room = max(4, self._console.height - 1)
        if len(lines) > room:
            lines = [*lines[: room - 2], *lines[-2:]]
        self._live.update(to_text(lines), refresh=True)


def make_console(stream: TextIO, color: bool) -> Console:
    """A console that draws on `stream`."""
    from rich.console import Console
    from rich.theme import Theme

    return Console(file=stream, no_color=not color, highlight=False, theme=Theme(STYLES), force_terminal=True)


def start_live(console: Console, *, prints_above: bool) -> Live:
    """An area at the end of the terminal that is drawn again and again, and is empty when it ends.

    `prints_above`: what this process prints meanwhile is shown above the area, not in it.
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
    """Lines as rich shows them."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for span in line:
            text.append(span.text, style=span.style or None)
    return text
