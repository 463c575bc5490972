# SPDX-License-Identifier: Apache-2.0
"""Progress of commands that read a lot: one line that is written over on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time

from thresher.observe.figures import megabytes, percent

_ON_TERMINAL_S, _ELSEWHERE_S = 0.2, 10.0


class ProgressNote:
    """Says how far a command is, on stderr; nothing for one that is done soon."""

    def __init__(self, what: str, quiet: bool = False) -> None:
        self._what = what
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._every_s = _ON_TERMINAL_S if self._live else _ELSEWHERE_S
        self._told_at = time.monotonic()
        self._shown = False

    def update(self, done_bytes: int, total_bytes: int) -> None:
        """So much is done."""
        now = time.monotonic()
        if self._quiet or now - self._told_at < self._every_s:
            return
        self._told_at = now
        share = percent(min(1.0, done_bytes / total_bytes)) if total_bytes else "-"
        text = f"thresher: {self._what}: {megabytes(done_bytes)} of {megabytes(total_bytes)} MB, {share}"
        sys.stderr.write(f"\r\033[K{text}" if self._live else f"{text}\n")
        sys.stderr.flush()
        self._shown = True

    def close(self) -> None:
        """Take the line away."""
        if self._live and self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
