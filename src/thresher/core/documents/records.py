# SPDX-License-Identifier: Apache-2.0
"""The parts of a batch beside its table: the lines that documents were read from, texts that are not Arrow yet, and the
rows that are left of a user's data frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from thresher.core.records.record_ids import RecordIds as RecordIds
from thresher.core.records.record_ids import Rows as Rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FoundTexts:
    """The texts of one field, found when the lines were checked."""

    field: str
    """The name of the field."""
    data: npt.NDArray[np.uint8]
    """The texts as UTF-8, with room behind them, as kernels want them."""
    starts: Rows
    """Start of the text of each line."""
    ends: Rows
    """End of the text of each line."""
    statuses: npt.NDArray[np.uint8]
    """Kind of value that each line holds under the field; see `thresher.kernels.json.text`."""

    def take(self, rows: Rows) -> FoundTexts:
        """Return the texts of some lines, in the same buffer."""
        return FoundTexts(self.field, self.data, self.starts[rows], self.ends[rows], self.statuses[rows])


class RawLines:
    """The lines that records were read from: one buffer, and where each line starts and ends in it."""

    __slots__ = ("_view", "buffer", "ends", "found", "nbytes", "starts")

    def __init__(self, buffer: Any, starts: Rows, ends: Rows, found: FoundTexts | None = None) -> None:
        """`buffer` is anything that offers its bytes (an Arrow buffer, bytes, a map of shared memory). `found`: the
        texts of a field, where they are known already; they do not travel to another process."""
        self.buffer = buffer
        self.starts = starts
        self.ends = ends
        self.found = found
        self._view = memoryview(buffer)
        self.nbytes = int(ends.sum() - starts.sum())
        """Bytes of the lines themselves."""

    def __len__(self) -> int:
        return len(self.starts)

    def line(self, row: int) -> memoryview:
        """Return one line, without its line feed."""
        return self._view[int(self.starts[row]) : int(self.ends[row])]

    def lines(self) -> list[memoryview]:
        """Return all lines."""
        view = self._view
        return [view[s:e] for s, e in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    def take(self, rows: Rows) -> RawLines:
        """Return some of the lines, in the same buffer."""
        found = None if self.found is None else self.found.take(rows)
        return RawLines(self.buffer, self.starts[rows], self.ends[rows], found)

    def compact(self) -> RawLines:
        """Return the same lines in a buffer that holds little else, so that dropped ones are not kept."""
        held = self.nbytes
        if self._view.nbytes <= 2 * held + 4096:
            return self
        return RawLines.join(self.lines())

    def blob(self) -> memoryview | bytes:
        """Return all lines, each followed by a line feed: a slice of the buffer if none between them was dropped."""
        count = len(self.starts)
        if count == 0:
            return b""
        first, last = int(self.starts[0]), int(self.ends[-1])
        gaps_are_line_feeds = bool((self.starts[1:] == self.ends[:-1] + 1).all())
        if gaps_are_line_feeds and last < self._view.nbytes and self._view[last] == 10:
            return self._view[first : last + 1]
        return b"\n".join([*self._stretches(), b""])

    def _stretches(self) -> list[memoryview]:
        """Return the lines; those that are adjacent in the buffer are one piece."""
        breaks = np.flatnonzero(self.starts[1:] != self.ends[:-1] + 1)
        view = self._view
        starts = self.starts[np.concatenate(([0], breaks + 1))].tolist()
        ends = self.ends[np.append(breaks, len(self.ends) - 1)].tolist()
        return [view[start:end] for start, end in zip(starts, ends, strict=True)]

    @staticmethod
    def join(lines: Sequence[bytes | memoryview]) -> RawLines:
        """Return lines that were apart, copied into one buffer."""
        lengths = np.fromiter((len(line) for line in lines), dtype=np.int64, count=len(lines))
        ends = np.cumsum(lengths + 1) - 1
        return RawLines(b"\n".join([*lines, b""]), ends - lengths, ends)

    def __reduce__(self) -> tuple[Any, ...]:
        small = self.compact()
        return _restore_lines, (Packet(small.buffer), small.starts, small.ends)


def _restore_lines(packet: Packet, starts: Rows, ends: Rows) -> RawLines:
    return RawLines(packet.buffer, starts, ends)


class Packet:
    """Bytes that travel beside a pickle where the protocol can do that, and inside it where it cannot."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Any) -> None:
        """`buffer` is anything that offers its bytes."""
        self.buffer = buffer

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Packet, (PickleBuffer(self.buffer) if int(protocol) >= 5 else bytes(self.buffer),)


class LateColumn(Protocol):
    """Texts of the records of a batch in a form of the stage's own, which becomes Arrow or lines on demand."""

    def take(self, index: Rows) -> LateColumn:
        """Return the texts of some of the records."""
        ...

    def to_arrow(self) -> pa.Array:
        """Return the texts as Arrow's large strings."""
        ...

    def patch_lines(self, raw: RawLines, name: str, changed: npt.NDArray[Any] | None) -> list[bytes | memoryview]:
        """Return the lines of the records, with these texts as the values of `name` where they are changed (`None`: in
        all of them), byte for byte as `json_records.patch_lines` writes them."""
        ...


@dataclass(frozen=True)
class FrameTrace:
    """Rows of the user's data that a batch without ids still holds."""

    size: int
    """Rows that were handed over."""
    labels: Rows | None
    """The index of the data frame that was handed over, where it is one with whole numbers."""
    rows: Rows
    """The rows that are left, in order."""

    @staticmethod
    def start(data: Any, size: int) -> FrameTrace:
        """Return the trace of data that was just handed over."""
        return FrameTrace(size, _frame_labels(data), np.arange(size, dtype=np.int64))

    def take(self, rows: Rows) -> FrameTrace:
        """Return the trace of some of the rows."""
        return FrameTrace(self.size, self.labels, self.rows[rows])


def _frame_labels(data: Any) -> Rows | None:
    """Return the row numbers of a data frame; an index with a name holds values (a group's key), not row numbers."""
    index = getattr(data, "index", None) if hasattr(data, "columns") else None
    kind = getattr(getattr(index, "dtype", None), "kind", "")
    if index is None or kind not in ("i", "u") or index.name is not None:
        return None
    return np.asarray(index.to_numpy(), dtype=np.int64)
