# SPDX-License-Identifier: Apache-2.0
"""Start a run over: keep the old ledger under `old/`, and remove the old files at the first new commit, never
before."""

from __future__ import annotations

import contextlib

import msgspec

from thresher.core.unit import Unit
from thresher.ledger.folder.checks import data_files, foreign_names
from thresher.ledger.folder.request import RUN_FILE, UNITS_FILE, RunState, read_state
from thresher.ledger.journal import FOLDER, read_commits, read_inbox
from thresher.ledger.records import encode
from thresher.ledger.stores.commit_target import source_of
from thresher.ledger.stores.store import Store, is_temporary, remove_listed

OLD = "old"
_KEPT_HERE = ("lock", RUN_FILE, f"{OLD}/")
_NOT_KEPT = ("tmp/", "parts/")


def archive(store: Store, state: RunState) -> str:
    """Move everything of the run in `store` to `old/<run id>/`, and return that folder.

    Its `run.json` stays, marked as superseded, until the new one replaces it: after a crash in between, the next
    opening completes the move, and the files in the output folder always belong to a run.
    """
    folder = f"{OLD}/{state.run_id}"
    store.write(f"{folder}/{RUN_FILE}", encode(state))
    state.superseded = True
    store.write(RUN_FILE, encode(state))
    waiting = read_inbox(store)
    if waiting:
        # Commits still in the inbox: their files must be in the ledger to be removed later.
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
    """Remove files that were published just before a crash and are in no commit record."""
    sources = set()
    for line in listed.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            unit = msgspec.json.decode(line, type=Unit)
            sources.add(f"{prefix}{unit.stem}-{unit.id.rsplit('-', 1)[0]}")
    for name in output.names() if sources else ():
        if source_of(name) in sources:
            output.remove(name)


def clear_output(output: Store) -> None:
    """Remove the data files in an output folder (`mode="overwrite"`)."""
    for name in data_files(foreign_names(output)):
        output.remove(name)


def remove_unfinished(folder: Store) -> None:
    """Remove the temporary files of processes that crashed."""
    for name in folder.names():
        if is_temporary(name):
            remove_listed(folder, name)
