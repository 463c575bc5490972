# SPDX-License-Identifier: Apache-2.0
"""The event log of one attempt: one JSON object per event and action, sufficient to replay a run, in zstd segments that
are readable up to the last flush; and its timeline, so that nobody has to read the whole log to see how a run went."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import msgspec

from thresher.errors import CheckFailedError, RunFailedError
from thresher.observe.progress import Snapshot
from thresher.scheduler.actions import Action, AnyAction
from thresher.scheduler.events import AnyEvent, Event
from thresher.scheduler.model import RunSpec

FRAME_BYTES = 1_000_000
"""Unpacked bytes after which a frame ends without waiting for `flush`: bounds the memory of the log."""
SEGMENT_BYTES = 8_000_000
"""Unpacked bytes after which a new segment begins."""
LEVEL = 1
"""Compression level. Log lines are so repetitive that higher levels cost time and save little."""

TIMELINE, NOW = "timeline.jsonl", "now.json"
"""Files beside the segments: samples of the whole attempt, and the last snapshot in full."""
NOW_S = 1.0
"""Time between two snapshots in full."""
TIMELINE_S = 0.5
"""Time between the first samples of a timeline."""
TIMELINE_SAMPLES = 400
"""Samples are this share of the elapsed time apart, so that a day makes only a few times as many."""


class LogLine(NamedTuple):
    """A decoded line of the event log."""

    n: int  # line number, from 0
    t: float  # seconds since the start of the attempt
    item: AnyEvent | AnyAction | RunSpec  # the start line holds the spec


class _Start(msgspec.Struct):
    start: RunSpec


class _Number(msgspec.Struct):
    n: int
    t: float = 0.0


_encoder = msgspec.json.Encoder(enc_hook=str)
_encode = _encoder.encode
_events: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyEvent)
_actions: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyAction)
_starts = msgspec.json.Decoder(_Start)
_numbers = msgspec.json.Decoder(_Number)


def encode_start(spec: RunSpec, **more: object) -> bytes:
    """Return line 0: the spec and `more` in one object under "start"."""
    start = {**msgspec.to_builtins(spec), **more}
    return _encode({"n": 0, "start": start})


def encode_line(n: int, t: float, item: Event | Action) -> bytes:
    """Return one line without its line feed: `{"n": 17, "t": 1.25, "event": "TaskDone", …}`."""
    return b'{"n":%d,"t":%.6f,' % (n, t) + _encode(item)[1:]


def decode_line(line: bytes) -> LogLine:
    """Decode a line of `encode_line` or `encode_start`. Raise ValueError for any other line."""
    number = _numbers.decode(line)
    head = line[:80]
    if b'"event":' in head:
        return LogLine(number.n, number.t, _events.decode(line))
    if b'"action":' in head:
        return LogLine(number.n, number.t, _actions.decode(line))
    return LogLine(number.n, number.t, _starts.decode(line).start)


class Log(Protocol):
    """Log of events and actions."""

    def write(self, n: int, t: float, item: Event | Action) -> None:
        """Append one line."""

    def flush(self) -> None:
        """Make the written lines readable for other processes."""

    def wants_sample(self, t: float) -> bool:
        """Return True if a snapshot at `t` seconds belongs on the timeline."""

    def sample(self, snapshot: Snapshot) -> None:
        """Add a snapshot to the timeline."""


class NoLog:
    """Log of a run without a ledger."""

    def write(self, n: int, t: float, item: Event | Action) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def wants_sample(self, t: float) -> bool:
        """Return False."""
        return False

    def sample(self, snapshot: Snapshot) -> None:
        """Do nothing."""


class EventLog:
    """Writes the log of one attempt into a folder of its own.

    Every flush ends a zstd frame, so a reader needs nothing after it. Lines written since the last flush are lost if
    the process is killed; the ledger, not the log, records which units are done.
    """

    def __init__(self, folder: Path | str) -> None:
        # Imported here so that a run without a log, and `import thresher`, do not load it.
        from zstandard import ZstdCompressor

        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._compress = ZstdCompressor(level=LEVEL).compress
        self._lines: list[bytes] = []
        self._pending_bytes = 0
        self._segment_bytes = 0
        self._segments = 0
        self._file: IO[bytes] | None = None
        self._next_sample_t = self._next_moment_t = 0.0

    def start(self, spec: RunSpec, **more: object) -> None:
        """Write line 0: the spec and `more`."""
        line = encode_start(spec, **more)
        self._lines.append(line)
        self._pending_bytes += len(line) + 1

    def write(self, n: int, t: float, item: Event | Action) -> None:
        """Write line `n`: an event or action at `t` seconds after the start of the attempt."""
        line = encode_line(n, t, item)
        self._lines.append(line)
        self._pending_bytes += len(line) + 1
        if self._pending_bytes >= FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """Make every line written so far readable by others. Do nothing if there is no new line."""
        if not self._lines:
            return
        self._lines.append(b"")  # the line feed of the last line
        frame = self._compress(b"\n".join(self._lines))
        self._lines.clear()
        self._put(frame)
        self._segment_bytes += self._pending_bytes
        self._pending_bytes = 0
        if self._segment_bytes >= SEGMENT_BYTES:
            self._end_segment()

    def wants_sample(self, t: float) -> bool:
        """Return True if a snapshot at `t` seconds belongs on the timeline."""
        return t >= self._next_sample_t

    def sample(self, snapshot: Snapshot) -> None:
        """Add a snapshot to the timeline, and keep it in full as the last one; a full disk fails the log itself."""
        t = snapshot.elapsed_s
        now = self._folder / NOW
        unfinished = now.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            if t >= self._next_moment_t or snapshot.status != "running":
                self._next_moment_t = t + max(TIMELINE_S, t / TIMELINE_SAMPLES)
                with (self._folder / TIMELINE).open("ab", buffering=0) as file:
                    file.write(_encode(moment(snapshot)) + b"\n")
            self._next_sample_t = t + min(NOW_S, self._next_moment_t - t)
            unfinished.write_bytes(_encode(snapshot))
            os.replace(unfinished, now)

    def close(self) -> None:
        """Flush and close the log."""
        self.flush()
        self._end_segment()

    def _put(self, frame: bytes) -> None:
        path = self._folder / f"{self._segments:06d}.jsonl.zst"
        try:
            if self._file is None:
                # Unbuffered: data that the kernel has received survives a crash of this process.
                self._file = path.open("xb", buffering=0)
            view = memoryview(frame)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise RunFailedError(f"cannot write the event log {path}: {error.strerror or error}") from error

    def _end_segment(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._segments += 1
            self._segment_bytes = 0


def read_log(folder: Path | str) -> Iterator[bytes]:
    """Yield every line of the log, in order, without line feeds.

    An unfinished last frame ends the log without an error; other damage raises CheckFailedError.
    """
    for path in sorted(Path(folder).glob("*.jsonl.zst")):
        yield from _read_segment(path)


def _read_segment(path: Path) -> Iterator[bytes]:
    from zstandard import ZstdDecompressor, ZstdError

    with path.open("rb") as packed:
        unpacked = io.BufferedReader(ZstdDecompressor().stream_reader(packed, read_across_frames=True), 1 << 20)
        try:
            for line in unpacked:
                if line.endswith(b"\n"):
                    yield line[:-1]
        except ZstdError as error:
            raise CheckFailedError(f"the event log {path} is damaged: {error}") from error


# -- the timeline -----------------------------------------------------------------------------------------------------


class StageMoment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One stage at one moment of a timeline."""

    in_docs: int
    """Records that came in."""
    out_docs: int
    """Records that went on."""
    busy_ratio: float
    """Share of all workers' time that went into its code, over the last seconds."""
    queue_tasks: int
    """Waiting tasks."""
    workers_busy: int
    """Workers that run an op whose first stage this is."""
    workers_total: int
    """Workers that can run such an op."""


