# SPDX-License-Identifier: Apache-2.0
"""Starting over: the old ledger is kept under `old/`; the old files go at the first new commit, and never before."""

from __future__ import annotations

from thresher.ledger.checks import data_files, foreign_names
from thresher.ledger.journal import FOLDER, read_commits, read_inbox
from thresher.ledger.records import encode
from thresher.ledger.request import RUN_FILE, RunState, read_state
from thresher.ledger.store import Store

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
        if name in _NOT_KEPT:
            store.remove_tree(name.rstrip("/"))
        elif name not in _KEPT_HERE:
            store.move(name.rstrip("/"), f"{folder}/{name.rstrip('/')}")
    return folder


def remove_replaced(store: Store, output: Store | None, dropped: Store | None, folder: str) -> None:
    """Remove the files of an archived run, and of the runs that it was to replace."""
    old = read_state(store.read(f"{folder}/{RUN_FILE}"))
    if old is not None and old.replaces is not None:
        remove_replaced(store, output, dropped, old.replaces)
    for record in read_commits(store, f"{folder}/{FOLDER}").values():
        if output is not None and not record.part:
            for file in record.outputs:
                output.remove(file.path)
        if dropped is not None:
            for file in record.dropped_outputs:
                dropped.remove(file.path)


def clear_output(output: Store) -> None:
    """Remove the data files that lie in an output folder (`mode="overwrite"`)."""
    for name in data_files(foreign_names(output)):
        output.remove(name)
