# SPDX-License-Identifier: Apache-2.0
"""Detect the end of a sentence by the last characters of a line or word."""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import get, helper
from thresher.kernels.bytes.punctuation import TERMINAL_PUNCTUATION

ENDING = np.array(sorted(map(ord, TERMINAL_PUNCTUATION)), dtype=np.int64)
"""The code points that end a sentence, in order."""


@helper
def ends_like_sentence(data: Any, start: int, end: int, ending: Any) -> bool:
    """Return True if the last character of these bytes is one of `ending`."""
    if end <= start:
        return False
    last = get(data, end - 1)
    if last < 0x80:
        return bool(last == 0x2E or last == 0x21 or last == 0x3F)
    return _is_among(ending, _last_code_point(data, start, end))


@helper
def _last_code_point(data: Any, start: int, end: int) -> Any:
    """Return the last code point of these bytes; -1 if its length does not match its first byte."""
    value, shift, at = np.int64(0), 0, end - 1
    while at > start and shift < 18 and get(data, at) & 0xC0 == 0x80:
        value |= np.int64(get(data, at) & 0x3F) << shift
        shift += 6
        at -= 1
    lead = np.int64(get(data, at))
    if shift == 6 and lead & 0xE0 == 0xC0:
        return value | (lead & 0x1F) << 6
    if shift == 12 and lead & 0xF0 == 0xE0:
        return value | (lead & 0x0F) << 12
    if shift == 18 and lead & 0xF8 == 0xF0:
        return value | (lead & 0x07) << 18
    return -1


@helper
def _is_among(sorted_numbers: Any, number: int) -> bool:
    low, high = 0, len(sorted_numbers)
    while low < high:
        middle = (low + high) >> 1
        if get(sorted_numbers, middle) < number:
            low = middle + 1
        else:
            high = middle
    return low < len(sorted_numbers) and get(sorted_numbers, low) == number


@helper
def _without_closers(data: Any, start: int, end: int) -> int:
    """Return the end of a word without closing quotation marks and brackets."""
    while end > start:
        last = get(data, end - 1)
        if last == 0x22 or last == 0x27 or last == 0x29 or last == 0x5D or last == 0x7D:
            end -= 1
        elif last == 0xBB and end - start >= 2 and get(data, end - 2) == 0xC2:
            end -= 2
        elif (
            (last == 0x99 or last == 0x9D)
            and end - start >= 3
            and get(data, end - 2) == 0x80
            and get(data, end - 3) == 0xE2
        ):
            end -= 3
        else:
            break
    return end


@helper
def _is_letter(byte: int) -> bool:
    return 0x61 <= (byte | 0x20) <= 0x7A


@helper
def ends_sentence(data: Any, start: int, end: int, ending: Any) -> bool:
    """Return True if a sentence ends with this word. A full stop after another one, or after a single letter, does not
    end it."""
    end = _without_closers(data, start, end)
    if not ends_like_sentence(data, start, end, ending):
        return False
    if get(data, end - 1) != 0x2E or end - start < 2:
        return True
    before = get(data, end - 2)
    if before == 0x2E:
        return False
    if not _is_letter(before):
        return True
    if end - start == 2:
        return False
    earlier = get(data, end - 3)
    return earlier >= 0x80 or _is_letter(earlier)
