# SPDX-License-Identifier: Apache-2.0
"""Records that were set aside and are tried again: names, rounds, and which quarantine file counts.

The records of unit U that are tried again are a unit of their own, `U-retry-N`. What fails again is in its quarantine
file, and from its commit on that file takes the place of the one before: so a record leaves the quarantine in the same
moment in which it is in the output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from thresher.ledger.store import Store

QUARANTINE = "quarantine"
RETRIED = f"{QUARANTINE}/retried"
"""Where quarantine files go that a retry has replaced."""
_RETRY = re.compile(r"(.+)-retry-([1-9]\d{0,8})")


def retry_id(unit_id: str, number: int) -> str:
    """The id of the `number`-th retry of a unit; that of the unit itself for 0."""
    return f"{unit_id}-retry-{number}" if number else unit_id


def split_retry(unit_id: str) -> tuple[str, int]:
    """The unit that an id belongs to and the number of the retry; 0 for the unit itself."""
    found = _RETRY.fullmatch(unit_id)
    return (found[1], int(found[2])) if found else (unit_id, 0)


def latest_retries(committed: Iterable[str]) -> dict[str, int]:
    """For each committed unit the number of its last committed retry; 0 where there was none."""
    latest: dict[str, int] = {}
    for unit_id in committed:
        unit, number = split_retry(unit_id)
        latest[unit] = max(number, latest.get(unit, 0))
    return latest


def retries_due(latest: dict[str, int], to_retry: Collection[str]) -> dict[str, int]:
    """The units of `to_retry` that are tried next, with the number that the retry gets.

    A round that was ended early is finished before the next one begins: so a killed retry that is started again does
    what it would have done, and tries nothing twice.
    """
    last = max(latest.values(), default=0)
    behind = [unit for unit in to_retry if latest.get(unit, 0) < last]
    return dict.fromkeys(behind, last) if behind else dict.fromkeys(to_retry, last + 1)


def quarantine_file(unit_id: str) -> str:
    """The name of a unit's quarantine file in the run folder."""
    return f"{QUARANTINE}/{unit_id}.jsonl"


def open_files(store: Store, latest: dict[str, int]) -> dict[str, str]:
    """For each unit that has some: the id under which its records in quarantine are kept, in the order of names.

    Files of units that are not committed do not count: such a unit will be done again.
    """
    there = {name.removesuffix(".jsonl") for name in store.names(QUARANTINE) if name.endswith(".jsonl")}
    current = {retry_id(unit, number): unit for unit, number in latest.items()}
    return {current[name]: name for name in sorted(there & current.keys())}


def put_away_retried(store: Store, latest: dict[str, int]) -> None:
    """Move quarantine files aside that a committed retry has replaced."""
    for name in store.names(QUARANTINE):
        unit, number = split_retry(name.removesuffix(".jsonl"))
        if name.endswith(".jsonl") and number < latest.get(unit, 0):
            store.move(f"{QUARANTINE}/{name}", f"{RETRIED}/{name}")