class Moment(msgspec.Struct, frozen=True, gc=False):
    """A run at one moment of its timeline."""

    t: float
    """Seconds since the start of the attempt."""
    docs: int
    """Records that were read."""
    nbytes: int
    """Bytes of these records."""
    units: int
    """Units that are committed, restored ones included."""
    memory: int
    """Memory of the whole run."""
    inflight: int
    """Bytes of unreleased payloads."""
    busy: int
    """Workers that hold a task."""
    workers: int
    """Workers that are set up."""
    stages: tuple[StageMoment, ...]
    """Stages in plan order."""


def moment(snapshot: Snapshot) -> Moment:
    """Return what a timeline keeps of a snapshot."""
    first = snapshot.stages[0] if snapshot.stages else None
    return Moment(
        t=round(snapshot.elapsed_s, 3),
        docs=0 if first is None else first.in_docs or first.out_docs,
        nbytes=0 if first is None else first.in_bytes or first.out_bytes,
        units=snapshot.units_done,
        memory=snapshot.memory_bytes,
        inflight=snapshot.inflight_bytes,
        busy=snapshot.workers_busy,
        workers=snapshot.workers_total,
        stages=tuple(
            StageMoment(
                stage.in_docs,
                stage.out_docs,
                round(stage.busy_ratio, 4),
                stage.queue_tasks,
                stage.workers_busy,
                stage.workers_total,
            )
            for stage in snapshot.stages
        ),
    )


_moments = msgspec.json.Decoder(Moment)


def read_timeline(content: bytes) -> list[Moment]:
    """Return the samples in the content of a timeline; a last line that is not finished, or a damaged one, ends it."""
    found: list[Moment] = []
    for line in content.splitlines():
        try:
            found.append(_moments.decode(line))
        except msgspec.DecodeError:
            break
    return found
