# SPDX-License-Identifier: Apache-2.0
"""Rewrite texts as bytes. A kernel finds what to replace in each text, and one loop writes the new texts.

    edits = find_edits(find, texts, [b"<EMAIL>"])
    texts = rewritten(texts, edits)

All texts are written one after the other to a new buffer; adjacent unchanged texts are copied together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    BYTES,
    INT64,
    NONE,
    ONE,
    OUT,
    get,
    helper,
    kernel,
    mask_equal,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import PADDING, Texts
from thresher.kernels.json.scan import BYTES_OUT, byte_at, copy_block

ROW, START, END, WITH = 0, 1, 2, 3
"""The columns of a list of replacements: the number of the text, start, end, and the number of the replacement."""
FULL = -1
"""Result of a kernel if there is no space for another replacement."""
DOUBT = types.Array(types.uint8, 1, "C")
"""One byte per text; a kernel sets it if it cannot decide."""
_SURROGATE, _FIRST_SURROGATE = 0xED, 0xA0
_FEWEST = 256
_BYTES_EACH = 512
"""Initially there is space for one replacement per this number of bytes of text; more is made if needed."""

Find = Callable[[Any, Any, Any, Any, Any], int]
"""A kernel that takes the bytes, starts and ends of texts and fills the list and the doubts. It returns the number of
replacements, or `FULL`."""


class Edits(NamedTuple):
    """Replacements in some texts."""

    found: npt.NDArray[np.int64]
    """A row for each replacement, with the columns above: texts in order, and from left to right within a text."""
    new: Sequence[bytes]
    """The replacements; the last column of `found` is an index into them."""
    doubtful: npt.NDArray[np.uint8]
    """Not 0 for texts that the kernel cannot decide; nothing is found in them."""


def find_edits(find: Find, texts: Texts, new: Sequence[bytes]) -> Edits:
    """Return the replacements that a kernel finds."""
    doubtful = np.zeros(len(texts.starts), dtype=np.uint8)
    room = _FEWEST + int((texts.ends - texts.starts).sum()) // _BYTES_EACH
    while True:
        found = np.empty((room, 4), dtype=np.int64)
        count = find(texts.data, texts.starts, texts.ends, found, doubtful)
        if count != FULL:
            return Edits(found[:count], new, doubtful)
        doubtful[:] = 0
        room *= 4


def rewritten(texts: Texts, edits: Edits) -> Texts:
    """Return all texts in a new buffer, with the replacements applied."""
    found = edits.found
    lengths = np.array([len(one) for one in edits.new], dtype=np.int64)
    ends = np.cumsum(lengths)
    new = np.frombuffer(b"".join([*edits.new, bytes(PADDING)]), dtype=np.uint8)
    grown = int(lengths[found[:, WITH]].sum() - (found[:, END] - found[:, START]).sum())
    out = np.empty(int((texts.ends - texts.starts).sum()) + grown + 2 * PADDING, dtype=np.uint8)
    positions = np.empty((2, len(texts.starts)), dtype=np.int64)
    pieces = np.stack((ends - lengths, ends))
    used = _rewrite(texts.data, texts.starts, texts.ends, found, new, pieces, out, positions)
    out[used : used + PADDING] = 0
    return Texts(out, positions[0], positions[1])


def with_whole_texts(edits: Edits, texts: Texts, made: Mapping[int, bytes]) -> Edits:
    """Return the same edits plus new bytes for some whole texts, by their numbers: those that were in doubt."""
    if not made:
        return edits
    rows = np.fromiter(made, dtype=np.int64, count=len(made))
    which = np.arange(len(edits.new), len(edits.new) + len(made), dtype=np.int64)
    whole = np.stack((rows, texts.starts[rows], texts.ends[rows], which), axis=1)
    found = np.concatenate((edits.found, whole))
    in_order = found[np.argsort(found[:, ROW], kind="stable")]
    return Edits(in_order, (*edits.new, *made.values()), edits.doubtful)


@helper
def note_edit(found: Any, count: int, row: int, start: int, end: int, which: int) -> int:
    """Add a replacement to the list, which has space for it; return the new number of replacements."""
    found[count, 0] = row
    found[count, 1] = start
    found[count, 2] = end
    found[count, 3] = which
    return count + 1


@helper
def has_half_pair(data: Any, start: int, end: int) -> bool:
    """Return True if a text contains a lone surrogate: as it is not valid UTF-8, such a text is not rewritten here."""
    at = start
    while at < end:
        mask = mask_equal(data, at, np.uint8(_SURROGATE))
        while mask != NONE:
            position = at + trailing_zeros(mask)
            mask &= mask - ONE
            if position + 1 < end and byte_at(data, position + 1) >= _FIRST_SURROGATE:
                return True
        at += 64
    return False


@kernel(types.boolean(BYTES, INT64, INT64))
def any_half_pair(data: Any, starts: Any, ends: Any) -> bool:
    """Return True if any of some texts contains a lone surrogate."""
    for row in range(len(starts)):
        if has_half_pair(data, get(starts, row), get(ends, row)):
            return True
    return False


@helper
def copy_stretch(data: Any, start: int, end: int, out: Any, to: int) -> int:
    """Copy bytes in blocks, up to 63 more than requested; return the position after those that were requested."""
    at = start
    position = to
    while at < end:
        copy_block(data, at, out, position)
        at += 64
        position += 64
    return to + end - start


@kernel(types.int64(BYTES, INT64, INT64, types.Array(types.int64, 2, "C"), BYTES, OUT, BYTES_OUT, OUT))
def _rewrite(data: Any, starts: Any, ends: Any, found: Any, new: Any, pieces: Any, out: Any, positions: Any) -> int:
    """Write every text, and its start and end; return the end of the last one."""
    to = 0
    edit = 0
    row = 0
    while row < len(starts):
        start, end = get(starts, row), get(ends, row)
        if edit < len(found) and found[edit, 0] == row:
            positions[0, row] = to
            done = start
            while edit < len(found) and found[edit, 0] == row:
                to = copy_stretch(data, done, found[edit, 1], out, to)
                which = found[edit, 3]
                to = copy_stretch(new, pieces[0, which], pieces[1, which], out, to)
                done = found[edit, 2]
                edit += 1
            to = copy_stretch(data, done, end, out, to)
            positions[1, row] = to
            row += 1
            continue
        until = found[edit, 0] if edit < len(found) else len(starts)
        shift = to - start
        positions[0, row], positions[1, row] = to, end + shift
        row += 1
        while row < until and get(starts, row) == end:  # adjacent texts are copied together
            end = get(ends, row)
            positions[0, row] = get(starts, row) + shift
            positions[1, row] = end + shift
            row += 1
        to = copy_stretch(data, start, end, out, to)
    return to
