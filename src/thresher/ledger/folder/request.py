# SPDX-License-Identifier: Apache-2.0
"""The request to open a run, the content of `run.json`, and checks of a request against the run that it resumes."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from thresher.core.arguments.options import RUN_FOLDER as RUN_FOLDER
from thresher.core.files.filesystem import is_hidden, is_url, join, local_path
from thresher.core.planning.fingerprint import combined
from thresher.core.unit import Unit
from thresher.credentials import without_credentials
from thresher.errors import OutputRefusedError, PlanError
from thresher.ledger.stores.store import Store, open_store

RUNS_FOLDER = os.path.join(".thresher", "runs")
RUN_FILE = "run.json"
UNITS_FILE = "units.jsonl"
_SHOWN = 3
_PASSWORD = re.compile(rb'(://[^/@:\s"]*:)[^/@\s"]+@')


@dataclass(frozen=True)
class RunRequest:
    """Settings that the ledger needs to open a run."""

    name: str
    """Name of the pipeline."""
    sink_path: str | None = None
    """Output folder or URL; `None` for a pipeline without a writer."""
    run_dir: str | None = None
    """Run folder instead of the default one."""
    mode: str = "error"
    """Handling of an output folder that is not empty: `error`, `overwrite` or `append`."""
    storage_options: Mapping[str, Any] | None = None
    """Options for opening the output URL."""
    extension: str = ""
    """End of output names."""
    suffixes: tuple[str, ...] = ("",)
    """Suffixes of the names of a unit's files; see `SinkStage.suffixes`."""
    dropped_to: str | None = None
    """Folder for dropped records."""
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    """Hashes of everything that the output depends on, from `core.planning.fingerprint`."""
    recipe: Mapping[str, Any] | None = None
    """The resolved recipe."""
    plan: Mapping[str, Any] | None = None
    """The plan as data, for `plan.json`."""
    executor: str = ""
    """Name of the executor."""
    fresh: bool = False
    """Start over."""
    skip_done: bool = False
    """Resume also without a writer, where the results of what is done were in memory."""
    accept_changes: bool = False
    """Resume although the pipeline changed."""
    keep_scores: bool = False
    """Keep scores in the run folder."""
    ledger: bool = True
    """Keep a run folder."""
    target_file_size: int | None = None
    """Target size of joined files."""
    schema_mode: str = ""
    """Rule by which the schema of the run is fixed; see `CommitTarget`."""
    phase_extensions: tuple[str, ...] = ()
    """End of the names of files that phases hand on, by phase."""
    phase_readers: tuple[int, ...] = ()
    """The last phase that reads these files, by phase."""
    copying_phases: tuple[int, ...] = ()
    """The phases that write all records as they read them."""
    outlets: tuple[str, ...] = ()
    """Names of the outlets of the pipeline."""

    @property
    def digest(self) -> str:
        """Return the whole fingerprint as one hash."""
        return combined(self.fingerprint)

    @property
    def options(self) -> dict[str, Any]:
        """Return the storage options as a plain dict."""
        return dict(self.storage_options or {})


class Attempt(msgspec.Struct, omit_defaults=True):
    """One start of a run."""

    number: int
    """Number, from 1 on."""
    executor: str
    """Name of the executor."""
    host: str
    """Host of the driver."""
    pid: int
    """Process id of the driver."""
    start: str
    """Start time (UTC)."""
    end: str | None = None
    """End time; missing if it was killed."""
    status: str | None = None
    """Final status."""
    exit_code: int | None = None
    """Exit code of the command."""
    tmp: str | None = None
    """Folder for unfinished files, if it is not in the run folder."""


class RunState(msgspec.Struct, omit_defaults=True):
    """Content of `run.json`."""

    run_id: str
    """Run id, which sorts by time."""
    name: str
    """Name of the pipeline."""
    fingerprint: str
    """Fingerprint as one hash."""
    fingerprint_parts: dict[str, str] = {}
    """Hashes that the fingerprint consists of."""
    versions: dict[str, str] = {}
    """Versions of Thresher and Python at the last attempt."""
    output: str | None = None
    """Output folder or URL."""
    dropped_to: str | None = None
    """Folder or URL for dropped records, if set."""
    keep_scores: bool = False
    """True if scores are kept."""
    prefix: str = ""
    """Prefix of output names (`mode="append"`)."""
    replaces: str | None = None
    """Folder of the old run whose files are removed at the first commit."""
    clears: bool = False
    """True if data files in the output folder are removed at the first commit (`mode="overwrite"`)."""
    superseded: bool = False
    """True while another run replaces it and its files are moved to `old/`."""
    attempts: list[Attempt] = []
    """All attempts, oldest first."""


