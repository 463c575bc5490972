# SPDX-License-Identifier: Apache-2.0
"""Count words with a letter, and words with anything but punctuation, in any script."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import BYTES, INT32, OUT, get, helper, integer, kernel
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.punctuation import PUNCTUATION
from thresher.kernels.bytes.unicode_tables import (
    ALPHABETIC,
    CODE_POINTS,
    Properties,
    as_properties,
    code_point,
    flags_of,
    property_of,
    python_letters,
    regex_letters,
)
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts
from thresher.kernels.counts.words import code_points_in

_PYTHON, _REGEX, _WORDY = 1, 2, 4
"""Flags of a character: `str.isalpha`, `[[:alpha:]]` of the `regex` module, and anything but punctuation."""
_FLAGS = {"isalpha_words": _PYTHON, "alpha_words": _REGEX, "non_symbol_words": _WORDY, "non_symbol_characters": _WORDY}
_COLUMNS = ("isalpha_words", "alpha_words", "non_symbol_words", "non_symbol_characters")
"""The columns that the kernel fills, in its order."""


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return the wanted counts; the others are not computed."""
    every = 0
    for name, _ in wanted:
        every |= _FLAGS[name]
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _count(batch_of(work, rows), *_table(every), every, out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS) if every & _FLAGS[name]}


@cache
def _table(every: int) -> Properties:
    """Return the wanted flags of all characters."""
    flags = np.zeros(CODE_POINTS, dtype=np.uint8)
    if every & _PYTHON:
        flags |= flags_of(python_letters()) & ALPHABETIC  # which is 1
    if every & _REGEX:
        flags |= flags_of(regex_letters()) * np.uint8(_REGEX)
    if every & _WORDY:
        flags |= np.uint8(_WORDY)
        flags[[ord(character) for character in PUNCTUATION]] &= np.uint8(_PYTHON | _REGEX)
    return as_properties(flags)


@helper
def _flags_in(data: Any, start: int, end: int, pages: Any, flags: Any, every: int) -> Any:
    """Return the combined flags of the characters of a word; stop when all wanted flags are found."""
    found, position = 0, start
    while position < end and found != every:
        byte = integer(get(data, position))
        if byte < 0x80:  # ASCII is the first page
            found |= integer(get(flags, byte))
            position += 1
        else:
            character, length = code_point(data, position)
            found |= property_of(pages, flags, character)
            position += length
    return found


@kernel(types.void(BATCH, INT32, BYTES, types.int64, OUT))
def _count(batch: Batch, pages: Any, flags: Any, every: int, out: Any) -> None:
    """Fill a row of `out` for each of `rows`."""
    data, edges = batch.data, batch.edges
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        base, edge, is_ascii = batch.starts[row], 2 * batch.first_word[row], batch.continuation[row] == 0
        python = regex = wordy = characters = 0
        for word in range(edge, edge + 2 * batch.words[row], 2):
            start, end = base + get(edges, word), base + get(edges, word + 1)
            found = _flags_in(data, start, end, pages, flags, every)
            python += found & 1
            regex += (found >> 1) & 1
            if found & _WORDY:
                wordy += 1
                characters += end - start if is_ascii else code_points_in(data, start, end)
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = python, regex, wordy, characters
