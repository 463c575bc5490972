# SPDX-License-Identifier: Apache-2.0
"""Outlets: branches of a pipeline, each with stages and a writer of its own.

What a unit sends to an outlet is committed with the unit, as a file in the run folder. When all units are done, these
files are the input of the outlet's pipeline, which is a run of its own: it has a run folder and a report, and resumes
where it was interrupted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from thresher.errors import UsageError, nearest

DROPPED, QUARANTINED, SCORES = "dropped", "quarantined", "scores"
KEPT_STREAMS = {
    DROPPED: "records that rules dropped, as `--dropped-to` writes them",
    QUARANTINED: "entries of the quarantine",
    SCORES: "the scores of all records, as `--keep-scores` keeps them",
}
"""Outlets that no stage sends to: what every run can keep, and what that is."""
FOLDER = "outlets"
"""Folder in a run folder with what units have sent, in a folder for each outlet."""
ORIGIN, INPUT = "outlet", "outlet input"
"""Parts of the fingerprint of an outlet's run: the run folder and name of the outlet, and a hash of its input."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def check_outlet_name(name: object) -> str:
    """Return the name of an outlet; raise if it is none."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"outlet: {name!r} is not a name; a name has letters, digits, - and _ only")
    return name


def unknown_outlet(stage: str, name: str, outlets: Collection[str]) -> str:
    """Say that a stage sends records to an outlet that the pipeline does not have."""
    if name in KEPT_STREAMS:
        return f"{stage} sends documents to the outlet {name!r}, which is for {KEPT_STREAMS[name]}; choose another name"
    known = f"It has: {', '.join(outlets)}" if outlets else "It has none"
    return (
        f"{stage} sends documents to the outlet {name!r}, which the pipeline does not have.{nearest(name, outlets)} "
        f"{known}. Add it: pipeline.outlet({name!r}), or `outlets: {{{name}: [...]}}` in a recipe"
    )


class Branch(NamedTuple):
    """A pipeline or one of its outlets, as the progress of a run shows it."""

    name: str
    """Name of the pipeline or of the outlet."""
    depth: int = 0
    """0 for the pipeline, 1 for its outlets, 2 for outlets of these."""
    sent: int | None = None
    """Records that were sent there; `None` if that is not known."""
    written: int | None = None
    """Records in its output; `None` until it is done."""


def running_branch(branches: Sequence[Branch]) -> int:
    """Return the number of the branch that runs: they run one after the other, as they are listed."""
    return next((number for number, branch in enumerate(branches) if branch.written is None), len(branches) - 1)


def with_sent(branches: Sequence[Branch], sent: Mapping[str, int]) -> list[Branch]:
    """Return the branches with what the one that runs has sent to its outlets so far."""
    running = running_branch(branches)
    found = list(branches)
    for number, branch in enumerate(branches[running + 1 :], start=running + 1):
        if branch.depth <= branches[running].depth:
            break
        if branch.depth == branches[running].depth + 1 and branch.name != SCORES:
            found[number] = branch._replace(sent=sent.get(branch.name, 0))
    return found
