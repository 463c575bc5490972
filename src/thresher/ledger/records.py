# SPDX-License-Identifier: Apache-2.0
"""What the ledger says of a committed unit."""

from __future__ import annotations

import msgspec

from thresher.core.tally import Tally


class OutputFile(msgspec.Struct, frozen=True):
    """A finished file."""

    path: str
    """Its name below the folder it belongs to: the output folder, `parts/` of the run folder, or `dropped_to`."""
    bytes: int
    """Its size."""
    records: int
    """How many records are in it."""
    sha256: str
    """Of its bytes."""


class CommitRecord(msgspec.Struct, frozen=True):
    """One committed unit: one line of the ledger."""

    unit: str
    """Its id."""
    attempt: int
    """The attempt that committed it."""
    read: int = 0
    """Records that were read."""
    written: int = 0
    """Records that were written."""
    dropped: int = 0
    """Records that rules dropped."""
    quarantined: int = 0
    """Records that were set aside."""
    outputs: tuple[OutputFile, ...] = ()
    """Files with its records: one, or none if nothing was left."""
    order: tuple[int, int] = (0, 0)
    """Its place in the input."""
    part: bool = False
    """Whether `outputs` are parts that are joined with others later."""
    dropped_outputs: tuple[OutputFile, ...] = ()
    """Files with its dropped records."""
    joined: tuple[str, ...] = ()
    """For a joined file: the units whose parts are in it, in order."""
    tally: Tally = msgspec.field(default_factory=Tally)
    """What each stage did to its records."""
    run: str = ""
    """The run that committed it; a record of another run does not count."""


class ManifestLine(msgspec.Struct, frozen=True):
    """One finished output file of a finished run."""

    path: str
    """Its name below the output folder."""
    bytes: int
    """Its size."""
    records: int
    """How many records are in it."""
    sha256: str
    """Of its bytes."""
    units: tuple[str, ...]
    """The units that it holds, in order."""


_COMMIT = msgspec.json.Decoder(CommitRecord)
encode = msgspec.json.encode


def decode_commit(line: bytes) -> CommitRecord | None:
    """A record of the ledger or the inbox; `None` for what a crash cut short."""
    try:
        return _COMMIT.decode(line)
    except msgspec.DecodeError:
        return None
