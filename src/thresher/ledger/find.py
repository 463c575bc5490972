# SPDX-License-Identifier: Apache-2.0
"""Finding a run by what people have at hand, and reading what it left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from thresher.core.filesystem import is_url, join, local_path
from thresher.core.unit import Unit
from thresher.errors import UsageError, nearest
from thresher.ledger.journal import read_commits as _read_commits
from thresher.ledger.journal import read_inbox
from thresher.ledger.manifest import in_input_order
from thresher.ledger.quarantine_entries import QuarantineEntry, read_entries
from thresher.ledger.records import CommitRecord, ManifestLine
from thresher.ledger.request import RUN_FILE, RUN_FOLDER, RUNS_FOLDER, RunState, read_state
from thresher.ledger.retries import latest_retries, open_files
from thresher.ledger.store import open_store


def find_run(text: str, storage_options: dict[str, Any] | None = None) -> str:
    """The run folder that `text` means: a run folder, an output folder, or a run id under `.thresher/runs`."""
    for folder in (text, *_inside(text, storage_options), os.path.join(RUNS_FOLDER, text)):
        if read_state(open_store(folder, storage_options).read(RUN_FILE)) is not None:
            return folder if is_url(folder) else os.path.abspath(local_path(folder))
    known = _run_ids()
    raise UsageError(
        f"{text}: no run found there. Give a run folder (it holds {RUN_FILE}), an output folder (it holds "
        f"{RUN_FOLDER}/), or a run id under {RUNS_FOLDER}.{nearest(text, known)}"
    )


def _inside(output: str, storage_options: dict[str, Any] | None) -> list[str]:
    """Run folders in an output folder: the usual one first, then those of appended runs, newest first."""
    appended = []
    for name in open_store(output, storage_options).names():
        if name.startswith(f"{RUN_FOLDER}-"):
            folder = join(output, name.rstrip("/"))
            state = read_state(open_store(folder, storage_options).read(RUN_FILE))
            if state is not None:
                appended.append((state.run_id, folder))
    return [join(output, RUN_FOLDER), *(folder for _, folder in sorted(appended, reverse=True))]


def _run_ids() -> list[str]:
    try:
        return sorted(os.listdir(RUNS_FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_run(run_dir: str, storage_options: dict[str, Any] | None = None) -> RunState:
    """What `run.json` says."""
    state = read_state(open_store(run_dir, storage_options).read(RUN_FILE))
    if state is None:
        raise UsageError(f"{run_dir}: there is no readable {RUN_FILE}, so this is no run folder")
    return state


def output_folder(run_dir: str, state: RunState) -> str | None:
    """Where the output files are: the folder around the run folder, also when both were moved since the run."""
    parent, _, name = run_dir.rstrip("/").rpartition("/")
    if state.output is not None and name.startswith(RUN_FOLDER) and join(state.output, name) != run_dir.rstrip("/"):
        return parent
    return state.output


def read_json(run_dir: str, name: str, storage_options: dict[str, Any] | None = None) -> Any:
    """A JSON file of a run folder, such as `report.json`; `None` if it is not there."""
    content = open_store(run_dir, storage_options).read(name)
    return None if content is None else msgspec.json.decode(content)


def read_commits(run_dir: str, storage_options: dict[str, Any] | None = None) -> list[CommitRecord]:
    """Every committed unit in input order, gathered by the driver or not."""
    store = open_store(run_dir, storage_options)
    records = {**read_inbox(store), **_read_commits(store)}
    return in_input_order(records.values(), {})


def read_units(run_dir: str, storage_options: dict[str, Any] | None = None) -> list[Unit]:
    """The units as they were listed; empty if no attempt got to the end of the list."""
    content = open_store(run_dir, storage_options).read("units.jsonl") or b""
    return [msgspec.json.decode(line, type=Unit) for line in content.splitlines()]


def read_manifest(run_dir: str, storage_options: dict[str, Any] | None = None) -> list[ManifestLine]:
    """Finished output files in input order; empty before the first attempt finished."""
    content = open_store(run_dir, storage_options).read("manifest.jsonl") or b""
    return [msgspec.json.decode(line, type=ManifestLine) for line in content.splitlines()]


def read_quarantine(run_dir: str, storage_options: dict[str, Any] | None = None) -> Iterator[QuarantineEntry]:
    """What is in quarantine now, in input order: without what a retry brought into the output."""
    store = open_store(run_dir, storage_options)
    records = read_commits(run_dir, storage_options)
    files = open_files(store, latest_retries(record.unit for record in records))
    for record in records:
        if record.unit in files:
            yield from read_entries(store, files[record.unit])
