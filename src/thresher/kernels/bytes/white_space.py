# SPDX-License-Identifier: Apache-2.0
"""The 29 white-space characters of Unicode, at the start or end of a range of bytes."""

from __future__ import annotations

from typing import Any

from thresher.kernels.build.decorators import inlined
from thresher.kernels.build.intrinsics import get, helper


@inlined
def white_at(data: Any, start: int, end: int) -> int:
    """Return the length in bytes of the white-space character at `start`; 0 if there is none."""
    if start >= end:
        return 0
    one = get(data, start)
    if one < 0x80:
        return 1 if 0x09 <= one <= 0x0D or 0x1C <= one <= 0x20 else 0
    if start + 1 >= end:
        return 0
    two = get(data, start + 1)
    if one == 0xC2:
        return 2 if two == 0x85 or two == 0xA0 else 0
    if start + 2 >= end or not 0xE1 <= one <= 0xE3:
        return 0
    three = get(data, start + 2)
    if one == 0xE1:
        return 3 if two == 0x9A and three == 0x80 else 0
    if one == 0xE3:
        return 3 if two == 0x80 and three == 0x80 else 0
    if two == 0x80:
        return 3 if three <= 0x8A or three == 0xA8 or three == 0xA9 or three == 0xAF else 0
    return 3 if two == 0x81 and three == 0x9F else 0


@helper
def white_before(data: Any, start: int, end: int) -> int:
    """Return the length in bytes of the white-space character before `end`; 0 if there is none."""
    for size in range(1, 4):
        if end - size >= start and white_at(data, end - size, end) == size:
            return size
    return 0
