# SPDX-License-Identifier: Apache-2.0
"""Replay a recorded run: check that a new scheduler gives the logged actions for the logged events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from thresher.observe.event_log import LogLine, decode_line
from thresher.scheduler.actions import Action, AnyAction
from thresher.scheduler.model import RunSpec
from thresher.scheduler.step import Scheduler


@dataclass(frozen=True)
class Difference:
    """The first difference between a log and its replay."""

    n: int  # line number in the log
    logged: str  # item in the log
    replayed: str  # action of the replay

    def __str__(self) -> str:
        return f"line {self.n}: the log says {self.logged}, the replay decides {self.replayed}"


class LogError(ValueError):
    """A log that cannot be replayed: the start line is missing, or a line is not valid."""


def replay(lines: Iterable[bytes]) -> Difference | None:
    """Return the first difference between a log and its replay; None if there is none.

    A truncated log (the driver was killed) is compared up to its end.
    """
    scheduler: Scheduler | None = None
    decided: deque[AnyAction] = deque()
    for number, line in enumerate(lines):
        found = read_line(number, line)
        if scheduler is None:
            if not isinstance(found.item, RunSpec):
                raise LogError(f"line {number} should be the start line with the run's spec: {line[:120]!r}")
            scheduler = Scheduler(found.item)
            decided.extend(scheduler.start())
        elif isinstance(found.item, Action):
            action = decided.popleft() if decided else None
            if action != found.item:
                return Difference(found.n, repr(found.item), "nothing" if action is None else repr(action))
        elif isinstance(found.item, RunSpec):
            raise LogError(f"line {number} is a second start line; replay one attempt at a time")
        elif decided:
            return Difference(found.n, repr(found.item), repr(decided[0]))
        else:
            decided.extend(scheduler.step(found.item))
    if scheduler is None:
        raise LogError("the log is empty; it should begin with a start line")
    return None


def read_line(number: int, line: bytes) -> LogLine:
    """Decode a line of a log. Raise LogError with its number if it is not valid."""
    try:
        return decode_line(line)
    except msgspec.MsgspecError as error:
        raise LogError(f"line {number} is not a line of an event log ({error}): {line[:120]!r}") from error
