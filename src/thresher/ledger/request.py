# SPDX-License-Identifier: Apache-2.0
"""What a run asks of its ledger, and which folder it gets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from thresher.core.filesystem import is_url, join, local_path
from thresher.core.fingerprint import combined
from thresher.ledger.store import open_store

RUN_FOLDER = "_thresher"
RUNS_FOLDER = os.path.join(".thresher", "runs")
RUN_FILE = "run.json"
UNITS_FILE = "units.jsonl"


@dataclass(frozen=True)
class RunRequest:
    """Everything that the ledger must know to open a run."""

    name: str
    """Of the pipeline."""
    sink_path: str | None = None
    """The output folder or URL; `None` for a pipeline without a writer."""
    run_dir: str | None = None
    """A run folder in place of the usual one."""
    mode: str = "error"
    """What to do with an output folder that holds something: `error`, `overwrite` or `append`."""
    storage_options: Mapping[str, Any] | None = None
    """How to open the output URL."""
    extension: str = ""
    """The end of output names."""
    dropped_to: str | None = None
    """A folder for dropped records."""
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    """What the output depends on, from `core.fingerprint.fingerprint`."""
    recipe: Mapping[str, Any] | None = None
    """The recipe as resolved."""
    plan: Mapping[str, Any] | None = None
    """The plan, for people."""
    executor: str = ""
    """Name of the executor."""
    fresh: bool = False
    """Start over."""
    accept_changes: bool = False
    """Go on although the pipeline changed."""
    ledger: bool = True
    """Keep a run folder."""
    target_file_size: int | None = None
    """Join files up to this size."""

    @property
    def digest(self) -> str:
        """The whole fingerprint as one hash."""
        return combined(self.fingerprint)

    @property
    def options(self) -> dict[str, Any]:
        """Storage options as a plain dict."""
        return dict(self.storage_options or {})


class Attempt(msgspec.Struct, omit_defaults=True):
    """One start of a run."""

    number: int
    """1 for the first."""
    executor: str
    """Name of the executor."""
    host: str
    """The driver's machine."""
    pid: int
    """The driver's process."""
    start: str
    """When it began (UTC)."""
    end: str | None = None
    """When it ended; missing if it was killed."""
    status: str | None = None
    """How it ended."""
    exit_code: int | None = None
    """What the command returned."""
    tmp: str | None = None
    """Its folder for unfinished files, where that is not in the run folder."""


class RunState(msgspec.Struct, omit_defaults=True):
    """`run.json`."""

    run_id: str
    """Sorts by time."""
    name: str
    """Of the pipeline."""
    fingerprint: str
    """One hash."""
    fingerprint_parts: dict[str, str] = {}
    """What it is made of."""
    versions: dict[str, str] = {}
    """Of Thresher and Python, at the last attempt."""
    output: str | None = None
    """The output folder or URL."""
    dropped_to: str | None = None
    """The folder or URL for dropped records, where one was asked for."""
    prefix: str = ""
    """Stands before output names (`mode="append"`)."""
    replaces: str | None = None
    """Folder of the old run whose files are removed at the first commit."""
    clears: bool = False
    """Whether data files in the output folder are removed at the first commit (`mode="overwrite"`)."""
    superseded: bool = False
    """Whether another run is about to take its place: its files are on their way to `old/`."""
    attempts: list[Attempt] = []
    """All starts, oldest first."""


def read_state(content: bytes | None) -> RunState | None:
    """What `run.json` says; `None` if there is none or it is not ours."""
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=RunState)
    except msgspec.DecodeError:
        return None


def new_run_id() -> str:
    """A name that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def timestamp() -> str:
    """The time of day, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_folder(request: RunRequest, run_id: str) -> str:
    """Where the run folder is or will be."""
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
    """A folder by a name that holds whatever the current folder is later."""
    return path.rstrip("/") if is_url(path) else os.path.abspath(os.path.expanduser(local_path(path)))
