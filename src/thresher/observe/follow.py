# SPDX-License-Identifier: Apache-2.0
"""Follow a run by its event log, while it is written or afterwards: the same figures that the run itself shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from thresher.errors import CheckFailedError
from thresher.observe.event_log import decode_line
from thresher.observe.metrics import Metrics, Restored
from thresher.observe.progress import RunInfo, Snapshot
from thresher.scheduler.actions import AnyAction
from thresher.scheduler.events import AnyEvent
from thresher.scheduler.model import OpSpec, RunSpec

HEADER_BYTES = 18
"""Largest header of a zstd frame; a frame with a line is longer."""
MOST_BYTES = 256 * 2**20
"""Largest frame that is unpacked. A log has frames of about a megabyte."""


class _PlanNames(msgspec.Struct):
    """The plan in the start line of a log."""

    name: str
    stages: tuple[str, ...]
    phases: int = 1


class _StartFacts(msgspec.Struct):
    """Part of a start line that metrics need."""

    plan: _PlanNames
    ops: tuple[OpSpec, ...]
    executor: str = ""
    restored: Restored = Restored()


class _StartLine(msgspec.Struct):
    start: _StartFacts


class FollowedRun:
    """The figures of one attempt, folded from its event log. `read` goes on where it ended.

    `watch` gets every event and action, with its time, beside the figures.
    """

    def __init__(self, folder: Path | str, watch: Callable[[float, AnyEvent | AnyAction], None] | None = None) -> None:
        self._lines = LogTail(folder)
        self._watch = watch
        self._metrics: Metrics | None = None
        self.info: RunInfo | None = None
        """Facts about the run from the start of the log; `None` before its first line is written."""
        self.ops: tuple[OpSpec, ...] = ()
        """The calls of the plan."""
        self.t = 0.0
        """Time of the last line, in seconds since the start of the attempt."""

    def read(self) -> Snapshot | None:
        """Read what was written since the last call, and return the state of the run; `None` before the first line."""
        for line in self._lines.read():
            if self._metrics is None:
                self._begin(line)
                continue
            try:
                _, t, item = decode_line(line)
            except ValueError as error:
                raise CheckFailedError(f"the event log has a line that cannot be read: {error}") from error
            if not isinstance(item, RunSpec):
                self.t = t
                self._metrics.update(t, item)
                if self._watch is not None:
                    self._watch(t, item)
        return None if self._metrics is None else self._metrics.snapshot(self.t)

    def _begin(self, line: bytes) -> None:
        try:
            facts = msgspec.json.decode(line, type=_StartLine, strict=False).start
        except ValueError as error:
            raise CheckFailedError(f"the event log does not begin with a start line: {error}") from error
        self.info = RunInfo(name=facts.plan.name, executor=facts.executor, units_resumed=facts.restored.units)
        self.ops = facts.ops
        self._metrics = Metrics(facts.plan.stages, facts.ops, facts.restored, facts.plan.phases)


class LogTail:
    """Reads the lines of an event log that another process may still be writing."""

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)
        self._segment = 0
        self._offset = 0  # bytes of the segment that were read: whole frames

    def read(self) -> Iterator[bytes]:
        """Yield the lines of all frames that were finished since the last call."""
        while True:
            path = self._folder / f"{self._segment:06d}.jsonl.zst"
            has_next = (self._folder / f"{self._segment + 1:06d}.jsonl.zst").exists()  # before this one is read
            try:
                with path.open("rb") as packed:
                    packed.seek(self._offset)
                    data = packed.read()
            except FileNotFoundError:
                return
            yield from self._frames(data)
            if not has_next:
                return
            self._segment, self._offset = self._segment + 1, 0

    def _frames(self, data: bytes) -> Iterator[bytes]:
        from zstandard import ZstdDecompressor, ZstdError, frame_content_size

        unpack = ZstdDecompressor()
        while len(data) > HEADER_BYTES:
            frame = unpack.decompressobj()
            try:
                if not 0 <= frame_content_size(data) <= MOST_BYTES:
                    raise ZstdError("a frame has no size, or is too large")
                text = frame.decompress(data)
            except ZstdError as error:
                raise CheckFailedError(f"the event log in {self._folder} is damaged: {error}") from error
            if not frame.eof:  # not finished: the next call reads it again
                return
            self._offset += len(data) - len(frame.unused_data)
            data = frame.unused_data
            yield from text.splitlines()
