# SPDX-License-Identifier: Apache-2.0
"""Where a unit's files go: the one thing about a run folder that workers must know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thresher.core.unit import Unit

JOIN_PREFIX = "join-"
"""Stands before the id of the first unit in the id of a unit that joins parts."""


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

    def output_name(self, unit: Unit) -> str:
        """The name of a unit's output file; a joined file is named after its first unit."""
        return f"{self.prefix}{unit.stem}-{unit.id.removeprefix(JOIN_PREFIX)}{self.extension}"

    def part_name(self, unit: Unit) -> str:
        """The name of a unit's part."""
        return f"{unit.stem}-{unit.id}{self.extension}"

    def dropped_name(self, unit: Unit) -> str:
        """The name of the file with a unit's dropped records."""
        return f"{self.prefix}{unit.stem}-{unit.id}.jsonl"
