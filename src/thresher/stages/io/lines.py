# SPDX-License-Identifier: Apache-2.0
"""Cuts a file into chunks of whole lines, in constant memory whatever the lines are.

A chunk ends behind a line feed (the last one at the end of the file). It never reaches over a border between units: a
unit owns the lines that start in its range, so the chunk before a border ends with the line that crosses it. A line
that is too large is passed over without being held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from thresher.core.records import Rows
from thresher.stages.io import compiled
from thresher.stages.io.content import BOM
from thresher.stages.io.damage import DamagedInputError

HEAD_BYTES = 1000
"""How much of a line is kept that cannot be kept whole."""
_WINDOW, _MOST_WINDOW = 2**16, 2**22
"""Line feeds are looked for in copies of stretches that grow from the one to the other."""
_NEVER = 2**62


class ByteSource(Protocol):
    """Where bytes come from."""

    def readinto(self, target: memoryview, /) -> int | None:
        """Fill the beginning of `target`, say how much; 0 at the end. May end with a `DamagedInputError`."""


@dataclass(frozen=True)
class CutRules:
    """Where to cut."""

    position: int = 0
    """Place in the unpacked file of the first byte that the source gives."""
    skip_first_line: bool = False
    """The first line began before: pass over everything up to the first line feed."""
    stop: int = _NEVER
    """Lines that start here or later belong to somebody else."""
    every: int = _NEVER
    """A border between units lies at every multiple of this."""
    expected_bytes: int = _NEVER
    """About how much there is to read, so that small files take small buffers."""
    chunk_bytes: int = 4 * 2**20
    """About how long a chunk is."""
    max_record_bytes: int = _NEVER
    """A longer line is passed over."""
    before_large: Callable[[], None] = lambda: None
    """Called before a line is held that is longer than two chunks."""


@dataclass(frozen=True)
class Lines:
    """A chunk of whole lines."""

    offset: int
    """Place of its first byte in the unpacked file."""
    buffer: memoryview
    """The lines with their line feeds."""


@dataclass(frozen=True)
class TooLarge:
    """A line that was passed over."""

    offset: int
    """Place of its first byte in the unpacked file."""
    length: int
    """Its bytes, without the line feed."""
    head: bytes
    """How it begins."""


@dataclass(frozen=True)
class Damage:
    """The end of a file that is damaged."""

    offset: int
    """Place in the unpacked file where the line begins that is not whole."""
    head: bytes
    """How that line begins."""
    error: str
    """A short word such as `truncated`."""
    message: str
    """What is wrong and what to do."""


Cut = Lines | TooLarge | Damage


class LineCutter:
    """Reads a source to its end (or to where its lines end) and gives chunks; see the module's text."""

    def __init__(self, source: ByteSource, rules: CutRules) -> None:
        self._source = source
        self._rules = rules
        self._position = rules.position
        self._hold_bytes = max(rules.max_record_bytes, HEAD_BYTES)
        self._capacity = self._wanted()
        self._buffer = memoryview(b"")
        self._filled = 0
        self._ended = False
        self._damage: DamagedInputError | None = None

    def __iter__(self) -> Iterator[Cut]:
        if self._rules.skip_first_line:
            self._pass_line()
        while self._position < self._rules.stop:
            cut = self._cut_at_border()
            if not cut:
                self._fill()
                cut = self._cut_at_border() or self._cut_at_end()
            if cut:
                yield from self._take(cut)
            elif self._ended:
                break
            elif self._filled - self._bom() > self._hold_bytes:
                yield self._pass_too_large()
            else:
                self._capacity = min(2 * self._capacity, max(self._capacity + 1, self._hold_bytes + len(BOM) + 1))
                if self._capacity > 2 * self._rules.chunk_bytes:
                    self._rules.before_large()
        if self._damage is not None and self._position < self._rules.stop:
            yield Damage(
                self._position,
                bytes(self._buffer[: self._filled][:HEAD_BYTES]),
                self._damage.error,
                self._damage.message,
            )

    def _wanted(self) -> int:
        """How many bytes to hold at a time: a chunk, less for a small file, and little beyond the end of the range."""
        rules = self._rules
        to_stop = max(0, rules.stop - self._position) + _WINDOW
        return max(1, min(rules.chunk_bytes, rules.expected_bytes + 1, to_stop))

    def _fill(self) -> None:
        """Read until the buffer is full or the source has ended. What is left of the last chunk comes first."""
        if len(self._buffer) < self._capacity and not self._ended:
            # Not `bytearray`: that would write zeros over memory that is filled in a moment.
            larger = np.empty(self._capacity, dtype=np.uint8).data
            larger[: self._filled] = self._buffer[: self._filled]
            self._buffer = larger
        while not self._ended and self._filled < len(self._buffer):
            self._filled += self._read(self._buffer[self._filled :])

    def _read(self, target: memoryview) -> int:
        try:
            count = self._source.readinto(target) or 0
        except DamagedInputError as damage:
            self._damage, count = damage, 0
        self._ended = count == 0
        return count

    def _cut_at_border(self) -> int:
        """How many bytes belong to the current unit, if the buffer reaches beyond its last line; else 0."""
        every = self._rules.every
        border = min(self._rules.stop, (self._position // every + 1) * every) - self._position
        return first_line_end(self._buffer[: self._filled], border - 1)

    def _cut_at_end(self) -> int:
        """How many bytes of the buffer are whole lines."""
        whole = self._ended and self._damage is None
        return self._filled if whole else last_line_end(self._buffer[: self._filled])

    def _take(self, cut: int) -> Iterator[Cut]:
        """Give the first `cut` bytes away; `_fill` moves the rest to a new buffer."""
        bom = self._bom()
        offset, chunk = self._position + bom, self._buffer[bom:cut]
        if 2 * cut < len(self._buffer):
            chunk = memoryview(bytes(chunk))  # a small chunk must not hold a large buffer
        self._buffer = self._buffer[cut : self._filled]
        self._position += cut
        self._filled -= cut
        self._capacity = max(self._wanted(), self._filled)
        if len(chunk) <= self._rules.max_record_bytes:
            if len(chunk):
                yield Lines(offset, chunk)
        else:
            yield from without_large_lines(offset, chunk, self._rules.max_record_bytes)

    def _bom(self) -> int:
        """Bytes of the mark at the beginning of the file that is no part of the first line."""
        return len(BOM) if self._position == 0 and self._buffer[: min(self._filled, len(BOM))] == BOM else 0

    def _pass_too_large(self) -> TooLarge:
        bom = self._bom()
        head = bytes(self._buffer[bom : bom + HEAD_BYTES])
        start = self._position + bom
        return TooLarge(start, self._pass_line() - start, head)

    def _pass_line(self) -> int:
        """Go on behind the next line feed without keeping anything; the place where the line ended."""
        self._capacity = self._wanted()
        while True:
            cut = first_line_end(self._buffer[: self._filled], 0)
            if cut or self._ended:
                break
            self._position += self._filled
            self._filled = 0
            self._fill()
        passed = cut or self._filled
        self._buffer = self._buffer[passed:]
        self._filled -= passed
        self._position += passed
        return self._position - (1 if cut else 0)


def first_line_end(view: memoryview, start: int) -> int:
    """One past the first line feed at `start` or behind; 0 when there is none."""
    window = _WINDOW
    while start < len(view):
        found = bytes(view[start : start + window]).find(b"\n")
        if found >= 0:
            return start + found + 1
        start += window
        window = min(2 * window, _MOST_WINDOW)
    return 0


def last_line_end(view: memoryview) -> int:
    """One past the last line feed; 0 when there is none."""
    end, window = len(view), _WINDOW
    while end > 0:
        start = max(0, end - window)
        found = bytes(view[start:end]).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
        window = min(2 * window, _MOST_WINDOW)
    return 0


def line_spans(view: memoryview) -> tuple[Rows, Rows]:
    """Where every line starts and where its line feed is (the last line may have none)."""
    ends = _line_feeds(np.frombuffer(view, dtype=np.uint8))
    if len(view) and view[-1] != 10:
        ends = np.append(ends, len(view))
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    return starts, ends


def _line_feeds(characters: npt.NDArray[np.uint8]) -> Rows:
    """Where the line feeds are; a large buffer is looked through by stretches, as the answers take as many bytes."""
    kernels = compiled.kernels()
    if kernels is not None:
        found: Rows = kernels.find_line_feeds(characters)
        return found
    if len(characters) <= _MOST_WINDOW:
        return np.flatnonzero(characters == 10)
    stretches = range(0, len(characters), _MOST_WINDOW)
    return np.concatenate([np.flatnonzero(characters[s : s + _MOST_WINDOW] == 10) + s for s in stretches])


def record_spans(view: memoryview) -> tuple[Rows, Rows]:
    """Where the lines start and end that hold more than white space."""
    starts, ends = line_spans(view)
    first = np.frombuffer(view, dtype=np.uint8)[starts]
    doubtful = np.flatnonzero((starts == ends) | (first <= 32))
    if not len(doubtful):
        return starts, ends
    kept = starts < ends
    for row in doubtful.tolist():
        kept[row] = kept[row] and not bytes(view[starts[row] : ends[row]]).isspace()
    return starts[kept], ends[kept]


def without_large_lines(offset: int, chunk: memoryview, max_record_bytes: int) -> Iterator[Cut]:
    """A chunk cut around its lines that are too large."""
    starts, ends = line_spans(chunk)
    start = 0
    for row in np.flatnonzero(ends - starts > max_record_bytes).tolist():
        first, last = int(starts[row]), int(ends[row])
        if first > start:
            yield Lines(offset + start, chunk[start:first])
        yield TooLarge(offset + first, last - first, bytes(chunk[first:last][:HEAD_BYTES]))
        start = last + 1
    if start < len(chunk):
        yield Lines(offset + start, chunk[start:])
