# SPDX-License-Identifier: Apache-2.0
"""Tables of properties of code points for kernels.

They are built from the running Python (and the `regex` module) when first needed, which takes some hundredths of a
second, so that kernels and plain Python always use the same version of Unicode.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import get, helper, integer

CODE_POINTS = 0x110000
"""Number of code points."""
PAGE_BITS = 7
"""A page of a table holds 2**PAGE_BITS code points."""
ALPHABETIC, ALPHANUMERIC = 1, 2
"""Flags of `python_letters`: `str.isalpha` and `str.isalnum`."""
_PAGE = 2**PAGE_BITS
_LETTERS_END = 0x40000
"""No code point from here on is a letter: four planes of Unicode hold all of them. The tests check every code point."""


class Properties(NamedTuple):
    """Flags of every code point. Equal pages are stored once, so that the used part fits into a fast cache."""

    pages: npt.NDArray[np.int32]
    """Start of the flags of each page of code points."""
    flags: npt.NDArray[np.uint8]
    """The flags, page by page; the first page, which is ASCII, is the first one here."""


def as_properties(flags: npt.NDArray[np.uint8]) -> Properties:
    """Return a table from the flags of all code points."""
    rows = flags.reshape(-1, _PAGE)
    positions: dict[bytes, int] = {}
    pages = np.array([positions.setdefault(row.tobytes(), len(positions)) for row in rows], dtype=np.int32)
    return Properties(pages * _PAGE, np.frombuffer(b"".join(positions), dtype=np.uint8).copy())


def flags_of(table: Properties) -> npt.NDArray[np.uint8]:
    """Return the flags of all code points, from a table."""
    flags: npt.NDArray[np.uint8] = table.flags.reshape(-1, _PAGE)[table.pages // _PAGE].reshape(-1)
    return flags


@cache
def python_letters() -> Properties:
    """Return the table of `str.isalpha` and `str.isalnum`."""
    characters = _candidates()
    flags = np.zeros(CODE_POINTS, dtype=np.uint8)
    known = flags[: len(characters)]
    known += np.frombuffer(bytes(map(str.isalnum, characters)), dtype=np.uint8) * np.uint8(ALPHANUMERIC)
    known += np.frombuffer(bytes(map(str.isalpha, characters)), dtype=np.uint8) * np.uint8(ALPHABETIC)
    return as_properties(flags)


@cache
def regex_letters() -> Properties:
    """Return the table of `[[:alpha:]]` of the `regex` module."""
    import regex

    flags = np.zeros(CODE_POINTS, dtype=np.uint8)
    for match in regex.finditer("[[:alpha:]]+", _candidates()):
        flags[match.start() : match.end()] = 1
    return as_properties(flags)


def _candidates() -> str:
    """Return all code points that can be letters, in order, including lone surrogates."""
    return np.arange(_LETTERS_END, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@helper
def code_point(data: Any, position: int) -> Any:
    """Return the code point at `position` and its length in bytes. Invalid UTF-8 gives some code point, and a length of
    at most four."""
    lead = integer(get(data, position))
    if lead < 0xC0:
        return lead, 1
    second = integer(get(data, position + 1)) & 0x3F
    if lead < 0xE0:
        return ((lead & 0x1F) << 6) | second, 2
    third = integer(get(data, position + 2)) & 0x3F
    if lead < 0xF0:
        return ((lead & 0x0F) << 12) | (second << 6) | third, 3
    fourth = integer(get(data, position + 3)) & 0x3F
    return min(((lead & 0x07) << 18) | (second << 12) | (third << 6) | fourth, CODE_POINTS - 1), 4


@helper
def property_of(pages: Any, flags: Any, character: Any) -> Any:
    """Return the flags of a code point."""
    return integer(get(flags, integer(get(pages, character >> PAGE_BITS)) + (character & (_PAGE - 1))))
