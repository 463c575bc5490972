# SPDX-License-Identifier: Apache-2.0
"""Open a run: choose and lock its folder, resume or start over, and store its plan and recipe. A refused run leaves no
trace."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from thresher.core.files.filesystem import is_url, join
from thresher.core.outlets import DROPPED, KEPT_STREAMS
from thresher.core.outlets import FOLDER as OUTLETS
from thresher.credentials import has_credentials, without_credentials
from thresher.errors import OutputRefusedError, UsageError
from thresher.ledger.folder.lock import Lease, RunLock, process_exists, take_lock, this_process
from thresher.ledger.folder.open_run import OpenRun, RunFolder
from thresher.ledger.folder.output_files import (
    abort_uploads,
    archive,
    foreign_names,
    refuse_foreign,
    remove_unfinished,
)
from thresher.ledger.folder.request import (
    RUN_FILE,
    RUN_FOLDER,
    Attempt,
    RunRequest,
    RunState,
    absolute_folder,
    changed_options,
    changed_parts,
    new_run_id,
    read_state,
    refuse_changed,
    refuse_changed_options,
    run_folder,
    timestamp,
    write_state,
)
from thresher.ledger.records import INBOX, Journal, encode_text, read_commits, read_inbox
from thresher.ledger.stores.errors import making, writing
from thresher.ledger.stores.store import Store, open_store, remove_listed
from thresher.ledger.unit_output import CommitTarget
from thresher.version import __version__

__all__ = ["OpenRun", "RunRequest", "open_run"]

SINGLE_WRITER = (
    "{}: this store does not honour conditions on a put (If-None-Match). Nothing keeps two runs from writing here at "
    "the same time: start one at a time"
)
STARTS_OVER = "starting over, since nothing had been written so far and something changed: {}"
_SECRET = re.compile(r"key|secret|token|password|passwd|credential|sas|connection_string", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_HIDDEN = "***"
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_SCRATCH = ".thresher-"
"""Prefix of the folder for unfinished files in an output folder, if there is no local run folder."""


def open_run(request: RunRequest) -> OpenRun:
    """Open and lock the run folder; refuse before creating anything if the output is not ours to write."""
    run_id = new_run_id()
    _require_roots(request)
    target = _commit_target(request, run_id)
    output = None if target.output is None else open_store(target.output, target.storage_options)
    if target.run_dir is None:
        return _open_without_ledger(request, run_id, target, output)
    store = open_store(target.run_dir, target.storage_options)
    with writing(target.run_dir):
        if read_state(store.read(RUN_FILE)) is None:
            _refuse_foreign(request, output)
        with making(target.run_dir):
            store.make_folder()
        lock = take_lock(store, this_process(timestamp(), run_id), time.time)
        try:
            return _open_locked(request, target, store, (lock, run_id))
        except BaseException:
            lock.release()
            raise


def refuse_unusable(request: RunRequest, origin: str) -> None:
    """Refuse what `open_run` would refuse, without creating anything. `origin`: the outlet whose output it is, which
    may hold the files of an earlier run of that outlet."""
    from thresher.ledger.folder.outlets import belongs_to

    _require_roots(request)
    target = _commit_target(request, "")
    assert target.output is not None, "an outlet has a writer"
    assert target.run_dir is not None, "an outlet has a run folder"
    if not belongs_to(target.run_dir, origin, request.options)[0]:
        names = foreign_names(open_store(target.output, request.options))
        if read_state(open_store(target.run_dir, request.options).read(RUN_FILE)) is not None:
            names = names or [RUN_FOLDER]
        if request.mode == "error":
            refuse_foreign(target.output, names)


def _require_roots(request: RunRequest) -> None:
    """Refuse URLs that hold credentials, whose server does not answer, or whose bucket does not exist."""
    for url in (request.sink_path, request.dropped_to, request.run_dir if request.ledger else None):
        refuse_password(url)
        if url is not None and is_url(url):
            open_store(url, request.options).require_root()


def refuse_password(url: str | None) -> None:
    """Refuse a URL with credentials for a folder that has no storage options of its own."""
    if url is not None and is_url(url) and has_credentials(url):
        raise UsageError(
            f"{without_credentials(url)}: the URL holds a password or a key, which would be shown; "
            "give it in the storage_options of the writer"
        )


def _commit_target(request: RunRequest, run_id: str) -> CommitTarget:
    """Return the commit folders as far as they are known before anything is read."""
    output = None if request.sink_path is None else absolute_folder(request.sink_path)
    run_dir = run_folder(request, run_id) if request.ledger else None
    dropped_to = None if request.dropped_to is None else absolute_folder(request.dropped_to)
    if dropped_to is None and run_dir is not None and DROPPED in request.outlets:
        dropped_to = join(run_dir, OUTLETS, DROPPED)
    if output is not None and output == dropped_to:
        raise UsageError(f"dropped_to: {request.dropped_to!r} is the output folder itself; give another folder")
    if _has_parts(request) and request.suffixes != ("",):
        raise UsageError(
            f"{request.sink_path}: a writer of several files per unit cannot have them joined, nor a schema that is "
            "settled during the run; leave out target_file_size"
        )
    return CommitTarget(
        output=output,
        run_dir=run_dir,
        attempt=1,
        tmp="",
        extension=request.extension,
        suffixes=tuple(request.suffixes),
        prefix=f"{request.digest[:8]}-" if request.mode == "append" else "",
        dropped_to=dropped_to,
        storage_options=request.options,
        joins=request.target_file_size is not None,
        schema_mode=request.schema_mode,
        phase_extensions=request.phase_extensions,
        phase_readers=request.phase_readers,
        outlets=None if run_dir is None else join(run_dir, OUTLETS),
    )


def _refuse_foreign(request: RunRequest, output: Store | None) -> None:
    if output is not None and request.mode == "error":
        refuse_foreign(output.root, foreign_names(output))


# -- with a run folder ------------------------------------------------------------------------------------------------


def _open_locked(request: RunRequest, target: CommitTarget, store: Store, held: tuple[RunLock, str]) -> OpenRun:
    lock, run_id = held
    notices: list[str] = []
    state = _state(request, target, store, run_id, notices)
    exclusive = lock.exclusive if isinstance(lock, Lease) else True
    target = replace(target, attempt=len(state.attempts) + 1, prefix=state.prefix, run_id=state.run_id)
    target = replace(_with_folders(request, target, state.run_id), conditional=exclusive)
    journal = Journal(store, _synced_folders(request, target), state.run_id)
    journal.recover()
    _remove_leftovers(store, target, state.attempts)
    inside = target.tmp.startswith(store.root)
    host = os.uname().nodename
    state.attempts.append(
        Attempt(target.attempt, request.executor, host, os.getpid(), timestamp(), tmp=None if inside else target.tmp)
    )
    write_state(store, state)
    if request.plan is not None:
        store.write("plan.json", msgspec.json.format(encode_text(masked(request.plan)), indent=2) + b"\n")
    if request.recipe is not None:
        store.write("recipe.yaml", yaml_text(masked(request.recipe)).encode("utf-8"))
    run = OpenRun(request, state.run_id, target, RunFolder(store, journal, lock, state))
    run.warnings += notices
    if not exclusive:
        run.warnings.append(SINGLE_WRITER.format(store.root))
    return run


def _state(request: RunRequest, target: CommitTarget, store: Store, run_id: str, notices: list[str]) -> RunState:
    """Return the content of `run.json` for a new run, one that starts over, or one that resumes.

    Add what the user should know to `notices`.
    """
    new = RunState(
        run_id=run_id,
        name=request.name,
        fingerprint=request.digest,
        fingerprint_parts=dict(request.fingerprint),
        output=target.output,
        prefix=target.prefix,
        clears=request.mode == "overwrite",
    )
    found = read_state(store.read(RUN_FILE))
    if found is None:
        _refuse_foreign(request, None if target.output is None else open_store(target.output, target.storage_options))
        state = new
    elif _must_start_over(request, found) or not _resumes(request, target, store, found, notices):
        if found.dropped_to not in (None, target.dropped_to):
            notices.append(f"dropped records of the run that is replaced stay in {found.dropped_to}")
        new.replaces = archive(store, found)
        state = new
        write_state(store, state)
    else:
        state = found
        state.fingerprint, state.fingerprint_parts = new.fingerprint, new.fingerprint_parts
        state.output = new.output
    state.dropped_to = target.dropped_to or state.dropped_to
    state.keep_scores = request.keep_scores or state.keep_scores
    state.versions = {"thresher": __version__, "python": ".".join(str(n) for n in sys.version_info[:3])}
    return state


def _must_start_over(request: RunRequest, found: RunState) -> bool:
    """Return True if the run must start over. Without a writer the results were in memory, so there is nothing to
    resume, unless the request says that they are not needed."""
    loses_results = request.sink_path is None and not request.skip_done
    replaced = request.mode == "overwrite" and found.fingerprint != request.digest and not request.accept_changes
    return request.fresh or loses_results or replaced or found.superseded


def _resumes(request: RunRequest, target: CommitTarget, store: Store, found: RunState, notices: list[str]) -> bool:
    """Return True to resume a run, False to start over because it has written nothing yet; else refuse the changes."""
    if request.run_dir is not None and found.output != target.output:
        raise OutputRefusedError(
            f"{target.run_dir} belongs to a run that writes to {found.output or 'no folder'}, and this one writes to "
            f"{target.output}. Give another run folder, or --fresh (fresh=True) to start over"
        )
    changes = changed_parts(found.fingerprint_parts, request.fingerprint)
    options = changed_options(found, target.dropped_to, request.keep_scores)
    if request.accept_changes:
        notices += [f"{text}; what is done stays as it is" for text in options]
        return True
    if found.fingerprint == request.digest and not options:
        return True
    done = {**read_inbox(store, found.run_id), **read_commits(store)}
    if any(record.outputs or record.dropped_outputs or record.sent for record in done.values()):
        if found.fingerprint != request.digest:
            refuse_changed(str(target.run_dir), changes)
        refuse_changed_options(str(target.run_dir), options)
    if done:
        notices.append(STARTS_OVER.format("; ".join((*changes, *options))))
    return not done and found.fingerprint == request.digest


def _with_folders(request: RunRequest, target: CommitTarget, run_id: str) -> CommitTarget:
    """Create the folders that workers write to."""
    run_dir = target.run_dir
    assert run_dir is not None, "a run with a ledger has a run folder"
    tmp = join(run_dir, "tmp", f"{target.attempt:03d}") if not is_url(run_dir) else _scratch(target, run_id)
    parts = join(run_dir, "parts") if _has_parts(request) else None
    target = replace(target, tmp=tmp, parts=parts, phases=join(run_dir, "phases"))
    own = (join(run_dir, INBOX), *_phase_folders(target), *_outlet_folders(request, run_dir))
    for folder in (target.output, target.dropped_to, parts, *own):
        if folder is not None:
            with making(folder):
                target.store(folder).make_folder()
    with making(tmp):
        os.makedirs(tmp, exist_ok=True)
    return target


def _phase_folders(target: CommitTarget) -> list[str]:
    return [target.phase_folder(phase) for phase in range(len(target.phase_extensions))]


def _outlet_folders(request: RunRequest, run_dir: str) -> list[str]:
    return [join(run_dir, OUTLETS, name) for name in request.outlets if name not in KEPT_STREAMS]


def _has_parts(request: RunRequest) -> bool:
    return request.target_file_size is not None or request.schema_mode in ("first", "listed")


def _scratch(target: CommitTarget, run_id: str) -> str:
    """Return a local folder for unfinished files, inside a local output folder so that a rename is enough."""
    name = f"{_SCRATCH}{run_id}-{os.getpid()}"
    if target.output is not None and not is_url(target.output):
        return os.path.join(target.output, name)
    return os.path.join(tempfile.gettempdir(), name.lstrip("."))


def _synced_folders(request: RunRequest, target: CommitTarget) -> list[Store]:
    run_dir = target.run_dir or ""
    own = [*(join(run_dir, name) for name in ("quarantine", "scores")), *_outlet_folders(request, run_dir)]
    names: Sequence[str | None] = (target.parts, target.output, target.dropped_to, *_phase_folders(target), *own)
    return [target.store(name) for name in names if name is not None]


def _remove_leftovers(store: Store, target: CommitTarget, attempts: Sequence[Attempt]) -> None:
    """Remove unfinished files of earlier attempts."""
    mine = f"{target.attempt:03d}/"
    for name in store.names("tmp"):
        if name != mine:
            remove_listed(store, f"tmp/{name}")
    for attempt in attempts:
        if attempt.tmp is not None and attempt.host == os.uname().nodename and attempt.tmp != target.tmp:
            shutil.rmtree(attempt.tmp, ignore_errors=True)
    for folder in (target.output, target.dropped_to, target.run_dir):
        if folder is not None and not is_url(folder):
            remove_unfinished(open_store(folder))
    abort_uploads(target)


# -- without ----------------------------------------------------------------------------------------------------------


def _open_without_ledger(request: RunRequest, run_id: str, target: CommitTarget, output: Store | None) -> OpenRun:
    _refuse_foreign(request, output)
    target = replace(target, tmp=_scratch(target, run_id), run_id=run_id)
    parts = os.path.join(target.tmp, "parts") if _has_parts(request) else None
    target = replace(target, parts=parts, phases=os.path.join(target.tmp, "phases"))
    for folder in (target.output, target.dropped_to, target.parts, *_phase_folders(target)):
        if folder is not None:
            with making(folder):
                open_store(folder, target.storage_options).make_folder()
    if target.output is not None and not is_url(target.output):
        _remove_stale_scratch(target.output)
    return OpenRun(request, run_id, target, None)


def _remove_stale_scratch(folder: str) -> None:
    """Remove the folders for unfinished files of processes that are gone."""
    for name in os.listdir(folder):
        pid = name.rpartition("-")[2]
        if name.startswith(_SCRATCH) and pid.isdigit() and not process_exists(int(pid)):
            with contextlib.suppress(OSError):
                shutil.rmtree(os.path.join(folder, name))


# -- text of the plan and the recipe; the driver needs no YAML library -------------------------------------------------


def masked(value: Any, inside_options: bool = False) -> Any:
    """Return `value` with the secrets in all `storage_options` replaced by `***`."""
    if isinstance(value, Mapping):
        return {
            key: _HIDDEN
            if inside_options and _SECRET.search(str(key)) and not isinstance(item, Mapping)
            else masked(item, inside_options or key == "storage_options")
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked(item, inside_options) for item in value]
    return value


def yaml_text(value: Any) -> str:
    """Return plain data as block YAML; scalars are written as JSON, which every YAML reader accepts."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key, item in value.items() for line in _entry(f"{_key(key)}:", item)]
    if isinstance(value, list | tuple) and value:
        return [line for item in value for line in _item(item)]
    return [_scalar(value)]


def _entry(head: str, item: Any) -> list[str]:
    if isinstance(item, Mapping | list | tuple) and item:
        return [head, *("  " + line for line in _lines(item))]
    return [f"{head} {_scalar(item)}"]


def _item(item: Any) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *("  " + line for line in rest)]


def _key(key: Any) -> str:
    text = str(key)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED else _scalar(text)


def _scalar(value: Any) -> str:
    """Return JSON, with the few characters escaped that YAML does not allow or treats as a line end."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode_text(value).decode("utf-8"))
