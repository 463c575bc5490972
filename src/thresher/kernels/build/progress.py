# SPDX-License-Identifier: Apache-2.0
"""Messages to the user while kernels are compiled: an estimate at the start, then progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence

SECONDS: dict[str, float] = {
    "edits.c4_trim": 10.8,
    "counts.characters": 0.8,
    "dedup.jaccard": 2.5,
    "dedup.bloom": 0.8,
    "dedup.minhash": 4.0,
    "dedup.passages": 4.0,
    "dedup.shingles": 2.0,
    "dedup.substrings": 3.0,
    "dedup.text_hash": 0.9,
    "edits.decontamination": 4.0,
    "edits.rewrite": 0.9,
    "counts.fineweb": 1.3,
    "counts.gopher": 2.9,
    "counts.gopher_ngrams": 3.2,
    "edits.ip_spans": 6.3,
    "json.patch": 5.5,
    "json.text": 5.8,
    "counts.letters": 1.0,
    "dedup.forest": 1.0,
    "language.byte_ngrams": 0.6,
    "language.plain_form": 0.5,
    "edits.line_end_runs": 0.9,
    "json.chunks": 1.1,
    "counts.line_lengths": 0.3,
    "counts.lines": 1.4,
    "edits.mail_spans": 1.8,
    "counts.ngrams": 6.6,
    "counts.paragraphs": 0.5,
    "counts.phrases": 2.1,
    "edits.pii": 2.8,
    "counts.positions": 1.2,
    "edits.url_spans": 1.6,
    "counts.urls": 1.0,
    "counts.word_letters": 0.7,
    "edits.word_list": 0.8,
    "counts.words": 1.1,
}
"""Processor time that compiling each module takes, as measured on one core of a server of 2023."""
USUAL_S = 2.0
"""The same for a module that is not in the table."""
START_S = 2.0
"""Importing Numba and compiling a first function."""
TRIAL_S = 2.0
"""Checking the compiled kernels with each loading method."""
_LINE_EVERY_S = 5.0
_BAR_CELLS = 24
_CLEARED = "\r\033[K"
"""Clears the current line of a terminal."""


def cost_s(modules: Iterable[str]) -> float:
    """Return the approximate processor time that compiling some modules takes."""
    return sum(SECONDS.get(module, USUAL_S) for module in modules)


def estimate_s(modules: Sequence[str], processes: int) -> float:
    """Return the approximate time that compiling some modules takes in this number of processes."""
    longest = max((cost_s([module]) for module in modules), default=0.0)
    return START_S + max(longest, cost_s(modules) / processes) + TRIAL_S


class Announcer:
    """Writes messages for the user to stderr."""

    def __init__(self, style: str = "lines") -> None:
        """`style`: `bar` on something that honours a carriage return, `lines` for a log, `none` for silence."""
        self._style = style
        self._next_s = time.monotonic() + _LINE_EVERY_S

    def line(self, text: str) -> None:
        """Write a line that stays."""
        if self._style != "none":
            _write(f"{_CLEARED if self._style == 'bar' else ''}thresher: {text}\n")

    def status(self, share: float, text: str) -> None:
        """Show progress: a bar that is redrawn in place, or a line every few seconds."""
        if self._style == "bar":
            full = round(share * _BAR_CELLS)
            _write(f"{_CLEARED}thresher: {'█' * full}{'░' * (_BAR_CELLS - full)} {share:4.0%}  {text}")
        elif self._style == "lines" and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LINE_EVERY_S
            _write(f"thresher: {text}: {share:.0%}\n")


class BuildProgress:
    """Tracks one build: what is done, and how long the rest takes at the speed measured so far."""

    def __init__(self, modules: Sequence[str], processes: int, announcer: Announcer) -> None:
        self.left = set(modules)
        """Modules that are not compiled yet."""
        self._total_s = cost_s(modules)
        self._expected_s = estimate_s(modules, processes)
        self._announcer = announcer
        self._started = time.monotonic()
        # Other processes of a busy machine take their share of the processors.
        self._guessed = max(1.0, (os.getloadavg()[0] + processes) / (os.cpu_count() or 1))
        self._slowness = self._guessed
        """Ratio of the actual to the expected time."""
        self._shown = 0.0

    def begin(self, what: str) -> None:
        """Announce the build and its estimated time."""
        about_s = max(1, round(self._expected_s * self._slowness))
        self._announcer.line(f"compiling {what} for this machine, once (about {about_s} s)")

    def done(self, module: str) -> None:
        """Record that a module is compiled."""
        self.left.discard(module)
        share = self._share()
        measured = self._elapsed_s() / (START_S + (self._expected_s - START_S - TRIAL_S) * share)
        self._slowness = share * measured + (1.0 - share) * self._guessed

    def tick(self) -> None:
        """Show the progress."""
        whole_s = self._expected_s * self._slowness
        left_s = max(whole_s - self._elapsed_s(), whole_s * (1.0 - self._share()) / 10)
        by_time = min(self._elapsed_s() / whole_s, 0.95)
        self._shown = max(self._shown, by_time)
        rest = f"about {left_s:.0f} s left" if left_s >= 1 else "nearly done"
        self._announcer.status(self._shown, f"compiling, {rest}")

    def end(self) -> None:
        """Announce the end of the build."""
        self._announcer.line(f"compiled in {self._elapsed_s():.0f} s")

    def _share(self) -> float:
        return 1.0 - cost_s(self.left) / self._total_s if self._total_s else 1.0

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
