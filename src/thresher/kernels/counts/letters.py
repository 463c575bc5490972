# SPDX-License-Identifier: Apache-2.0
"""Count the letters, and the letters and digits, of a text in any script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    ALL,
    BYTES,
    INT32,
    INT64,
    ONE,
    OUT,
    kernel,
    low_bits,
    mask_range,
    popcount,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.unicode_tables import (
    ALPHABETIC,
    ALPHANUMERIC,
    Properties,
    code_point,
    property_of,
    python_letters,
    regex_letters,
)
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

_COLUMNS = ("alphabetic", "alphanumeric")


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return both counts by Python's definition of letters, and the count by the `regex` module's if it is wanted."""
    names = {name for name, _ in wanted}
    found: dict[Count, Rows] = {}
    if names & set(_COLUMNS):
        out = _counted(work, rows, python_letters())
        found.update({(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)})
    if "alpha_characters" in names:
        found["alpha_characters", 0] = _counted(work, rows, regex_letters())[:, 0]
    return found


def _counted(work: SharedCounts, rows: Rows, letters: Properties) -> npt.NDArray[np.int64]:
    texts = work.texts
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _count(texts.data, texts.starts, texts.ends, rows, letters.pages, letters.flags, out)
    return out


@kernel(types.void(BYTES, INT64, INT64, INT64, INT32, BYTES, OUT))
def _count(data: Any, starts: Any, ends: Any, rows: Any, pages: Any, flags: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`."""
    for n in range(len(rows)):
        start, end = starts[rows[n]], ends[rows[n]]
        alphabetic = alphanumeric = 0
        for at in range(start, end, 64):
            valid = ALL if end - at >= 64 else low_bits(end - at)
            letter = mask_range(data, at, 0x61, 0x7A) | mask_range(data, at, 0x41, 0x5A)
            alphabetic += popcount(letter & valid)
            alphanumeric += popcount((letter | mask_range(data, at, 0x30, 0x39)) & valid)
            leads = mask_range(data, at, 0xC0, 0xFF) & valid
            while leads:
                character, _ = code_point(data, at + trailing_zeros(leads))
                leads &= leads - ONE
                found = property_of(pages, flags, character)
                alphabetic += 1 if found & ALPHABETIC else 0
                alphanumeric += 1 if found & ALPHANUMERIC else 0
        out[n, 0], out[n, 1] = alphabetic, alphanumeric
