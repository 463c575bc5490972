# SPDX-License-Identifier: Apache-2.0
"""Folders and names of the files of a run's units: all that workers need to know about the run folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from thresher.core.files.filesystem import is_url
from thresher.core.unit import Unit
from thresher.errors import RunFailedError
from thresher.ledger.stores.store import Store, open_store

JOIN_PREFIX = "join-"
"""Prefix of the id of a unit that joins parts, before the id of its first unit."""
SCHEMA_FILE = "schema.json"
_UNIT_FILE = re.compile(r"([^/]*-[0-9a-f]{12})-[0-9]{6,}[^/]*")


@dataclass(frozen=True)
class CommitTarget:
    """The folders that units are committed to, as sent to every worker on any machine."""

    output: str | None
    """Output folder or URL; `None` if the pipeline has no writer."""
    run_dir: str | None
    """Run folder or URL; `None` without a ledger."""
    attempt: int
    """Number of the attempt."""
    tmp: str
    """Local folder for unfinished files; on the file system of the output if that is local."""
    extension: str = ""
    """End of output names."""
    prefix: str = ""
    """Prefix of output names in `mode="append"`."""
    dropped_to: str | None = None
    """Folder or URL for dropped records."""
    parts: str | None = None
    """Folder or URL for parts, if files are joined to a target size or share a schema that is fixed during the run;
    else `None`."""
    joins: bool = False
    """True if every unit becomes a part, because files are joined to a target size."""
    schema_mode: str = ""
    """How the schema of the run is fixed: `first`, the first unit of the input may fix it alone; `listed`, after the
    whole input is listed; `kept`, an existing one is used. Empty if files share no schema."""
    storage_options: dict[str, Any] = field(default_factory=dict)
    """Options for opening URLs."""
    run_id: str = ""
    """Run id. It is part of the records and objects of the run, to distinguish them from those of other runs."""
    conditional: bool = True
    """True if the object store honours conditions; without them only a single writer is safe."""

    def store(self, folder: str) -> Store:
        """Return the store of one of the folders."""
        return open_store(folder, self.storage_options, self.conditional)

    def schema(self) -> str:
        """Return the schema of the files of this run; empty if it is not fixed yet."""
        content = self.store(self.schema_folder).read(SCHEMA_FILE) if self.schema_mode else None
        return "" if content is None else content.decode("utf-8")

    def keep_schema(self, schema: str) -> None:
        """Record the schema of the run unless one is recorded."""
        self.refuse_if_superseded()
        self.store(self.schema_folder).create(SCHEMA_FILE, schema.encode("utf-8"))

    @property
    def schema_folder(self) -> str:
        """Return the folder of the schema: the run folder, or that of the parts if there is none."""
        folder = self.run_dir or self.parts
        assert folder is not None, "a run that settles a schema has one of these"
        return folder

    def make_tmp(self) -> None:
        """Create the folder for unfinished files unless it is in the run folder, where the driver has created it."""
        self.refuse_if_superseded()
        if self.run_dir is None or is_url(self.run_dir):
            os.makedirs(self.tmp, exist_ok=True)

    def refuse_if_superseded(self) -> None:
        """Raise if the folder for unfinished files is gone from a local run folder.

        A newer attempt has removed it, and a process of an older attempt must not publish anything.
        """
        if self.run_dir is not None and not is_url(self.run_dir) and not os.path.isdir(self.tmp):
            raise self.superseded()

    def superseded(self) -> RunFailedError:
        """Return the error for a worker whose attempt is over."""
        return RunFailedError(
            f"{self.run_dir}: attempt {self.attempt} is over, a newer one goes on in its place; nothing was published"
        )

    def output_name(self, unit: Unit) -> str:
        """Return the name of a unit's output file; a joined file is named after its first unit."""
        return f"{self.prefix}{unit.stem}-{unit.id.removeprefix(JOIN_PREFIX)}{self.extension}"

    def part_name(self, unit: Unit) -> str:
        """Return the name of a unit's part."""
        return f"{unit.stem}-{unit.id}{self.extension}"

    def dropped_name(self, unit: Unit) -> str:
        """Return the name of the file with a unit's dropped records."""
        return f"{self.prefix}{unit.stem}-{unit.id}.jsonl"


def is_unit_file(name: str, prefix: str = "") -> bool:
    """Return True if a run with this prefix names the file of a unit like this."""
    return name.startswith(prefix) and _UNIT_FILE.fullmatch(name) is not None


def source_of(name: str) -> str | None:
    """Return the common prefix of the names of all files of one source; `None` if the name is not that of a unit's
    file."""
    found = _UNIT_FILE.fullmatch(name)
    return None if found is None else found[1]
