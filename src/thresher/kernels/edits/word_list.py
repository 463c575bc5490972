# SPDX-License-Identifier: Apache-2.0
"""Find texts that may contain a word or phrase of a list as a whole word, without false negatives.

Case is ignored for ASCII letters only. Matches have to be verified: the character before or after may be a letter of
another script.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT32, INT64, get, helper, kernel
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Rows, Texts

_HEADS = 2**16


class WordList(NamedTuple):
    """Words by their first two bytes."""

    heads: npt.NDArray[np.int32]
    """Words that begin with the bytes a and b have the numbers from `heads[a + 256 * b]` up to the next element."""
    positions: npt.NDArray[np.int32]
    """Start of each word in `data`; the last element is the end."""
    data: npt.NDArray[np.uint8]
    """The bytes of the words in lower case, up to the first character outside ASCII."""


def word_list(words: Iterable[str]) -> WordList | None:
    """Return a list of lower-case words, or `None` if a word does not begin with two ASCII characters."""
    prefixes = set()
    for word in words:
        ascii_part = word
        for position, character in enumerate(word):
            if not character.isascii():
                ascii_part = word[:position]
                break
        if len(ascii_part) < 2:
            return None
        prefixes.add(ascii_part.encode())
    ordered = sorted(prefixes, key=lambda prefix: (prefix[0] + 256 * prefix[1], prefix))
    keys = np.array([prefix[0] + 256 * prefix[1] for prefix in ordered], dtype=np.int64)
    heads = np.searchsorted(keys, np.arange(_HEADS + 1)).astype(np.int32)
    positions = np.cumsum([0, *map(len, ordered)]).astype(np.int32)
    return WordList(heads, positions, np.frombuffer(b"".join(ordered) or b"\0", dtype=np.uint8).copy())


def texts_with_words(texts: Texts, rows: Rows, words: WordList) -> npt.NDArray[np.bool_]:
    """Return which of these texts may contain one of the words."""
    found = np.zeros(len(rows), dtype=np.bool_)
    _look(texts.data, texts.starts[rows], texts.ends[rows], words.heads, words.positions, words.data, found)
    return found


@helper
def _small(byte: int) -> int:
    return byte | 0x20 if 0x41 <= byte <= 0x5A else byte


@helper
def _is_word_byte(byte: int) -> bool:
    return 0x30 <= byte <= 0x39 or 0x61 <= (byte | 0x20) <= 0x7A or byte == 0x5F


@helper
def _matches(data: Any, at: int, end: int, words: Any, first: int, last: int) -> bool:
    """Return True if a word is at this position and no ASCII letter or digit follows it."""
    length = last - first
    if at + length > end:
        return False
    for n in range(length):
        if _small(get(data, at + n)) != get(words, first + n):
            return False
    return at + length == end or not _is_word_byte(get(data, at + length))


@kernel(types.void(BYTES, INT64, INT64, INT32, INT32, BYTES, types.boolean[::1]))
def _look(data: Any, starts: Any, ends: Any, heads: Any, positions: Any, words: Any, found: Any) -> None:
    for n in range(len(starts)):
        start, end = starts[n], ends[n]
        before: Any = np.uint8(0x20)
        hit = False
        for at in range(start, end - 1):
            byte = get(data, at)
            # Two characters become ASCII in lower case: U+0130 an i, U+212A a k.
            if (byte == 0xC4 and get(data, at + 1) == 0xB0) or (byte == 0xE2 and get(data, at + 1) == 0x84):
                hit = True
                break
            if not _is_word_byte(before):
                key = np.int64(_small(byte)) + 256 * np.int64(_small(get(data, at + 1)))
                for word in range(get(heads, key), get(heads, key + 1)):
                    if _matches(data, at, end, words, get(positions, word), get(positions, word + 1)):
                        hit = True
                        break
                if hit:
                    break
            before = byte
        found[n] = hit
