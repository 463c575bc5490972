# SPDX-License-Identifier: Apache-2.0
"""Who works in a run folder, and whether that process still lives."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Holder(msgspec.Struct, frozen=True):
    """Who works in a run folder."""

    pid: int
    """Process id of the driver."""
    host: str
    """Its machine."""
    start: str
    """When it opened the folder."""
    run_id: str = ""
    """Its run."""
    renewed: float = 0.0
    """When a lease was last renewed, in seconds since 1970."""
    process_start: str = ""
    """When the process began, in clock ticks since the machine started: tells it from a later one with its number."""
    boot_id: str = ""
    """Names the start of the machine."""
    pid_space: str = ""
    """Names the container that `pid` is a number in."""


def this_process(start: str, run_id: str) -> Holder:
    """This process as a holder."""
    pid = os.getpid()
    return Holder(pid, os.uname().nodename, start, run_id, 0.0, process_start(pid) or "", boot_id(), _pid_space())


def read_holder(content: bytes) -> Holder | None:
    """Who the content of a lock names; `None` if nobody."""
    try:
        return msgspec.json.decode(content, type=Holder)
    except msgspec.DecodeError:
        return None


def is_dead(holder: Holder) -> bool:
    """Whether the process is known to be gone; nothing is known of one on another machine or in another container."""
    if not holder.boot_id or holder.host != os.uname().nodename:
        return False
    if (holder.boot_id, holder.pid_space) != (boot_id(), _pid_space()):
        return False
    return process_start(holder.pid) != holder.process_start


def process_start(pid: int) -> str | None:
    """When a process of this machine began, in clock ticks; `None` if it is not there or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def process_exists(pid: int) -> bool:
    """Whether a process of this machine is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def boot_id() -> str:
    """A name that the kernel makes anew whenever the machine starts."""
    return _first_line("/proc/sys/kernel/random/boot_id")


def _pid_space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip()
    except OSError:
        return ""
