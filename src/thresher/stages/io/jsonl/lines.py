# SPDX-License-Identifier: Apache-2.0
"""Splitting of a file into chunks of whole lines, in constant memory whatever the lines are.

A chunk ends after a line feed (the last one at the end of the file). It never crosses a boundary between units: a unit
owns the lines that start in its range, so the chunk before a boundary ends with the line that crosses it. A line that
is too large is skipped without being held in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from thresher.core.documents.records import Rows
from thresher.core.task import RawChunk
from thresher.stages.io.compression.content import BOM
from thresher.stages.io.damage import DamagedInputError


def loaded_kernels() -> Any | None:
    """Return the module `thresher.kernels.json.text` if another stage of the pipeline has loaded it completely.

    Loading it for reading alone does not pay: libraries do the same, somewhat slower.
    """
    found = sys.modules.get("thresher.kernels.json.text")
    return found if getattr(found, "READY", False) else None


HEAD_BYTES = 1000
"""Bytes kept of a line that cannot be kept as a whole."""
_WINDOW, _MOST_WINDOW = 2**16, 2**22
"""Line feeds are searched for in copied windows that grow from the first size to the second."""
_NEVER = 2**62


class ByteSource(Protocol):
    """A source of bytes."""

    def readinto(self, target: memoryview, /) -> int | None:
        """Fill the start of `target` and return the number of bytes; 0 at the end. May raise a `DamagedInputError`."""


@dataclass(frozen=True)
class CutRules:
    """The positions at which to split."""

    position: int = 0
    """Position in the unpacked file of the first byte of the source."""
    skip_first_line: bool = False
    """Skip everything up to the first line feed: the first line started before."""
    stop: int = _NEVER
    """Lines that start here or later belong to another unit."""
    every: int = _NEVER
    """A boundary between units is at every multiple of this."""
    expected_bytes: int = _NEVER
    """Approximate bytes to read, so that small files use small buffers."""
    chunk_bytes: int = 4 * 2**20
    """Approximate length of a chunk."""
    max_record_bytes: int = _NEVER
    """A longer line is skipped."""
    before_large: Callable[[], None] = lambda: None
    """Called before a line longer than two chunks is held in memory."""


@dataclass(frozen=True)
class Lines:
    """A chunk of whole lines."""

    offset: int
    """Position of its first byte in the unpacked file."""
    buffer: memoryview
    """The lines with their line feeds."""


@dataclass(frozen=True)
class TooLarge:
    """A skipped line."""

    offset: int
    """Position of its first byte in the unpacked file."""
    length: int
    """Its length in bytes, without the line feed."""
    head: bytes
    """Its first bytes."""


@dataclass(frozen=True)
class Damage:
    """The end of a damaged file."""

    offset: int
    """Position in the unpacked file of the incomplete line."""
    head: bytes
    """The first bytes of that line."""
    error: str
    """A short code such as `truncated`."""
    message: str
    """The problem and the next step."""


Cut = Lines | TooLarge | Damage


class LineChunk(RawChunk):
    """Whole lines that are still to be parsed."""

    has_constant_buffers = True

    def halves(self) -> list[RawChunk]:
        """Return the chunk cut at the line end nearest before its middle, or else after it; empty for a single line."""
        view = memoryview(self.data).cast("B")
        middle = view.nbytes // 2
        middle = last_line_end(view[:middle]) or first_line_end(view, middle)
        if not 0 < middle < view.nbytes:
            return []
        cuts = ((0, view[:middle]), (middle, view[middle:]))
        return [LineChunk(part, self.offset + start, self.source, self.dataset_name) for start, part in cuts]


class LineCutter:
    """Iterates over a source and yields chunks; see the module docstring."""

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
            self._skip_line()
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
                yield self._skip_too_large()
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
        """Return how many bytes to hold: a chunk, less for a small file, and little beyond the end of the range."""
        rules = self._rules
        to_stop = max(0, rules.stop - self._position) + _WINDOW
        return max(1, min(rules.chunk_bytes, rules.expected_bytes + 1, to_stop))

    def _fill(self) -> None:
        """Read until the buffer is full or the source has ended, after the rest of the last chunk."""
        if len(self._buffer) < self._capacity and not self._ended:
            # Not `bytearray`: that would zero memory that is about to be filled.
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
        """Return how many bytes belong to the current unit, if the buffer reaches beyond its last line; else 0."""
        every = self._rules.every
        border = min(self._rules.stop, (self._position // every + 1) * every) - self._position
        return first_line_end(self._buffer[: self._filled], border - 1)

    def _cut_at_end(self) -> int:
        """Return how many bytes of the buffer are whole lines."""
        whole = self._ended and self._damage is None
        return self._filled if whole else last_line_end(self._buffer[: self._filled])

    def _take(self, cut: int) -> Iterator[Cut]:
        """Yield the first `cut` bytes; `_fill` moves the rest to a new buffer."""
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
        """Return the length of the byte order mark at the start of the file, which is not part of the first line."""
        return len(BOM) if self._position == 0 and self._buffer[: min(self._filled, len(BOM))] == BOM else 0

    def _skip_too_large(self) -> TooLarge:
        bom = self._bom()
        head = bytes(self._buffer[bom : bom + HEAD_BYTES])
        start = self._position + bom
        return TooLarge(start, self._skip_line() - start, head)

    def _skip_line(self) -> int:
        """Skip to the byte after the next line feed, and return the position where the line ended."""
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
    """Return the position after the first line feed at `start` or later; 0 if there is none."""
    window = _WINDOW
    while start < len(view):
        found = bytes(view[start : start + window]).find(b"\n")
        if found >= 0:
            return start + found + 1
        start += window
        window = min(2 * window, _MOST_WINDOW)
    return 0


def last_line_end(view: memoryview) -> int:
    """Return the position after the last line feed; 0 if there is none."""
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
    """Return the start of every line and the position of its line feed (the last line may have none)."""
    ends = _line_feeds(np.frombuffer(view, dtype=np.uint8))
    if len(view) and view[-1] != 10:
        ends = np.append(ends, len(view))
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    return starts, ends


def _line_feeds(characters: npt.NDArray[np.uint8]) -> Rows:
    """Return the positions of line feeds; a large buffer is searched in windows, because the mask takes as many
    bytes."""
    kernels = loaded_kernels()
    if kernels is not None:
        found: Rows = kernels.find_line_feeds(characters)
        return found
    if len(characters) <= _MOST_WINDOW:
        return np.flatnonzero(characters == 10)
    stretches = range(0, len(characters), _MOST_WINDOW)
    return np.concatenate([np.flatnonzero(characters[s : s + _MOST_WINDOW] == 10) + s for s in stretches])


def record_spans(view: memoryview) -> tuple[Rows, Rows]:
    """Return the starts and ends of the lines that are not blank."""
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
    """Yield a chunk split around its lines that are too large."""
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
