# SPDX-License-Identifier: Apache-2.0
"""The open ledger of a run.

A unit is committed as soon as its record is in the inbox. The driver writes records to the ledger in groups, and only
then removes them from the inbox, so a crash at any point loses none.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from thresher.core.files.filesystem import is_url, local_path
from thresher.ledger.records import FOLDER, INBOX, CommitRecord, decode_commit, encode, read_commits, read_inbox
from thresher.ledger.stores.store import Store, is_temporary

_NUMBERS_TRIED = 20


class Journal:
    """The open ledger of a run."""

    def __init__(self, store: Store, folders: Sequence[Store], run_id: str = "") -> None:
        """Open the ledger. `folders` hold the committed files; they are synced before a record is written."""
        self._store = store
        self._run_id = run_id
        self._folders = folders
        self._pending: list[CommitRecord] = []
        self._surplus: list[str] = []
        """Units in the inbox that are already in the ledger."""
        self._descriptor = -1
        self.committed = read_commits(store)

    def recover(self) -> None:
        """Collect the records that an earlier attempt left in the inbox, and remove truncated ones."""
        found = read_inbox(self._store, self._run_id)
        for record in found.values():
            self.add(record)
        self.sync()
        for name in self._store.names(INBOX):
            if is_temporary(name) or name.removesuffix(".json") not in found:
                self._store.remove(f"{INBOX}/{name}")

    def add(self, record: CommitRecord) -> CommitRecord:
        """Add a record and return the one that counts, which is the first of the unit."""
        known = self.committed.setdefault(record.unit, record)
        if known is record:
            self._pending.append(record)
        else:
            self._surplus.append(record.unit)
        return known

    def add_from_inbox(self, unit_id: str) -> CommitRecord:
        """Add the record that a worker put into the inbox."""
        known = self.committed.get(unit_id)
        if known is not None:
            return known
        record = decode_commit(self._store.read(f"{INBOX}/{unit_id}.json") or b"")
        assert record is not None, f"unit {unit_id} was reported as committed, but its record is not in the inbox"
        return self.add(record)

    def sync(self) -> None:
        """Write all new records to disk, then remove them from the inbox."""
        if self._pending:
            for folder in self._folders:
                folder.sync()
            self._append(b"".join(encode(record) + b"\n" for record in self._pending))
        done = {f"{unit}.json" for unit in (*(record.unit for record in self._pending), *self._surplus)}
        for name in done.intersection(self._store.names(INBOX)) if done else ():
            self._store.remove(f"{INBOX}/{name}")
        self._pending, self._surplus = [], []

    def _append(self, lines: bytes) -> None:
        if is_url(self._store.root):  # objects cannot be appended to: every group is a new one
            # A driver of an earlier attempt may still take a number; then try the next one.
            if not any(self._store.create(self._next_name(), lines) for _ in range(_NUMBERS_TRIED)):
                raise OSError(errno.EEXIST, "another driver writes to this ledger", f"{self._store.root}/{FOLDER}")
            return
        if self._descriptor < 0:
            path = os.path.join(local_path(self._store.root), self._next_name())
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._store.sync(FOLDER)
        size = os.fstat(self._descriptor).st_size
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:  # a partial line would corrupt the next one
            os.ftruncate(self._descriptor, size)
            raise
        os.fsync(self._descriptor)

    def _next_name(self) -> str:
        stems = [name.removesuffix(".jsonl") for name in self._store.names(FOLDER)]
        return f"{FOLDER}/{max((int(stem) for stem in stems if stem.isdigit()), default=0) + 1:06d}.jsonl"

    def clear_temporary(self) -> None:
        """Remove the incomplete files of killed workers from the inbox. Called when no worker is left."""
        for name in self._store.names(INBOX):
            if is_temporary(name):
                self._store.remove(f"{INBOX}/{name}")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
