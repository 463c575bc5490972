# SPDX-License-Identifier: Apache-2.0
"""Human-readable sizes and counts: `64MB` is 64 * 10^6 bytes, `64MiB` is 64 * 2^20."""

from __future__ import annotations

import re

from thresher.errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "t": 10**12,
    "tb": 10**12,
    "p": 10**15,
    "pb": 10**15,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "pib": 2**50,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: int | float | str, what: str = "size") -> int:
    """Return the bytes in `value`, a number or a string such as `64MB`; `what` names the setting in the error."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UsageError(f"{what}: {value!r} is not a size; write a number of bytes or a text such as 64MB or 1GiB")
    if isinstance(value, int | float):
        number = float(value)
    else:
        match = _SIZE.fullmatch(value)
        if match is None or match[2].lower() not in _UNITS:
            raise UsageError(f"{what}: {value!r} is not a size; write a number of bytes or a text such as 64MB or 1GiB")
        number = float(match[1]) * _UNITS[match[2].lower()]
    if number < 1:
        raise UsageError(f"{what}: {value!r} is less than one byte")
    return int(number)


def show_size(nbytes: float) -> str:
    """Return `nbytes` in readable form: `1.5 GB`."""
    for unit, size in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{int(nbytes)} B"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 record`, `1,254 records`, `2 entries`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
