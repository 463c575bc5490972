# SPDX-License-Identifier: Apache-2.0
"""Files that lie in the folders of a run: those of its units, those that are missing, those of others, and those of an
older run that it replaces.

A run that starts over keeps the old ledger under `old/`, and removes the old files at the first new commit, never
before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from thresher.core.files.filesystem import is_hidden, is_url
from thresher.core.resources import STAGE_FILES
from thresher.core.unit import Unit, stream_id
from thresher.errors import OutputRefusedError
from thresher.ledger.folder.request import RUN_FILE, UNITS_FILE, RunState, first_few, read_state
from thresher.ledger.records import (
    FOLDER,
    CommitRecord,
    OutputFile,
    encode,
    end_of_phase,
    read_commits,
    read_inbox,
    split_retry,
)
from thresher.ledger.stores.errors import writing
from thresher.ledger.stores.store import Store, is_temporary, remove_files, remove_listed

if TYPE_CHECKING:
    from thresher.ledger.unit_output import CommitTarget

OLD = "old"
_KEPT_HERE = ("lock", RUN_FILE, f"{OLD}/", f"{STAGE_FILES}/")
_NOT_KEPT = ("tmp/", "parts/", "phases/", "outlets/")
DATA_FILE = re.compile(r".+\.(jsonl|ndjson|json|parquet|pq)(\.(gz|gzip|zst|zstd|bz2|xz))?")
"""Names of files whose records can be counted."""
_UNIT_FILE = re.compile(r"([^/]*-[0-9a-f]{12})-[0-9]{6,}[^/]*(/.*)?")


def is_unit_file(name: str, prefix: str = "") -> bool:
    """Return True if a run with this prefix names the file of a unit like this."""
    return name.startswith(prefix) and _UNIT_FILE.fullmatch(name) is not None


def source_of(name: str) -> str | None:
    """Return the common prefix of the names of all files of one source; `None` if the name is not that of a unit's
    file."""
    found = _UNIT_FILE.fullmatch(name)
    return None if found is None else found[1]


# -- files of others ---------------------------------------------------------------------------------------------------


def foreign_names(output: Store, ours: Iterable[str] = ()) -> list[str]:
    """Return the names in an output folder that are not ours; names that begin with `.` or `_` are ignored."""
    known = set(ours)
    return [name for name in output.names() if not is_hidden(name) and name not in known]


def data_files(names: Iterable[str]) -> list[str]:
    """Return the names of data files, which `mode="overwrite"` may delete: by their format, or because a run names the
    files or the folder of a unit like this. Other folders and files are kept."""
    return [name for name in names if DATA_FILE.fullmatch(name) or is_unit_file(name)]


def refuse_foreign(path: str, names: Sequence[str]) -> None:
    """Raise if an output folder is not empty."""
    if names:
        raise OutputRefusedError(
            f'{path} holds files that are not from this run: {first_few(names)}. Choose another path, mode="append" to '
            'add beside them, or mode="overwrite" to delete the data files among them at the first commit'
        )


# -- missing files ----------------------------------------------------------------------------------------------------


def units_to_redo(records: Mapping[str, CommitRecord], target: CommitTarget) -> tuple[set[str], list[str]]:
    """Return the committed units whose files are missing, and the names of these files.

    Raise if the size of a file differs from the ledger: writing it again would destroy foreign data.
    """
    redo: set[str] = set()
    missing: list[str] = []
    changed: list[str] = []
    for record, file, size in _expected_files(records.values(), target):
        if size is None:
            missing.append(file.path)
            redo |= _made_of(record, records)
        elif size != file.bytes:
            changed.append(f"{file.path} ({size:,} bytes, the ledger says {file.bytes:,})")
    if changed:
        raise OutputRefusedError(
            f"{target.output}: files are not what this run wrote: {first_few(changed)}. Remove them to have them made "
            "again, use --fresh (fresh=True) to start over, or another output path"
        )
    retried = [unit for unit in redo if split_retry(unit)[1]]
    if retried:
        raise OutputRefusedError(
            f"{target.output}: files with retried records are missing ({first_few(missing)}), and a run cannot make "
            "them again. Put them back, or use --fresh (fresh=True) to start over"
        )
    if any(_is_used(records[unit], records) for unit in redo):
        raise OutputRefusedError(
            f"{target.output}: files are missing ({first_few(missing)}), and what they were made of is removed: they "
            "belong to a phase that was complete. Put them back, or use --fresh (fresh=True) to start over"
        )
    redo |= {stream_id(unit) for unit in redo} & records.keys()
    return redo, missing


def _made_of(record: CommitRecord, records: Mapping[str, CommitRecord]) -> set[str]:
    """Return a unit, and the units whose files it has joined, which are removed."""
    parts = (_made_of(records[unit], records) for unit in record.joined if unit in records)
    return {record.unit, *record.joined}.union(*parts)


def _is_used(record: CommitRecord, records: Mapping[str, CommitRecord]) -> bool:
    """Return True if what a unit was made of is removed, or what it handed on is part of a later phase already."""
    return any(end_of_phase(phase) in records for phase in (record.phase, record.phase + record.handed_on))


def _expected_files(
    records: Iterable[CommitRecord], target: CommitTarget
) -> Iterator[tuple[CommitRecord, OutputFile, int | None]]:
    """Yield every expected file with its actual size; `None` if it is missing."""
    records = list(records)
    joined = {unit for record in records for unit in record.joined}
    ended = {record.unit for record in records}
    handing = range(len(target.phase_extensions))
    phases = [phase for phase in handing if end_of_phase(target.phase_readers[phase]) not in ended]
    # The files of the other phases are removed.
    sizes = {
        folder: target.store(folder).sizes()
        for folder in (target.output, target.parts, target.dropped_to, *map(target.phase_folder, phases))
        if folder is not None
    }
    sent = _sizes_of_sent(records, target)
    for record in records:
        for outlet in record.sent.keys() & sent.keys():
            yield record, record.sent[outlet], sent[outlet].get(record.sent[outlet].path)
        folder = target.parts if record.part else target.output
        if record.handed_on:
            folder = target.phase_folder(record.phase) if record.phase in phases else None
        if record.unit not in joined and folder is not None:  # the parts of a joined file are removed
            for file in record.outputs:
                yield record, file, sizes[folder].get(file.path)
        if target.dropped_to is not None:
            for file in record.dropped_outputs:
                yield record, file, sizes[target.dropped_to].get(file.path)


def _sizes_of_sent(records: Iterable[CommitRecord], target: CommitTarget) -> dict[str, dict[str, int]]:
    """Return the sizes of the files of each outlet that has not been run to its end."""
    names = sorted({outlet for record in records for outlet in record.sent})
    if not names:
        return {}
    from thresher.ledger.folder.outlets import is_done

    folders = {name: target.store(f"{target.outlets}/{name}") for name in names}
    return {name: folder.sizes() for name, folder in folders.items() if not is_done(folder)}


# -- files of an older run ---------------------------------------------------------------------------------------------


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
        if output is not None and not record.part and not record.handed_on:
            remove_files(output, [file.path for file in record.outputs])
        if dropped is not None:
            remove_files(dropped, [file.path for file in record.dropped_outputs])


def _remove_unrecorded(output: Store, listed: bytes, prefix: str) -> None:
    """Remove files that were published just before a crash and are in no commit record."""
    sources = set()
    for line in listed.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            unit = msgspec.json.decode(line, type=Unit)
            sources.add(f"{prefix}{unit.stem}-{unit.id.rsplit('-', 1)[0]}")
    for name in output.names() if sources else ():
        if source_of(name) in sources:
            remove_listed(output, name)


def clear_output(output: Store) -> None:
    """Remove the data files in an output folder (`mode="overwrite"`)."""
    for name in data_files(foreign_names(output)):
        remove_listed(output, name)


def remove_unfinished(folder: Store) -> None:
    """Remove the temporary files of processes that crashed."""
    for name in folder.names():
        if is_temporary(name):
            remove_listed(folder, name)


def abort_uploads(target: CommitTarget) -> None:
    """Abort the unfinished uploads of killed workers of this run."""
    for folder in (target.output, target.dropped_to):
        if folder is not None and is_url(folder):
            with writing(folder):
                target.store(folder).abort_uploads(lambda name: is_unit_file(name, target.prefix))
    if target.run_dir is not None and is_url(target.run_dir):
        with writing(target.run_dir):
            target.store(target.run_dir).abort_uploads(lambda name: True)


def upload_events(store: Store, target: CommitTarget, all_of_them: bool) -> None:
    """Upload the complete segments of the event log, and at the end its timeline, to a run folder behind a URL, each as
    an object that is created once."""
    if is_url(store.root):
        name = f"events/{target.attempt:03d}"
        local = os.path.join(target.tmp, name)
        files = sorted(os.listdir(local)) if os.path.isdir(local) else []
        segments = [file for file in files if file.endswith(".zst")]
        for file in files if all_of_them else segments[:-1]:
            path = os.path.join(local, file)
            with open(path, "rb") as opened:
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
            store.put(path, f"{name}/{file}", target.owner._replace(sha256=sha256))
