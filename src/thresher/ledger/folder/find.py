# SPDX-License-Identifier: Apache-2.0
"""Find a run by its folder, its output folder or its id, and read the files in its run folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from thresher.core.files.filesystem import explained, is_url, join, local_path
from thresher.core.unit import Unit
from thresher.credentials import message_of
from thresher.errors import DamagedRunError, UsageError, nearest
from thresher.ledger.folder.request import RUN_FILE, RUN_FOLDER, RUNS_FOLDER, RunState, read_state
from thresher.ledger.quarantine import QuarantineEntry, current_files, read_entries
from thresher.ledger.records import FOLDER as LEDGER
from thresher.ledger.records import CommitRecord, ManifestLine, in_input_order, latest_retries, read_inbox
from thresher.ledger.records import read_commits as _read_commits
from thresher.ledger.stores.store import open_store

T = TypeVar("T")


def find_run(text: str, storage_options: dict[str, Any] | None = None) -> str:
    """Return the run folder for `text`: a run folder, an output folder, or a run id under `.thresher/runs`."""
    if not is_url(text):
        return _find_run(text, storage_options)
    with explained(text):
        open_store(text, storage_options).require_root()
        return _find_run(text, storage_options)


def _find_run(text: str, storage_options: dict[str, Any] | None) -> str:
    damaged = ""
    for folder in (text, *_inside(text, storage_options), os.path.join(RUNS_FOLDER, text)):
        content = _read(folder, RUN_FILE, storage_options)
        if read_state(content) is not None:
            return folder if is_url(folder) else os.path.abspath(local_path(folder))
        if content is not None:
            damaged = damaged or join(folder, RUN_FILE)
    if damaged:
        raise DamagedRunError(f"{damaged} is damaged: it is not what a run writes there")
    for folder in (text, join(text, RUN_FOLDER)):
        if open_store(folder, storage_options).names(LEDGER):
            raise DamagedRunError(f"{join(folder, RUN_FILE)} is missing, and {join(folder, LEDGER)} is there")
    known = _run_ids()
    raise UsageError(
        f"{text}: no run found there. Give a run folder (it holds {RUN_FILE}), an output folder (it holds "
        f"{RUN_FOLDER}/), or a run id under {RUNS_FOLDER}.{nearest(text, known)}"
    )


def _inside(output: str, storage_options: dict[str, Any] | None) -> list[str]:
    """Return the run folders in an output folder: the default one first, then those of appended runs, newest first."""
    appended = []
    for name in open_store(output, storage_options).names():
        if name.startswith(f"{RUN_FOLDER}-"):
            folder = join(output, name.rstrip("/"))
            state = read_state(open_store(folder, storage_options).read(RUN_FILE))
            if state is not None:
                appended.append((state.run_id, folder))
    return [join(output, RUN_FOLDER), *(folder for _, folder in sorted(appended, reverse=True))]


def _read(run_dir: str, name: str, storage_options: dict[str, Any] | None) -> bytes | None:
    """Return the content of a file of a run folder; `None` if there is none."""
    try:
        return open_store(run_dir, storage_options).read(name)
    except OSError as error:
        reason = error.strerror or message_of(error)
        raise UsageError(f"{join(run_dir, name)} cannot be read: {reason}") from error


def _decoded(content: bytes, where: str, form: type[T] | Any) -> T:
    try:
        decoded: T = msgspec.json.decode(content, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRunError(f"{where} is damaged: {error}") from None
    return decoded


def _decoded_lines(run_dir: str, name: str, form: type[T], storage_options: dict[str, Any] | None) -> list[T]:
    content = _read(run_dir, name, storage_options) or b""
    where = join(run_dir, name)
    return [_decoded(line, f"{where}, line {number}", form) for number, line in enumerate(content.splitlines(), 1)]


def _run_ids() -> list[str]:
    try:
        return sorted(os.listdir(RUNS_FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_run(run_dir: str, storage_options: dict[str, Any] | None = None) -> RunState:
    """Return the content of `run.json`."""
    state = read_state(_read(run_dir, RUN_FILE, storage_options))
    if state is None:
        raise DamagedRunError(f"{run_dir}: no readable {RUN_FILE} here, so this is not a run folder")
    return state


def output_folder(run_dir: str, state: RunState) -> str | None:
    """Return the folder of the output files: the parent of the run folder, also if both were moved since the run."""
    parent, _, name = run_dir.rstrip("/").rpartition("/")
    if state.output is not None and name.startswith(RUN_FOLDER) and join(state.output, name) != run_dir.rstrip("/"):
        return parent
    return state.output


def read_json(run_dir: str, name: str, storage_options: dict[str, Any] | None = None) -> Any:
    """Return the content of a JSON file of a run folder, such as `report.json`; `None` if there is none."""
    content = _read(run_dir, name, storage_options)
    return None if content is None else _decoded(content, join(run_dir, name), Any)


def read_commits(run_dir: str, storage_options: dict[str, Any] | None = None) -> list[CommitRecord]:
    """Return all committed units in input order, including those in the inbox."""
    store = open_store(run_dir, storage_options)
    records = {**read_inbox(store), **_read_commits(store)}
    return in_input_order(records.values(), {})


def read_units(run_dir: str, storage_options: dict[str, Any] | None = None) -> list[Unit]:
    """Return the units as listed; empty if no attempt listed them completely."""
    return _decoded_lines(run_dir, "units.jsonl", Unit, storage_options)


def read_manifest(run_dir: str, storage_options: dict[str, Any] | None = None) -> list[ManifestLine]:
    """Return the finished output files in input order; empty before the first attempt has finished."""
    return _decoded_lines(run_dir, "manifest.jsonl", ManifestLine, storage_options)


def read_quarantine(run_dir: str, storage_options: dict[str, Any] | None = None) -> Iterator[QuarantineEntry]:
    """Yield the current quarantine entries in input order, without the records that a retry brought into the output."""
    store = open_store(run_dir, storage_options)
    records = read_commits(run_dir, storage_options)
    files = current_files(store, latest_retries(record.unit for record in records))
    for record in records:
        if record.unit in files:
            yield from read_entries(store, files[record.unit])
