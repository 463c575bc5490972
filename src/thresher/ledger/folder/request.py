# SPDX-License-Identifier: Apache-2.0
"""The settings that the ledger needs to open a run, the content of `run.json`, and the location of the run folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from thresher.core.files.filesystem import is_url, join, local_path
from thresher.core.planning.fingerprint import combined
from thresher.ledger.stores.store import open_store

RUN_FOLDER = "_thresher"
RUNS_FOLDER = os.path.join(".thresher", "runs")
RUN_FILE = "run.json"
UNITS_FILE = "units.jsonl"


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
    accept_changes: bool = False
    """Resume although the pipeline changed."""
    keep_scores: bool = False
    """Keep scores in the run folder."""
    ledger: bool = True
    """Keep a run folder."""
    target_file_size: int | None = None
    """Target size of joined files."""
    schema_mode: str = ""
    """How the schema of the run is fixed; see `CommitTarget`."""

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