def read_state(content: bytes | None) -> RunState | None:
    """Return the content of `run.json`; `None` if it is missing or not ours."""
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=RunState)
    except msgspec.DecodeError:
        return None


def write_state(store: Store, state: RunState) -> None:
    """Write `run.json`."""
    store.write(RUN_FILE, msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")


def new_run_id() -> str:
    """Return a new run id, which sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def timestamp() -> str:
    """Return the current time in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_folder(request: RunRequest, run_id: str) -> str:
    """Return the current or future location of the run folder."""
    if request.run_dir is not None:
        return absolute_folder(request.run_dir)
    if request.sink_path is None:
        return os.path.abspath(os.path.join(RUNS_FOLDER, run_id))
    usual = join(absolute_folder(request.sink_path), RUN_FOLDER)
    if request.mode == "append":
        state = read_state(open_store(usual, request.options).read(RUN_FILE))
        if state is not None and state.fingerprint != request.digest:
            return f"{usual}-{request.digest[:8]}"
    return usual


def absolute_folder(path: str) -> str:
    """Return an absolute path, which stays valid if the current folder changes."""
    return path.rstrip("/") if is_url(path) else os.path.abspath(os.path.expanduser(local_path(path)))


def without_passwords(text: bytes) -> bytes:
    """Return `text` with the passwords in its URLs replaced by `***`."""
    return _PASSWORD.sub(rb"\1***@", text) if b"@" in text else text


def first_few(names: Sequence[str]) -> str:
    """Return the first few names and the number of the others."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


# -- the pipeline -----------------------------------------------------------------------------------------------------


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Describe the differences between two fingerprints (see `core.planning.fingerprint`)."""
    before, after = _stages(old), _stages(new)
    changes = [f"stage {name} is gone" for name in before if name not in after]
    changes += [f"stage {name} is new" for name in after if name not in before]
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key) and not (key == "stages" and changes):
            change = _change(key, old, new, before.keys() & after.keys())
            changes += [change] if change else []
    return changes


def _stages(parts: Mapping[str, str]) -> dict[str, None]:
    return {key.removesuffix(".parameters"): None for key in parts if key.endswith(".parameters")}


def _change(key: str, old: Mapping[str, str], new: Mapping[str, str], kept: set[str]) -> str | None:
    """Describe one difference; `None` for a part of a stage that is new or gone, which is described already."""
    if key == "version":
        return f"the Thresher version ({old.get(key, 'unknown')} before, {new.get(key, 'unknown')} now)"
    if key == "stages":
        return "the order or the classes of the stages"
    if key == "outlets":
        return "the outlets"
    stage, _, kind = key.rpartition(".")
    what = {"parameters": "the parameters of stage", "code": "the source code of stage"}.get(kind)
    if what is None:
        return key
    return f"{what} {stage}" if stage in kept else None


def refuse_changed(run_dir: str, changes: Sequence[str]) -> None:
    """Refuse to resume with a changed pipeline."""
    listed = "; ".join(dict.fromkeys(changes))
    raise OutputRefusedError(
        f"{run_dir} belongs to a run of a different pipeline. Changed: {listed}. Use --accept-changes "
        "(accept_changes=True) to keep what is done and go on, --fresh (fresh=True) to start over, or another "
        "output path"
    )


def changed_options(before: RunState, dropped_to: str | None, keep_scores: bool) -> list[str]:
    """Describe the options that differ from those of the committed units. An option left out matters only while units
    are left."""
    finished = any(attempt.exit_code == 0 for attempt in before.attempts)
    changes = []
    if dropped_to is not None and before.dropped_to is None:
        changes.append("--dropped-to (dropped_to=…) was not given when this run began")
    elif dropped_to is not None and dropped_to != before.dropped_to:
        changes.append(f"this run began with --dropped-to {before.dropped_to}, not {dropped_to}")
    elif dropped_to is None and before.dropped_to is not None and not finished:
        changes.append(f"this run began with --dropped-to {before.dropped_to}, which is not given now")
    if keep_scores and not before.keep_scores:
        changes.append("--keep-scores (keep_scores=True) was not given when this run began")
    elif before.keep_scores and not keep_scores and not finished:
        changes.append("this run began with --keep-scores (keep_scores=True), which is not given now")
    return changes


