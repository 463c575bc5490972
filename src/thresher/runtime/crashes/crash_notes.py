# SPDX-License-Identifier: Apache-2.0
"""What a worker is at, written where it can be read after its death.

A worker that crashes, hangs or is killed cannot say what it was working on. So each writes into the last page of its
arena, which belongs to the driver too, what it is about to give to a stage and how long the stage may take. The
driver reads the page of a worker that has ended, and now and then those of workers whose stages have a time limit.
"""

from __future__ import annotations

import mmap
import os
import struct
from hashlib import blake2b
from typing import NamedTuple

import msgspec

NOTE_BYTES = mmap.PAGESIZE
"""What a note takes at the end of an arena."""
NOTHING, PROCESS, READ, PARSE, WRITE = range(5)
"""What a worker does: nothing of a stage's, or a call of a stage."""
DOING = {PROCESS: "worked on", READ: "read", PARSE: "parsed", WRITE: "wrote"}
_HEAD = struct.Struct("<qqqqqqqqq")
_NUMBER = struct.Struct("<q")
_KIND = 8
_TEXT_BYTES = NOTE_BYTES - _HEAD.size
_LONG_NAME = 600
_BETWEEN = "\x1e"
NS = 10**9


class Note(msgspec.Struct, frozen=True, gc=False):
    """What a worker is at."""

    kind: int
    """What it does."""
    stage: str
    """The stage whose code runs."""
    names: tuple[str, ...]
    """What the stage was given: tasks or records by name, or a place in a file."""
    size: int = 0
    """How many records."""
    alone: bool = False
    """Whether it is a single record, or something that may not be cut."""
    evidence: int = 0
    """What was known against it before, from calls that held more than this."""

    def __str__(self) -> str:
        """For people."""
        what = self.names[0].replace("\t", " ").strip() if self.names else "something"
        return f"{self.stage} {DOING.get(self.kind, 'had')} {what}"


class NoteKeeper:
    """Writes the notes of this process; where there is no page (a run in one process) nobody would read them."""

    def __init__(self, page: memoryview | None = None) -> None:
        self._page = page
        self._turn = 0

    def begin(self, note: Note, timeout_s: float | None = None, text: bytes = b"") -> None:
        """A stage's code is about to run; `text`: of the note, where it was encoded before."""
        page = self._page
        if page is None:
            return
        text = text or encode_text(note)
        limit = int(timeout_s * NS) if timeout_s else 0
        self._turn += 2
        _NUMBER.pack_into(page, 0, self._turn - 1)  # odd: what follows is not whole yet
        head = (note.kind, limit, os.getpid(), note.size, note.alone, note.evidence, len(text), self._turn)
        _HEAD.pack_into(page, 0, self._turn - 1, *head)
        page[_HEAD.size : _HEAD.size + len(text)] = text
        _NUMBER.pack_into(page, 0, self._turn)

    def end(self) -> None:
        """The stage has come back."""
        if self._page is not None:
            _NUMBER.pack_into(self._page, _KIND, NOTHING)


def encode_text(note: Note) -> bytes:
    """Stage and names, as many of them as there is room for."""
    text = _BETWEEN.join((note.stage[:_LONG_NAME], *note.names)).encode("utf-8", "surrogatepass")
    if len(text) <= _TEXT_BYTES:
        return text
    return text[: text.rindex(_BETWEEN.encode(), 0, _TEXT_BYTES)]


def short_name(name: str) -> str:
    """A name that fits into a note, the same whenever it is asked for."""
    return name if len(name) <= _LONG_NAME else f"{name[:100]}…{blake2b(name.encode(errors='replace')).hexdigest()}"


def read_note(arena: int) -> Note | None:
    """What the worker of an arena is at; `None`: nothing, or it is just being written."""
    page = os.pread(arena, NOTE_BYTES, os.fstat(arena).st_size - NOTE_BYTES)
    if len(page) < NOTE_BYTES:
        return None
    begun, kind, _, _, size, alone, evidence, length, turn = _HEAD.unpack_from(page)
    if kind == NOTHING or begun != turn:
        return None
    stage, *names = page[_HEAD.size : _HEAD.size + length].decode("utf-8", "surrogatepass").split(_BETWEEN)
    return Note(kind, stage, tuple(names), size, bool(alone), evidence)


class TimedCall(NamedTuple):
    """A call that may take only so long."""

    turn: int
    """Number of the call in its worker."""
    limit_ns: int
    """How long it may take."""
    process: int
    """The worker's process."""


def timed_call(arena: int) -> TimedCall | None:
    """Return the call with a time limit that the worker of an arena is in; `None`: it is in no such call."""
    head = os.pread(arena, _HEAD.size, os.fstat(arena).st_size - NOTE_BYTES)
    if len(head) < _HEAD.size:
        return None
    begun, kind, limit, process, *_, turn = _HEAD.unpack(head)
    return TimedCall(turn, limit, process) if kind != NOTHING and begun == turn and limit else None


_keeper = NoteKeeper()


def keep_notes_in(page: memoryview) -> None:
    """From now on this process writes its notes to `page`."""
    global _keeper  # one per process: it has one thread that calls stages
    _keeper = NoteKeeper(page)


def notes() -> NoteKeeper:
    """The notes of this process."""
    return _keeper
