# SPDX-License-Identifier: Apache-2.0
"""Find texts that a model of bytes should see in another form: those that may not be in Unicode's composed form (NFC),
and those in capital letters alone. Nearly all texts are in neither, so that only few are ever decoded."""

from __future__ import annotations

import functools
import unicodedata
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT32, INT64, get, integer, kernel, put
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.unicode_tables import CODE_POINTS, Properties, as_properties, code_point, property_of
from thresher.kernels.counts.text_counts import Rows, Texts

LOWER, UPPER, WHITE, COMBINING, UNCOMPOSED = 1, 2, 4, 8, 16
"""Flags of a code point: `str.islower` or `str.istitle`, `str.isupper`, `str.isspace`, has a combining class, and may
differ in NFC, alone or with the code point before it."""
_JAMO_VOWELS, _JAMO_TAILS = range(0x1161, 0x1176), range(0x11A8, 0x11C3)
"""Parts of Hangul syllables, which are composed by a rule instead of a table."""
_PLANES_END = 0x40000
"""No code point from here on has a flag."""


class Forms(NamedTuple):
    """What is known about some texts."""

    changed: npt.NDArray[np.bool_]
    """True for texts that may need another form."""
    visible: Rows
    """Numbers of code points that are not white space."""


@functools.cache
def form_flags() -> Properties:
    """Return the table of the flags above."""
    characters = [chr(number) for number in range(_PLANES_END)]
    flags = np.zeros(CODE_POINTS, dtype=np.uint8)
    known = flags[:_PLANES_END]
    for flag, test in ((LOWER, str.islower), (LOWER, str.istitle), (UPPER, str.isupper), (WHITE, str.isspace)):
        known |= np.frombuffer(bytes(map(test, characters)), dtype=np.uint8) * np.uint8(flag)
    # An upper-case letter alone is in title case, too; what counts is that it is upper case.
    known[(known & UPPER) != 0] &= np.uint8(0xFF - LOWER)
    known |= np.frombuffer(bytes(map(bool, map(unicodedata.combining, characters))), dtype=np.uint8) * np.uint8(
        COMBINING
    )
    known[[*_JAMO_VOWELS, *_JAMO_TAILS]] |= UNCOMPOSED
    for number, character in enumerate(characters):
        parts = unicodedata.decomposition(character)
        if parts and not parts.startswith("<"):
            if not unicodedata.is_normalized("NFC", character):
                known[number] |= UNCOMPOSED
            elif " " in parts:
                known[int(parts.split()[1], 16)] |= UNCOMPOSED
    return as_properties(flags)


def find_forms(texts: Texts, rows: Rows) -> Forms:
    """Return what is known about some of the texts."""
    forms = Forms(np.empty(len(rows), dtype=np.bool_), np.empty(len(rows), dtype=np.int64))
    _find_forms(*texts, rows, *form_flags(), forms.changed, forms.visible)
    return forms


@kernel(
    types.void(
        BYTES,
        INT64,
        INT64,
        INT64,
        INT32,
        BYTES,
        types.boolean[::1],
        types.int64[::1],
    )
)
def _find_forms(
    data: Any, starts: Any, ends: Any, rows: Any, pages: Any, flags: Any, changed: Any, visible: Any
) -> None:
    """Fill an item of `changed` and `visible` for each of `rows`."""
    for n in range(len(rows)):
        position, end = get(starts, get(rows, n)), get(ends, get(rows, n))
        seen = before = seen_by_two = count = 0
        while position < end:
            if get(data, position) < 0x80:
                found = integer(get(flags, integer(get(data, position))))
                position += 1
            else:
                character, length = code_point(data, position)
                found = property_of(pages, flags, character)
                position += length
            seen |= found
            seen_by_two |= found & before
            before = found
            count += (found & WHITE) == 0
        capitals = (seen & (LOWER | UPPER)) == UPPER
        put(changed, n, capitals or (seen & UNCOMPOSED) != 0 or (seen_by_two & COMBINING) != 0)
        put(visible, n, count)