def refuse_changed_options(run_dir: str, changes: Sequence[str]) -> None:
    """Refuse options that would apply to a part of the input only."""
    raise OutputRefusedError(
        f"{run_dir}: {'; '.join(changes)}. Options have no effect on what is done. Give those with which the run "
        "began, use --fresh (fresh=True) to start over with the new ones, or --accept-changes (accept_changes=True) to "
        "apply them to the rest of the input alone"
    )


# -- the input --------------------------------------------------------------------------------------------------------


class InputChangedError(OutputRefusedError):
    """The input changed since the run began; `what` describes the change."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


def changed_inputs(previous: Iterable[Unit], units: Iterable[Unit]) -> str | None:
    """Describe the differences between the input files of two complete lists of units; `None` if there are none."""
    before, after = _files(previous), _files(units)
    changed = [name for name, facts in before.items() if name in after and after[name] != facts]
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    facts = [
        f"{what}: {first_few(names)}" for what, names in (("changed", changed), ("gone", gone), ("new", new)) if names
    ]
    return "; ".join(facts) or None


def refuse_changed_inputs(run_dir: str, change: str) -> None:
    """Refuse to resume with a changed input."""
    raise InputChangedError(
        f"the input ({change})",
        f"{run_dir}: the input is not what it was when this run began ({change}). Use --accept-changes "
        "(accept_changes=True) to keep what is done and process what is new, --fresh (fresh=True) to start over, "
        "or another output path",
    )


def _files(units: Iterable[Unit]) -> dict[str, tuple[int, str]]:
    return {piece.relative: (piece.size, piece.version) for unit in units for piece in unit.pieces}


# -- folders inside each other ----------------------------------------------------------------------------------------


def check_nesting(input_roots: Iterable[str], output: str, name: str = "output") -> None:
    """Refuse an output that the reader would read, or that contains the input. Roots are folders or single files.

    `name` is the word for the folder in messages.
    """
    target = _absolute(output)
    for root in input_roots:
        source = _absolute(root)
        if source == target:
            raise PlanError(f"the {name} {output} is the input itself; choose another path")
        if _below(target, source):
            raise PlanError(
                f"the {name} {output} lies inside the input {root}, so its files would be read as input; "
                "choose a path outside it"
            )
        if _below(source, target):
            raise PlanError(
                f"the input {root} lies inside the {name} {output}; choose a path that does not hold the input"
            )


def check_can_be_written(name: str, path: str) -> None:
    """Refuse URLs of web servers, which can only be read."""
    scheme = path.partition("://")[0].lower()
    if scheme in ("http", "https"):
        raise PlanError(
            f"the {name} {path} is on a web server, and {scheme}:// URLs can only be read; choose a local folder, or "
            "a URL of an object store such as s3://BUCKET/FOLDER"
        )


def check_own_folders(output: str | None, dropped_to: str | None, run_dir: str | None) -> None:
    """Refuse nested folders of one run, where one would be taken for data of the other.

    The exception is a run folder inside the output, under a name that readers skip.
    """
    check_apart({"output": output, "folder for dropped records": dropped_to, "run folder": run_dir})


def check_apart(given: Mapping[str, str | None]) -> None:
    """Refuse folders, given by the words for them, that lie inside each other; see `check_own_folders`."""
    folders = [(name, _absolute(path), path) for name, path in given.items() if path is not None]
    for name, folder, shown in folders:
        for other, outer, _ in folders:
            if name == other or not (folder == outer or _below(folder, outer)):
                continue
            if (name, other) == ("run folder", "output") and is_hidden(folder.removeprefix(outer).lstrip("/")):
                continue
            where = "is" if folder == outer else "lies inside"
            raise PlanError(f"the {name} {shown} {where} the {other}; choose a path outside it")


def refuse_own_output(output: str, run_dir: str, path: str) -> None:
    """Refuse to write to the run whose scores are used, because `--fresh` would remove them. `path` is that of its
    writer."""
    taken = (run_dir, run_dir.removesuffix(f"/{RUN_FOLDER}"), without_credentials(path))
    if _absolute(without_credentials(output)) in map(_absolute, taken):
        raise OutputRefusedError(
            f"--output {without_credentials(output)} belongs to the run whose scores are used; choose another path"
        )


def _absolute(path: str) -> str:
    return path.rstrip("/") if is_url(path) else os.path.realpath(os.path.expanduser(local_path(path)))


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
