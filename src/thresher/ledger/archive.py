# SPDX-License-Identifier: Apache-2.0
"""Starting over: the old ledger is kept under `old/`; the old files go at the first new commit, and never before."""

from __future__ import annotations

import contextlib

import msgspec

from thresher.core.unit import Unit
from thresher.ledger.checks import data_files, foreign_names
from thresher.ledger.journal import FOLDER, read_commits, read_inbox
from thresher.ledger.place import source_of
from thresher.ledger.records import encode
from thresher.ledger.request import RUN_FILE, UNITS_FILE, RunState, read_state
from thresher.ledger.store import Store, is_temporary, remove_listed

OLD = "old"
_KEPT_HERE = ("lock", RUN_FILE, f"{OLD}/")
_NOT_KEPT = ("tmp/", "parts/")


def archive(store: Store, state: RunState) -> str:
    """Move everything of the run in `store` to `old/<run id>/`; give back that folder.

    Its `run.json` stays, marked, until that of the new run takes its place: a crash on the way is made good by the next
    opening, and the files in the output folder never seem to be nobody's.
    """
    folder = f"{OLD}/{state.run_id}"
    store.write(f"{folder}/{RUN_FILE}", encode(state))
    state.superseded = True
    store.write(RUN_FILE, encode(state))
    waiting = read_inbox(store)
    if waiting:
        # Committed but not gathered: its files must be known to be removed.
        store.write(f"{FOLDER}/999999.jsonl", b"".join(encode(record) + b"\n" for record in waiting.values()))
    for name in store.names():
        if name in _NOT_KEPT or is_temporary(name):
            remove_listed(store, name)
        elif name not in _KEPT_HERE:
            store.move(name.rstrip("/"), f"{folder}/{name.rstrip('/')}")
    return folder


def remove_replaced(store: Store, output: Store | None, dropped: Store | None, folder: str) -> None:
    """Remove the files of an archived run, and of the runs that it was to replace."""
    old = read_state(store.read(f"{folder}/{RUN_FILE}"))
    if old is not None and old.replaces is not None:
        remove_replaced(store, output, dropped, old.replaces)
    if old is not None and output is not None:
        _remove_unrecorded(output, store.read(f"{folder}/{UNITS_FILE}") or b"", old.prefix)
    for record in read_commits(store, f"{folder}/{FOLDER}").values():
        if output is not None and not record.part:
            for file in record.outputs:
                output.remove(file.path)
        if dropped is not None:
            for file in record.dropped_outputs:
                dropped.remove(file.path)


def _remove_unrecorded(output: Store, listed: bytes, prefix: str) -> None:
    """Remove files that were published for a unit just before a crash, so that no record names them."""
    sources = set()
    for line in listed.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            unit = msgspec.json.decode(line, type=Unit)
            sources.add(f"{prefix}{unit.stem}-{unit.id.rsplit('-', 1)[0]}")
    for name in output.names() if sources else ():
        if source_of(name) in sources:
            output.remove(name)


def clear_output(output: Store) -> None:
    """Remove the data files that lie in an output folder (`mode="overwrite"`)."""
    for name in data_files(foreign_names(output)):
        output.remove(name)


def remove_unfinished(folder: Store) -> None:
    """Remove what was being written beside its final name by somebody who died."""
    for name in folder.names():
        if is_temporary(name):
            remove_listed(folder, name)
