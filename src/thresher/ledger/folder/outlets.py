# SPDX-License-Identifier: Apache-2.0
"""Files that a run has committed for its outlets, and the mark that an outlet has been run to its end.

The mark, `outlets/NAME/_done`, holds a hash of the files that were the input of the outlet, and the folder of its run.
It is written before the files are removed, so a run that resumes neither misses them nor makes them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from thresher.core.files.filesystem import join
from thresher.core.outlets import DROPPED, INPUT, KEPT_STREAMS, ORIGIN, QUARANTINED, SCORES
from thresher.core.outlets import FOLDER as OUTLETS
from thresher.core.phases import PhaseFile
from thresher.errors import OutputRefusedError
from thresher.ledger.folder.find import output_folder, read_commits, read_manifest, read_run
from thresher.ledger.folder.request import RUN_FILE, first_few, read_state
from thresher.ledger.quarantine import QUARANTINE, current_files
from thresher.ledger.records import OutputFile, latest_retries
from thresher.ledger.stores.store import Store, open_store, remove_files

_DONE = "_done"


class OutletInput(NamedTuple):
    """Files that a finished run has for one of its outlets."""

    folder: str
    """Folder or URL of the files."""
    files: list[PhaseFile]
    """The files, in the order of the units."""
    digest: str
    """Hash of the run and of these files: the outlet is run again if it changes."""

    def paths(self) -> list[str]:
        """Return the paths of the files."""
        return [file.path for file in self.files]


def outlet_input(run_dir: str, outlet: str, options: Mapping[str, Any]) -> OutletInput:
    """Return the committed files for an outlet."""
    state, records = read_run(run_dir, dict(options)), read_commits(run_dir, dict(options))
    store = open_store(run_dir, dict(options))
    if outlet == DROPPED:
        folder = state.dropped_to or join(run_dir, OUTLETS, outlet)
        found = [file for record in records for file in record.dropped_outputs]
    elif outlet == QUARANTINED:
        folder = join(run_dir, QUARANTINE)
        current = current_files(store, latest_retries(record.unit for record in records))
        found = _files_of(store, QUARANTINE, [f"{current[r.unit]}.jsonl" for r in records if r.unit in current])
    elif outlet == SCORES:
        folder = join(run_dir, SCORES)
        found = _files_of(store, SCORES, [f"{record.unit}.parquet" for record in records])
    else:
        folder = join(run_dir, OUTLETS, outlet)
        found = [record.sent[outlet] for record in records if outlet in record.sent]
    lines = [state.run_id, *(f"{file.path} {file.bytes} {file.sha256}" for file in found)]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
    return OutletInput(folder, [PhaseFile(join(folder, file.path), file.bytes) for file in found], digest)


def _files_of(store: Store, folder: str, names: Iterable[str]) -> list[OutputFile]:
    """Return the files among `names` that exist; the ledger does not describe them."""
    sizes = store.sizes(folder)
    return [OutputFile(name, sizes[name], 0, "") for name in names if name in sizes]


class _Mark(msgspec.Struct, frozen=True):
    """Content of the mark."""

    digest: str
    """Hash of the input of the outlet."""
    run_dir: str
    """Folder of its run."""


def is_done(folder: Store) -> bool:
    """Return True if the outlet with this folder has been run to its end."""
    return folder.exists(_DONE)


def finished_outlets(run_dir: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the folders of the runs of outlets that have been run to their end, by outlet."""
    store = open_store(run_dir, dict(options))
    names = [name.rstrip("/") for name in store.names(OUTLETS)]
    marks = {name: _mark(store, name) for name in names}
    return {name: mark.run_dir for name, mark in marks.items() if mark is not None}


def _mark(run: Store, outlet: str) -> _Mark | None:
    content = run.read(f"{OUTLETS}/{outlet}/{_DONE}")
    return None if content is None else msgspec.json.decode(content, type=_Mark)


def refuse_unlike(
    run_dir: str, outlet: str, given: OutletInput, options: Mapping[str, Any], own: Mapping[str, Any]
) -> None:
    """Raise if an outlet was run to its end and cannot be run again as it must, because what it was made of is
    removed: more was sent to it since, or files of it are missing. `own`: options for opening its output."""
    mark = _mark(open_store(run_dir, dict(options)), outlet)
    if mark is None or outlet in KEPT_STREAMS:
        return
    output = output_folder(mark.run_dir, read_run(mark.run_dir, dict(own)))
    there = {} if output is None else open_store(output, dict(own)).sizes()
    missing = [line.path for line in read_manifest(mark.run_dir, dict(own)) if line.path not in there]
    reason = "it was finished before more was sent to it" if mark.digest != given.digest else ""
    reason = f"files of it are missing ({first_few(missing)})" if missing else reason
    if reason:
        raise OutputRefusedError(
            f"{run_dir}: the outlet {outlet} cannot go on: {reason}, and what it was made of is removed. Use --fresh "
            "(fresh=True) to start over"
        )


def mark_done(run_dir: str, outlet: str, given: OutletInput, own: str, options: Mapping[str, Any]) -> None:
    """Record that an outlet has been run to its end in the run folder `own`, then remove the files that stages had
    sent there."""
    mark = msgspec.json.encode(_Mark(given.digest, own))
    open_store(run_dir, dict(options)).write(f"{OUTLETS}/{outlet}/{_DONE}", mark)
    if outlet not in KEPT_STREAMS:
        remove_files(open_store(given.folder, dict(options)), [path.rsplit("/", 1)[-1] for path in given.paths()])


def belongs_to(run_dir: str, origin: str, options: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether the run in a folder was made for an outlet, `origin`, and the hash of its input then."""
    state = read_state(open_store(run_dir, dict(options)).read(RUN_FILE))
    parts = {} if state is None else state.fingerprint_parts
    return parts.get(ORIGIN) == origin, parts.get(INPUT, "")
