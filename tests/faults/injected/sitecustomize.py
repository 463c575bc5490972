# SPDX-License-Identifier: Apache-2.0
"""Runs at the start of every process of a disturbed run, before anything of ours: the process dies at a named point.

`DIE_AT` names the point and `DIE_AT_NTH` which of its occurrences in the whole run, over all processes. The points are
the calls that the commit makes, so the product needs no code for its own death. `CLOCK_JUMPS` makes the wall clock
useless: every look at it gives a time of another week.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

Point = Callable[..., bool]


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _is_data(descriptor: int) -> bool:
    return "/tmp/" in _path_of(descriptor) and "-data" in _path_of(descriptor)


def _is_ledger(descriptor: int, *_: Any) -> bool:
    path = _path_of(descriptor)
    return "/ledger/" in path and path.endswith(".jsonl")


def _is_inbox(_: Any, target: Any) -> bool:
    return "/ledger/inbox/" in str(target)


def _moves(what: str) -> Point:
    return lambda source, target, *_, **__: what in str(source)


def _becomes(name: str) -> Point:
    return lambda source, target, *_, **__: str(target).endswith(name)


def _removes_from_inbox(path: Any, *_: Any, **__: Any) -> bool:
    return "/ledger/inbox/" in str(path) and str(path).endswith(".json")


POINTS: dict[str, tuple[str, str, Point]] = {
    "after-write": ("fdatasync", "before", _is_data),
    "after-fsync": ("fdatasync", "after", _is_data),
    "after-rename": ("replace", "after", _moves("-data")),
    "before-record": ("link", "before", _is_inbox),
    "after-record": ("link", "after", _is_inbox),
    "before-fold": ("write", "before", _is_ledger),
    "after-fold": ("write", "after", _is_ledger),
    "after-fold-fsync": ("fsync", "after", _is_ledger),
    "before-inbox-is-cleared": ("unlink", "before", _removes_from_inbox),
    "after-inbox-is-cleared": ("unlink", "after", _removes_from_inbox),
    "before-units": ("replace", "before", _becomes("/units.jsonl")),
    "before-run-state": ("replace", "before", _becomes("/run.json")),
    "after-run-state": ("replace", "after", _becomes("/run.json")),
    "before-manifest": ("replace", "before", _becomes("/manifest.jsonl")),
    "after-manifest": ("replace", "after", _becomes("/manifest.jsonl")),
    "before-report": ("replace", "before", _becomes("/report.json")),
    "before-copy-gets-its-name": ("replace", "before", _moves("/dropped/.")),
    "before-join": ("replace", "before", _moves("join-")),
    "after-join": ("replace", "after", _moves("join-")),
}
"""By name: the call of the operating system, whether death comes before or after it, and which of these calls."""


def _die_at(point: str, nth: int, markers: str) -> None:
    name, when, concerns = POINTS[point]
    call = getattr(os, name)

    def deadly(*args: Any, **kwargs: Any) -> Any:
        here = concerns(*args, **kwargs)
        if here and when == "before":
            count()
        result = call(*args, **kwargs)
        if here and when == "after":
            count()
        return result

    def count() -> None:
        number = 1
        while True:
            try:
                os.close(os.open(f"{markers}/{point}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                number += 1
            else:
                break
        if number == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, name, deadly)


def _make_clock_jump() -> None:
    jumps = random.Random(os.getpid())
    true_time = time.time
    time.time = lambda: true_time() + jumps.uniform(-1e6, 1e6)
    time.time_ns = lambda: int(time.time() * 1e9)


if "DIE_AT" in os.environ:
    _die_at(os.environ["DIE_AT"], int(os.environ.get("DIE_AT_NTH", "1")), os.environ["MARKERS"])
if "CLOCK_JUMPS" in os.environ:
    _make_clock_jump()
