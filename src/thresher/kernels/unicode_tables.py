# SPDX-License-Identifier: Apache-2.0
"""Properties of code points as tables that kernels can look up.

They are built from the running Python (and the `regex` module) when first needed, which takes some hundredths of a
second, so that kernels and plain Python never disagree about a version of Unicode.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.intrinsics import get, helper, integer

CODE_POINTS = 0x110000
"""How many there are."""
PAGE_BITS = 7
"""A page of a table holds 2 to the power of so many code points."""
ALPHABETIC, ALPHANUMERIC = 1, 2
"""Flags of `python_letters`: `str.isalpha` and `str.isalnum`."""
_PAGE = 2**PAGE_BITS
_LETTERS_END = 0x40000
"""From here on there are no letters: four planes of Unicode hold all of them. The tests ask every code point."""


class Properties(NamedTuple):
    """Flags of every code point. Equal pages are kept once, so that what is used fits into a fast cache."""

    pages: npt.NDArray[np.int32]
    """Where the flags of each page of code points begin."""
    flags: npt.NDArray[np.uint8]
    """The flags, page by page; the first page, which is ASCII, is the first one here."""


def as_properties(flags: npt.NDArray[np.uint8]) -> Properties:
    """A table from the flags of all code points."""
    rows = flags.reshape(-1, _PAGE)
    places: dict[bytes, int] = {}
    pages = np.array([places.setdefault(row.tobytes(), len(places)) for row in rows], dtype=np.int32)
    return Properties(pages * _PAGE, np.frombuffer(b"".join(places), dtype=np.uint8).copy())


def flags_of(table: Properties) -> npt.NDArray[np.uint8]:
    """The flags of all code points, from a table."""
    flags: npt.NDArray[np.uint8] = table.flags.reshape(-1, _PAGE)[table.pages // _PAGE].reshape(-1)
    return flags


@cache
def python_letters() -> Properties:
    """`str.isalpha` and `str.isalnum`."""
    characters = _candidates()
    flags = np.zeros(CODE_POINTS, dtype=np.uint8)
    known = flags[: len(characters)]
    known += np.frombuffer(bytes(map(str.isalnum, characters)), dtype=np.uint8) * np.uint8(ALPHANUMERIC)
    known += np.frombuffer(bytes(map(str.isalpha, characters)), dtype=np.uint8) * np.uint8(ALPHABETIC)
    return as_properties(flags)


@cache
def regex_letters() -> Properties:
    """`[[:alpha:]]` of the `regex` module."""
    import regex

    flags = np.zeros(CODE_POINTS, dtype=np.uint8)
    for match in regex.finditer("[[:alpha:]]+", _candidates()):
        flags[match.start() : match.end()] = 1
    return as_properties(flags)


def _candidates() -> str:
    """All code points that can be letters, in order, and lone surrogates among them."""
    return np.arange(_LETTERS_END, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@helper
def code_point(data: Any, place: int) -> Any:
    """The code point at `place`, and its bytes. What is no UTF-8 gives some code point, and never a place that is
    further than four bytes."""
    lead = integer(get(data, place))
    if lead < 0xC0:
        return lead, 1
    second = integer(get(data, place + 1)) & 0x3F
    if lead < 0xE0:
        return ((lead & 0x1F) << 6) | second, 2
    third = integer(get(data, place + 2)) & 0x3F
    if lead < 0xF0:
        return ((lead & 0x0F) << 12) | (second << 6) | third, 3
    fourth = integer(get(data, place + 3)) & 0x3F
    return min(((lead & 0x07) << 18) | (second << 12) | (third << 6) | fourth, CODE_POINTS - 1), 4


@helper
def property_of(pages: Any, flags: Any, character: Any) -> Any:
    """The flags of a code point."""
    return integer(get(flags, integer(get(pages, character >> PAGE_BITS)) + (character & (_PAGE - 1))))
