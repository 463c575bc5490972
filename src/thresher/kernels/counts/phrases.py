# SPDX-License-Identifier: Apache-2.0
"""Count paragraphs with a phrase of legal boilerplate, and texts with "lorem ipsum".

Case is ignored, as in `paragraph.lower()`. Three consecutive letters that few texts have show where a phrase may be;
then the whole phrase is compared. One character outside ASCII matters: the Kelvin sign is a `k` in lower case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    ALL,
    BYTES,
    ONE,
    OUT,
    TABLE32,
    flattened,
    get,
    helper,
    integer,
    kernel,
    low_bits,
    mask_equal,
    mask_folded,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.paragraphs import next_cut
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts
from thresher.kernels.edits.policy_phrases import PLACEHOLDER, POLICY_PHRASES

_COLUMNS = ("boilerplate_paragraphs", "lorem_ipsum")
"""The columns that the kernel fills, in its order."""
_ANCHORS = ("oki", "acy", "rms", "ips")
"""Every phrase contains one of these; the kernel searches for them and tells them apart by their first letter."""
_K = 0x6B


def _as_arrays(phrases: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the bytes of the phrases, and for each the first letter of its anchor, its start, its end and the position
    of its anchor in the bytes."""
    rows, start = [], 0
    for phrase in phrases:
        anchor = next(anchor for anchor in _ANCHORS if anchor in phrase)
        rows.append((ord(anchor[0]), start, start + len(phrase), start + phrase.index(anchor)))
        start += len(phrase)
    return np.frombuffer("".join(phrases).encode(), dtype=np.uint8), np.array(rows, dtype=np.int32)


_BYTES, _PHRASES = _as_arrays((*POLICY_PHRASES, PLACEHOLDER))
"""The placeholder is the last of them."""


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return both counts."""
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _count(batch_of(work, rows), _BYTES, _PHRASES, out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@helper
def _is_kelvin(data: Any, position: int) -> Any:
    """Return True if there is a Kelvin sign at a position."""
    return get(data, position) == 0xE2 and get(data, position + 1) == 0x84 and get(data, position + 2) == 0xAA


@helper
def _small(byte: Any) -> Any:
    return byte | 0x20 if 0x41 <= byte <= 0x5A else byte


@helper
def _matches_from(data: Any, position: int, end: int, phrase: Any, part: int, phrase_end: int) -> Any:
    """Return True if the text matches the phrase from its byte `part` to its end."""
    while part < phrase_end:
        if position >= end:
            return False
        if _small(integer(get(data, position))) == get(phrase, part):
            position += 1
        elif get(phrase, part) == _K and end - position >= 3 and _is_kelvin(data, position):
            position += 3
        else:
            return False
        part += 1
    return True


@helper
def _matches_before(data: Any, position: int, begin: int, phrase: Any, part: int, phrase_start: int) -> Any:
    """Return True if the text before `position` matches the phrase from its start up to, not including, its byte
    `part`."""
    while part > phrase_start:
        part -= 1
        if position <= begin:
            return False
        if _small(integer(get(data, position - 1))) == get(phrase, part):
            position -= 1
        elif get(phrase, part) == _K and position - begin >= 3 and _is_kelvin(data, position - 3):
            position -= 3
        else:
            return False
    return True


@helper
def _anchored(data: Any, at: int) -> Any:
    """Return the positions, among 64 bytes, where an anchor may begin or where the last byte of a Kelvin sign precedes
    an `i`."""
    second, third = at + 1, at + 2
    i_third, s_third = mask_folded(data, third, 0x69), mask_folded(data, third, 0x73)
    oki = mask_folded(data, at, 0x6F) & mask_folded(data, second, 0x6B) & i_third
    acy = mask_folded(data, at, 0x61) & mask_folded(data, second, 0x63) & mask_folded(data, third, 0x79)
    rms = mask_folded(data, at, 0x72) & mask_folded(data, second, 0x6D) & s_third
    ips = mask_folded(data, at, 0x69) & mask_folded(data, second, 0x70) & s_third
    kelvin = mask_equal(data, at, 0xAA) & mask_folded(data, second, 0x69)
    return oki | acy | rms | ips | kelvin


@helper
def _phrase_at(data: Any, begin: int, end: int, position: int, phrase: Any, phrases: Any, first: int, last: int) -> Any:
    """Return True if one of some phrases has its anchor at a position."""
    letter = _small(integer(get(data, position)))
    if letter == 0xAA:
        position, letter = position - 3, 0x6F
        if position < begin:
            return False
    for number in range(first, last):
        anchor = integer(get(phrases, 4 * number + 3))
        if (
            get(phrases, 4 * number) == letter
            and _matches_before(data, position, begin, phrase, anchor, integer(get(phrases, 4 * number + 1)))
            and _matches_from(data, position, end, phrase, anchor, integer(get(phrases, 4 * number + 2)))
        ):
            return True
    return False


@kernel(types.void(BATCH, BYTES, TABLE32, OUT))
def _count(batch: Batch, phrase: Any, phrases: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`."""
    data, flat_feeds, flat_phrases = batch.data, flattened(batch.feeds), flattened(phrases)
    policies = len(phrases) - 1
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        start, end = batch.starts[row], batch.ends[row]
        feed, last = batch.first_feed[row], batch.first_feed[row] + batch.line_feeds[row]
        paragraphs = placeholder = 0
        counted = start  # end of the paragraphs that are counted already
        for at in range(start, end - 2, 64):
            hits = _anchored(data, at) & (ALL if end - at >= 64 else low_bits(end - at))
            while hits:
                position = at + trailing_zeros(hits)
                hits &= hits - ONE
                if not placeholder and _phrase_at(
                    data, start, end, position, phrase, flat_phrases, policies, policies + 1
                ):
                    placeholder = 1
                if position < counted or not _phrase_at(data, start, end, position, phrase, flat_phrases, 0, policies):
                    continue
                paragraphs += 1
                while counted <= position:
                    feed = next_cut(flat_feeds, feed, last)
                    counted = start + get(flat_feeds, 3 * feed) if feed < last else end + 1
                    feed += 2
        out[n, 0], out[n, 1] = paragraphs, placeholder
