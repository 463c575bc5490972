# SPDX-License-Identifier: Apache-2.0
"""What workers were working on when the kernel killed them, so that the next try gives less at a time.

A worker that is killed cannot say what killed it. So each notes in shared memory what it is about to give to a stage.
The zygote, which sees workers end, keeps the note of one that SIGKILL ended and wipes the others. The next worker cuts
a batch that was noted into single records, and a record that two workers died on, the last time alone, is set aside.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from thresher.core.batch import DocumentBatch

if TYPE_CHECKING:
    from thresher.core.stage import ProcessingStage
    from thresher.core.task import Task

    Stage = ProcessingStage[Any, Any]

_NAME = "thresher-notes"
_ROWS = 4096
_HEADER = struct.Struct("<q")
_OWNER, _WORK = struct.Struct("<qq"), struct.Struct("<qqqq")
_ROW = struct.Struct("<qqqqqq")
_SIZE = _HEADER.size + _ROWS * _ROW.size

FITS, CUT, SET_ASIDE = "fits", "cut", "set aside"
"""What should become of a call: it is made, made for less at a time, or not made any more."""


class Note(NamedTuple):
    """What a worker is working on."""

    pid: int
    """Its process."""
    killed: int = 0
    """1 where SIGKILL has ended it."""
    stage: int = 0
    """The stage, by a number made of its name; 0: nothing is being worked on."""
    first: int = 0
    """The first record, by a number made of its id; 0 for a call of several tasks."""
    last: int = 0
    """The last record."""
    size: int = 0
    """Records of a task, or tasks of a call."""


_table_fd: int | None = None


def create_notes() -> None:
    """Make the table that all workers which are forked from this process share."""
    global _table_fd  # one per process, inherited by its workers
    _table_fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    os.ftruncate(_table_fd, _SIZE)


class DeathNotes:
    """The notes of all workers."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map = mmap.mmap(fd, _SIZE)
        self._row = -1
        """The row of this worker, and where in it stands what it is working on; taken with the first note."""
        self._work = 0

    # -- in the zygote ------------------------------------------------------------------------------------------------

    def worker_ended(self, pid: int, *, killed: bool) -> None:
        """Keep the note of a worker that was killed, if it was working on something; wipe it otherwise."""
        for row, note in enumerate(self._notes()):
            if note.pid == pid and not note.killed:
                kept = note._replace(killed=1) if killed and note.stage else Note(pid)
                _ROW.pack_into(self._map, _place(row), *kept)
                if kept.killed:
                    _HEADER.pack_into(self._map, 0, self.deaths + 1)

    # -- in a worker --------------------------------------------------------------------------------------------------

    @property
    def deaths(self) -> int:
        """How many notes were kept."""
        count: int = _HEADER.unpack_from(self._map)[0]
        return count

    def begin(self, stage: Stage, tasks: list[Task]) -> None:
        """These tasks are about to be given to a stage."""
        if self._row < 0:
            self._row = self._take_row()
            self._work = _place(self._row) + _OWNER.size
        _WORK.pack_into(self._map, self._work, *_named(stage, tasks))

    def end(self) -> None:
        """The stage has come back."""
        if self._row >= 0:
            _HEADER.pack_into(self._map, self._work, 0)

    def advice(self, stage: Stage, tasks: list[Task]) -> str:
        """What should become of a call, by what earlier workers died on."""
        if not self.deaths:
            return FITS
        number, first, last, count = _named(stage, tasks)
        if not number:
            return FITS
        kept = [note for note in self._notes() if note.killed and note.stage == number]
        if len(tasks) > 1:
            return CUT if any(not note.first for note in kept) else FITS
        same = [note for note in kept if (note.first, note.last, note.size) == (first, last, count)]
        if count > 1:
            return CUT if same else FITS
        wider = any(note.size > 1 for note in kept)
        return SET_ASIDE if len(same) > 1 or (same and wider) else FITS

    def _take_row(self) -> int:
        """The first row that is free, or was a worker's that has left no note."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            notes = list(self._notes())
            free = (row for row, note in enumerate(notes) if not note.killed and not _lives(note.pid))
            row = next(free, len(notes)) % _ROWS
            _ROW.pack_into(self._map, _place(row), *Note(os.getpid()))
            return row
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _notes(self) -> Iterator[Note]:
        """All rows until the first that was never taken."""
        for row in range(_ROWS):
            note = Note(*_ROW.unpack_from(self._map, _place(row)))
            if not note.pid:
                return
            yield note


def _place(row: int) -> int:
    return _HEADER.size + row * _ROW.size


def _named(stage: Stage, tasks: list[Task]) -> tuple[int, int, int, int]:
    """Stage, first and last record, and how many: the same whenever the same is given again."""
    number = stage.__dict__.get("_note_number") or stage.__dict__.setdefault("_note_number", _number(stage.name))
    if len(tasks) > 1:
        return number, 0, 0, len(tasks)
    (task,) = tasks
    ids = task.ids if isinstance(task, DocumentBatch) else None
    if ids is None or not len(ids):
        name = _number(task.task_id)
        return number if task.task_id else 0, name, name, task.num_items
    first = _number(ids.at(0))
    return number, first, first if len(ids) == 1 else _number(ids.at(len(ids) - 1)), len(ids)


def _number(name: str) -> int:
    return crc32(name.encode()) + 1


def _lives(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


class NoNotes(DeathNotes):
    """Where no other process would read them."""

    deaths = 0

    def __init__(self) -> None:
        pass

    def begin(self, stage: Stage, tasks: list[Task]) -> None:
        """Nobody reads it."""

    def end(self) -> None:
        """Nobody reads it."""


_found: dict[int, DeathNotes] = {}


def notes_of_workers() -> DeathNotes:
    """This process's view of the notes; made when it is first asked for."""
    process = os.getpid()
    found = _found.get(process)
    if found is None:
        found = NoNotes() if _table_fd is None else DeathNotes(_table_fd)
        _found.clear()
        _found[process] = found
    return found
