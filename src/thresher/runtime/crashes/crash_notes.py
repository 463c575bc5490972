# SPDX-License-Identifier: Apache-2.0
"""Crash notes: what a worker is working on, written where it can be read after a crash.

A worker that crashes, hangs or is killed cannot report what it was working on. So before each call it writes into the
last page of its arena, which the driver maps too, what the stage is about to get and how long the call may take. The
driver reads the page of a worker that has ended, and at intervals those of workers whose stages have a time limit.
"""

from __future__ import annotations

import mmap
import os
import struct
from hashlib import blake2b
from typing import NamedTuple

import msgspec

NOTE_BYTES = mmap.PAGESIZE
"""Size of a note, at the end of an arena."""
NOTHING, PROCESS, READ, PARSE, WRITE = range(5)
"""Kinds of calls of a stage; `NOTHING` between two calls."""
DOING = {PROCESS: "worked on", READ: "read", PARSE: "parsed", WRITE: "wrote"}
_HEAD = struct.Struct("<qqqqqqqqq")
_NUMBER = struct.Struct("<q")
_KIND = 8
_TEXT_BYTES = NOTE_BYTES - _HEAD.size
_LONG_NAME = 600
_BETWEEN = "\x1e"
NS = 10**9


class Note(msgspec.Struct, frozen=True, gc=False):
    """A call that a worker makes."""

    kind: int
    """The kind of call."""
    stage: str
    """The stage whose code runs."""
    names: tuple[str, ...]
    """Names of the tasks or records that the stage gets, or a place in a file."""
    size: int = 0
    """Number of records."""
    alone: bool = False
    """True for a single record, and for a task that may not be cut."""
    evidence: int = 0
    """Weight of earlier crashes of calls that held more than this."""

    def __str__(self) -> str:
        """Return a text for messages."""
        what = self.names[0].replace("\t", " ").strip() if self.names else "something"
        return f"{self.stage} {DOING.get(self.kind, 'had')} {what}"


class NoteKeeper:
    """Writer of the notes of this process."""

    def __init__(self, page: memoryview) -> None:
        """`page` is shared with the driver."""
        self._page = page
        self._turn = 0

    def begin(self, note: Note, timeout_s: float | None = None, text: bytes = b"") -> None:
        """Write the note of a call that is about to be made; `text` is its encoded text, if that is known already."""
        page, text = self._page, text or encode_text(note)
        limit = int(timeout_s * NS) if timeout_s else 0
        self._turn += 2
        _NUMBER.pack_into(page, 0, self._turn - 1)  # odd: what follows is not whole yet
        head = (note.kind, limit, os.getpid(), note.size, note.alone, note.evidence, len(text), self._turn)
        _HEAD.pack_into(page, 0, self._turn - 1, *head)
        page[_HEAD.size : _HEAD.size + len(text)] = text
        _NUMBER.pack_into(page, 0, self._turn)

    def end(self) -> None:
        """Write that the call has ended."""
        _NUMBER.pack_into(self._page, _KIND, NOTHING)


def encode_text(note: Note) -> bytes:
    """Return stage and names, as many of them as there is room for."""
    text = _BETWEEN.join((note.stage[:_LONG_NAME], *note.names)).encode("utf-8", "surrogatepass")
    if len(text) <= _TEXT_BYTES:
        return text
    return text[: text.rindex(_BETWEEN.encode(), 0, _TEXT_BYTES)]


def short_name(name: str) -> str:
    """Return a name that fits into a note, always the same for the same name."""
    return name if len(name) <= _LONG_NAME else f"{name[:100]}…{blake2b(name.encode(errors='replace')).hexdigest()}"


def read_note(arena: int) -> Note | None:
    """Return the call that the worker of an arena is in; `None` if it is in none, or the note is being written."""
    page = os.pread(arena, NOTE_BYTES, os.fstat(arena).st_size - NOTE_BYTES)
    if len(page) < NOTE_BYTES:
        return None
    begun, kind, _, _, size, alone, evidence, length, turn = _HEAD.unpack_from(page)
    if kind == NOTHING or begun != turn:
        return None
    stage, *names = page[_HEAD.size : _HEAD.size + length].decode("utf-8", "surrogatepass").split(_BETWEEN)
    return Note(kind, stage, tuple(names), size, bool(alone), evidence)


class TimedCall(NamedTuple):
    """A call with a time limit."""

    turn: int
    """Number of the call in its worker."""
    limit_ns: int
    """Its time limit."""
    process: int
    """The worker's process."""


def timed_call(arena: int) -> TimedCall | None:
    """Return the call with a time limit that the worker of an arena is in; `None`: it is in no such call."""
    head = os.pread(arena, _HEAD.size, os.fstat(arena).st_size - NOTE_BYTES)
    if len(head) < _HEAD.size:
        return None
    begun, kind, limit, process, *_, turn = _HEAD.unpack(head)
    return TimedCall(turn, limit, process) if kind != NOTHING and begun == turn and limit else None


keeper: NoteKeeper | None = None
"""Writer of this process; `None` where no other process would read the notes, as in a run in one process."""


def keep_notes_in(page: memoryview) -> None:
    """Write the notes of this process to `page` from now on."""
    global keeper  # one per process: it has one thread that calls stages
    keeper = NoteKeeper(page)
