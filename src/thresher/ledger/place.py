# SPDX-License-Identifier: Apache-2.0
"""Where a unit's files go: the one thing about a run folder that workers must know."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from thresher.core.filesystem import is_url
from thresher.core.unit import Unit
from thresher.errors import RunFailedError
from thresher.ledger.store import Store, open_store

JOIN_PREFIX = "join-"
"""Stands before the id of the first unit in the id of a unit that joins parts."""
_UNIT_FILE = re.compile(r"([^/]*-[0-9a-f]{12})-[0-9]{6,}[^/]*")


@dataclass(frozen=True)
class CommitPlace:
    """Sent to every worker; workers on any machine commit to the same place."""

    output: str | None
    """The output folder or URL; `None` where the pipeline has no writer."""
    run_dir: str | None
    """The run folder or URL; `None` without a ledger."""
    attempt: int
    """Number of the attempt."""
    tmp: str
    """A local folder for unfinished files; on the output's file system where that is local."""
    extension: str = ""
    """The end of output names."""
    prefix: str = ""
    """What `mode="append"` puts before output names."""
    dropped_to: str | None = None
    """A folder or URL for dropped records."""
    parts: str | None = None
    """A folder or URL for parts, where files are joined to a target size; else `None`."""
    storage_options: dict[str, Any] = field(default_factory=dict)
    """How to open URLs."""
    run_id: str = ""
    """The run; stands in the records and objects that it writes, so that those of another run are told apart."""
    conditional: bool = True
    """Whether the object store heeds conditions; without them there may be a single writer only."""

    def store(self, folder: str) -> Store:
        """The store behind one of the folders."""
        return open_store(folder, self.storage_options, self.conditional)

    def make_tmp(self) -> None:
        """Make the folder for unfinished files, where that is not in the run folder: there the driver made it."""
        self.refuse_if_superseded()
        if self.run_dir is None or is_url(self.run_dir):
            os.makedirs(self.tmp, exist_ok=True)

    def refuse_if_superseded(self) -> None:
        """Raise where the folder for unfinished files is gone from a local run folder.

        Then a newer attempt has removed it, and this process, which was believed dead, must not publish anything.
        """
        if self.run_dir is not None and not is_url(self.run_dir) and not os.path.isdir(self.tmp):
            raise self.superseded()

    def superseded(self) -> RunFailedError:
        """The error for a worker whose attempt is over."""
        return RunFailedError(
            f"{self.run_dir}: attempt {self.attempt} is over, a newer one goes on in its place; nothing was published"
        )

    def output_name(self, unit: Unit) -> str:
        """The name of a unit's output file; a joined file is named after its first unit."""
        return f"{self.prefix}{unit.stem}-{unit.id.removeprefix(JOIN_PREFIX)}{self.extension}"

    def part_name(self, unit: Unit) -> str:
        """The name of a unit's part."""
        return f"{unit.stem}-{unit.id}{self.extension}"

    def dropped_name(self, unit: Unit) -> str:
        """The name of the file with a unit's dropped records."""
        return f"{self.prefix}{unit.stem}-{unit.id}.jsonl"


def is_unit_file(name: str, prefix: str = "") -> bool:
    """Whether a name is one that a run with this prefix gives to the file of a unit."""
    return name.startswith(prefix) and _UNIT_FILE.fullmatch(name) is not None


def source_of(name: str) -> str | None:
    """What the names of all files of one source begin with; `None` for a name that no unit's file has."""
    found = _UNIT_FILE.fullmatch(name)
    return None if found is None else found[1]
