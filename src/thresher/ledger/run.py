# SPDX-License-Identifier: Apache-2.0
"""Opening a run: which folder, whose it is, and whether an earlier attempt goes on. A refused run leaves no trace."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from thresher.core.filesystem import is_url, join
from thresher.errors import OutputRefusedError, UsageError
from thresher.ledger import checks
from thresher.ledger.archive import archive, remove_unfinished
from thresher.ledger.failures import writing
from thresher.ledger.holder import process_exists, this_process
from thresher.ledger.journal import INBOX, Journal
from thresher.ledger.lock import Lease, RunLock, take_lock
from thresher.ledger.open_run import OpenRun, RunFolder, abort_uploads
from thresher.ledger.place import CommitPlace
from thresher.ledger.quarantine import encode_text
from thresher.ledger.recipe_text import masked, yaml_text
from thresher.ledger.records import encode
from thresher.ledger.request import (
    RUN_FILE,
    Attempt,
    RunRequest,
    RunState,
    absolute_folder,
    new_run_id,
    read_state,
    run_folder,
    timestamp,
)
from thresher.ledger.secrets import refuse_password
from thresher.ledger.store import Store, open_store, remove_listed
from thresher.version import __version__

__all__ = ["OpenRun", "RunRequest", "open_run"]

SINGLE_WRITER = (
    "{}: this store does not heed conditions on a put (If-None-Match). Nothing keeps two runs from writing here at the "
    "same time: start one at a time"
)
_SCRATCH = ".thresher-"
"""Begins the name of a folder for unfinished files in an output folder, where no local run folder can hold them."""


def open_run(request: RunRequest) -> OpenRun:
    """Open and lock the run folder; refuse before anything is made where the output is not ours to write."""
    run_id = new_run_id()
    place = _place(request, run_id)
    output = None if place.output is None else open_store(place.output, place.storage_options)
    if place.run_dir is None:
        return _open_without_ledger(request, run_id, place, output)
    store = open_store(place.run_dir, place.storage_options)
    with writing(place.run_dir):
        if read_state(store.read(RUN_FILE)) is None:
            _refuse_foreign(request, output)
        store.make_folder()
        lock = take_lock(store, this_process(timestamp(), run_id), time.time)
        try:
            return _open_locked(request, place, store, (lock, run_id))
        except BaseException:
            lock.release()
            raise


def _place(request: RunRequest, run_id: str) -> CommitPlace:
    """As far as it can be said before anything was looked at."""
    for url in (request.sink_path, request.dropped_to, request.run_dir):
        refuse_password(url)
    output = None if request.sink_path is None else absolute_folder(request.sink_path)
    dropped_to = None if request.dropped_to is None else absolute_folder(request.dropped_to)
    if output is not None and output == dropped_to:
        raise UsageError(f"dropped_to: {request.dropped_to!r} is the output folder itself; give another folder")
    return CommitPlace(
        output=output,
        run_dir=run_folder(request, run_id) if request.ledger else None,
        attempt=1,
        tmp="",
        extension=request.extension,
        prefix=f"{request.digest[:8]}-" if request.mode == "append" else "",
        dropped_to=dropped_to,
        storage_options=request.options,
    )


def _refuse_foreign(request: RunRequest, output: Store | None) -> None:
    if output is not None and request.mode == "error":
        checks.refuse_foreign(output.root, checks.foreign_names(output))


# -- with a run folder ------------------------------------------------------------------------------------------------


def _open_locked(request: RunRequest, place: CommitPlace, store: Store, held: tuple[RunLock, str]) -> OpenRun:
    lock, run_id = held
    state = _state(request, place, store, run_id)
    exclusive = lock.exclusive if isinstance(lock, Lease) else True
    place = replace(place, attempt=len(state.attempts) + 1, prefix=state.prefix, run_id=state.run_id)
    place = replace(_with_folders(request, place, state.run_id), conditional=exclusive)
    journal = Journal(store, _synced_folders(place), state.run_id)
    journal.recover()
    _remove_leftovers(store, place, state.attempts)
    inside = place.tmp.startswith(store.root)
    host = os.uname().nodename
    state.attempts.append(
        Attempt(place.attempt, request.executor, host, os.getpid(), timestamp(), tmp=None if inside else place.tmp)
    )
    _write_state(store, state)
    if request.plan is not None:
        store.write("plan.json", msgspec.json.format(encode_text(masked(request.plan)), indent=2) + b"\n")
    if request.recipe is not None:
        store.write("recipe.yaml", yaml_text(masked(request.recipe)).encode("utf-8"))
    run = OpenRun(request, state.run_id, place, RunFolder(store, journal, lock, state))
    if not exclusive:
        run.warnings.append(SINGLE_WRITER.format(store.root))
    return run


def _state(request: RunRequest, place: CommitPlace, store: Store, run_id: str) -> RunState:
    """What `run.json` will say: of a new run, of one that starts over, or of one that goes on."""
    new = RunState(
        run_id=run_id,
        name=request.name,
        fingerprint=request.digest,
        fingerprint_parts=dict(request.fingerprint),
        output=place.output,
        prefix=place.prefix,
        clears=request.mode == "overwrite",
    )
    found = read_state(store.read(RUN_FILE))
    if found is None:
        _refuse_foreign(request, None if place.output is None else open_store(place.output, place.storage_options))
        state = new
    elif _starts_over(request, found):
        new.replaces = archive(store, found)
        state = new
        _write_state(store, state)
    else:
        _refuse_other_run(request, place, found)
        state = found
        state.fingerprint, state.fingerprint_parts = new.fingerprint, new.fingerprint_parts
        state.output = new.output
    state.dropped_to = place.dropped_to or state.dropped_to
    state.versions = {"thresher": __version__, "python": ".".join(str(n) for n in sys.version_info[:3])}
    return state


def _starts_over(request: RunRequest, found: RunState) -> bool:
    """Without a writer the results are in memory, so there is nothing to go on with."""
    replaced = request.mode == "overwrite" and found.fingerprint != request.digest and not request.accept_changes
    return request.fresh or request.sink_path is None or replaced or found.superseded


def _refuse_other_run(request: RunRequest, place: CommitPlace, found: RunState) -> None:
    if request.run_dir is not None and found.output != place.output:
        raise OutputRefusedError(
            f"{place.run_dir} belongs to a run that writes to {found.output or 'no folder'}, and this one writes to "
            f"{place.output}. Give another run folder, or --fresh (fresh=True) to start over"
        )
    if found.fingerprint != request.digest and not request.accept_changes:
        checks.refuse_changed(str(place.run_dir), checks.changed_parts(found.fingerprint_parts, request.fingerprint))


def _write_state(store: Store, state: RunState) -> None:
    store.write(RUN_FILE, msgspec.json.format(encode(state), indent=2) + b"\n")


def _with_folders(request: RunRequest, place: CommitPlace, run_id: str) -> CommitPlace:
    """Make the folders that workers write to."""
    run_dir = place.run_dir
    assert run_dir is not None, "a run with a ledger has a run folder"
    tmp = join(run_dir, "tmp", f"{place.attempt:03d}") if not is_url(run_dir) else _scratch(place, run_id)
    parts = join(run_dir, "parts") if request.target_file_size is not None else None
    for folder in (place.output, place.dropped_to, parts, join(run_dir, INBOX)):
        if folder is not None:
            with writing(folder):
                place.store(folder).make_folder()
    with writing(tmp):
        os.makedirs(tmp, exist_ok=True)
    return replace(place, tmp=tmp, parts=parts)


def _scratch(place: CommitPlace, run_id: str) -> str:
    """A local folder for unfinished files; in the output folder where that is local, so that renaming is enough."""
    name = f"{_SCRATCH}{run_id}-{os.getpid()}"
    if place.output is not None and not is_url(place.output):
        return os.path.join(place.output, name)
    return os.path.join(tempfile.gettempdir(), name.lstrip("."))


def _synced_folders(place: CommitPlace) -> list[Store]:
    own = [join(place.run_dir or "", name) for name in ("quarantine", "scores")]
    names: Sequence[str | None] = (place.parts, place.output, place.dropped_to, *own)
    return [place.store(name) for name in names if name is not None]


def _remove_leftovers(store: Store, place: CommitPlace, attempts: Sequence[Attempt]) -> None:
    """Remove unfinished files of earlier attempts."""
    mine = f"{place.attempt:03d}/"
    for name in store.names("tmp"):
        if name != mine:
            remove_listed(store, f"tmp/{name}")
    for attempt in attempts:
        if attempt.tmp is not None and attempt.host == os.uname().nodename and attempt.tmp != place.tmp:
            shutil.rmtree(attempt.tmp, ignore_errors=True)
    for folder in (place.output, place.dropped_to, place.run_dir):
        if folder is not None and not is_url(folder):
            remove_unfinished(open_store(folder))
    abort_uploads(place)


# -- without ----------------------------------------------------------------------------------------------------------


def _open_without_ledger(request: RunRequest, run_id: str, place: CommitPlace, output: Store | None) -> OpenRun:
    _refuse_foreign(request, output)
    place = replace(place, tmp=_scratch(place, run_id), run_id=run_id)
    place = replace(place, parts=os.path.join(place.tmp, "parts") if request.target_file_size is not None else None)
    for folder in (place.output, place.dropped_to, place.parts):
        if folder is not None:
            with writing(folder):
                open_store(folder, place.storage_options).make_folder()
    if place.output is not None and not is_url(place.output):
        _remove_dead_scratch(place.output)
    return OpenRun(request, run_id, place, None)


def _remove_dead_scratch(folder: str) -> None:
    """Folders for unfinished files whose process is gone."""
    for name in os.listdir(folder):
        pid = name.rpartition("-")[2]
        if name.startswith(_SCRATCH) and pid.isdigit() and not process_exists(int(pid)):
            with contextlib.suppress(OSError):
                shutil.rmtree(os.path.join(folder, name))
